#include "engine/constrain_bare.h"

#include "base/json.h"

/* Each place is a choice: what a call would go on with, or free text from that byte on. */

#define S "[ \\t\\r\\n]*"

struct bare {
    struct constrain_write *w;
    uint32_t free;
    uint32_t again[2]; /* behind a call, without a fence and in one */
};

struct bare_way {
    const char *text;
    uint32_t to;
};

/* One of the ways behind blanks, or free text. */
static uint32_t bare_either(const struct bare *b, const struct bare_way *ways, uint32_t count)
{
    uint32_t to[8], trie = gram_trie_new(b->w->g);
    must(count <= countof(to));
    for (uint32_t i = 0; i < count; i++) {
        (void)gram_trie_add(b->w->g, trie, str_of(ways[i].text), i);
        to[i] = ways[i].to;
    }
    const struct gram_either e = {.trie = trie, .to = to, .count = count, .otherwise = b->free,
                                  .skips = true};
    return gram_either(b->w->g, &e);
}

static uint32_t bare_then(const struct bare *b, const char *text, uint32_t to)
{
    const struct bare_way way = {text, to};
    return bare_either(b, &way, 1);
}

/* --- one call ------------------------------------------------------------------------------ */

/* Inside the quotes behind "name": a tool's name and all that must follow, or another text. */
static bool bare_name(struct bare *b, uint32_t after, uint32_t *out)
{
    struct constrain_write *w = b->w;
    const struct output_tools *tools = w->ask->tools;
    uint32_t *to = ARENA_ARRAY(&w->arena, uint32_t, tools->rows_count);
    uint32_t trie = gram_trie_new(w->g), end = constrain_value_pattern(w, S "\\}", after);
    if (!to)
        return err_set(w->e, ERR_LIMIT, "tools: too many");
    for (uint32_t i = 0; i < tools->rows_count; i++) {
        str name = tools->rows[i].name;
        struct buf text;
        uint32_t args;
        if (!constrain_value_args(w, i, end, &args))
            return false;
        to[i] = constrain_value_pattern(w, S "," S "\"(arguments|parameters)\"" S ":" S, args);
        buf_init(&text, 8192);
        json_add_escaped(&text, name);
        buf_add_byte(&text, '"');
        bool ok = !text.full && gram_trie_add(w->g, trie, buf_view(&text), i);
        buf_deinit(&text);
        if (!ok)
            return err_set(w->e, ERR_REQUEST, "tools: the name %.*s is there twice, or too long",
                           STR_ARG(name));
    }
    const struct gram_either e = {.trie = trie, .to = to, .count = tools->rows_count,
                                  .otherwise = b->free};
    *out = gram_either(w->g, &e);
    return true;
}

/* Behind "{". */
static bool bare_members(struct bare *b, bool is_fenced, uint32_t *out)
{
    uint32_t text = GRAM_NONE;
    if (!bare_name(b, b->again[is_fenced], &text))
        return false;
    uint32_t name = bare_then(b, ":", bare_then(b, "\"", text));
    uint32_t second = bare_then(b, "\"name\"", name);
    uint32_t type = bare_then(b, ":", bare_then(b, "\"function\"", bare_then(b, ",", second)));
    const struct bare_way first[] = {{"\"name\"", name}, {"\"type\"", type}};
    *out = bare_either(b, first, countof(first));
    return true;
}

/* --- where one may stand ------------------------------------------------------------------- */

bool constrain_bare(struct constrain_write *w, uint32_t free, bool is_last, uint32_t *root)
{
    struct gram *g = w->g;
    struct bare b = {.w = w, .free = free};
    uint32_t plain, fenced;
    for (int i = 0; i < 2; i++)
        b.again[i] = is_last ? gram_end(g) : gram_hole(g);
    if (!bare_members(&b, false, &plain) || !bare_members(&b, true, &fenced))
        return false;
    uint32_t in_fence = bare_then(&b, "{", fenced);
    const struct bare_way fence[] = {{"{", fenced}, {"json", in_fence}};
    uint32_t behind_fence = bare_either(&b, fence, 2);
    struct bare_way ways[] = {{"{", plain}, {",", GRAM_NONE}, {";", GRAM_NONE},
                              {"```", behind_fence}};
    const struct bare_way start[] = {ways[0], ways[3]};
    *root = bare_either(&b, start, w->row->reads_bare ? 2 : 1);
    if (is_last)
        return true;
    /* Behind a call a separator may come; the end of its fence comes once. */
    ways[1].to = ways[2].to = *root;
    gram_fill(g, b.again[0], bare_either(&b, ways, w->row->reads_bare ? 4 : 3));
    const struct bare_way inside[] = {{"{", fenced}, {",", in_fence}, {";", in_fence},
                                      {"```", b.again[0]}};
    gram_fill(g, b.again[1], bare_either(&b, inside, countof(inside)));
    return true;
}
