#include "grammar/gram_prog.h"

#include <string.h>

#include "grammar/gram_dfa.h"

#define PROG_TREE_MAX ((size_t)1 << 20)  /* nodes of the tree */
#define PROG_EMITS_MAX (1u << 21)        /* repetitions of nothing make no nodes, but take time */
#define PROG_NONE UINT32_MAX
#define PROG_CODE_MAX 0x10ffffu

/* A pattern is read into a tree, then the tree is written from its end to its start: what follows
 * is known when a node is made. Children hang at their parent last first, for the same reason. */
enum prog_tree_kind { PROG_EMPTY, PROG_SET, PROG_CAT, PROG_ALT, PROG_REPEAT, PROG_BEGIN, PROG_END };
struct prog_tree {
    enum prog_tree_kind kind;
    uint32_t child, before; /* last child; the sibling before this one */
    uint32_t first, count;  /* SET: ranges; REPEAT: min, max (GRAM_DFA_FAR: endless) */
};
struct prog_range { uint32_t low, high; };

static uint32_t prog_min(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t prog_max(uint32_t a, uint32_t b) { return a > b ? a : b; }

struct prog_read {
    str s;
    size_t at;
    struct buf trees, ranges, set; /* set: the class at hand */
    struct err *e;
    bool failed;
};

static struct prog_tree *prog_tree(const struct prog_read *r, uint32_t i)
{
    return (struct prog_tree *)(void *)r->trees.p + i;
}

static uint32_t prog_fail(struct prog_read *r, size_t at, const char *what)
{
    if (!r->failed)
        err_set(r->e, ERR_REQUEST, "offset %zu: %s", at, what);
    r->failed = true;
    return PROG_NONE;
}

static uint32_t prog_new(struct prog_read *r, enum prog_tree_kind kind)
{
    struct prog_tree t = {.kind = kind, .child = PROG_NONE, .before = PROG_NONE};
    if (!buf_add_bytes(&r->trees, &t, sizeof t)) {
        if (!r->failed)
            err_set(r->e, ERR_LIMIT, "the pattern has too many parts");
        r->failed = true;
        return PROG_NONE;
    }
    return (uint32_t)(r->trees.len / sizeof t - 1);
}

static int prog_peek(const struct prog_read *r)
{
    return r->at < r->s.len ? (uint8_t)r->s.p[r->at] : -1;
}

static bool prog_take(struct prog_read *r, const char *what)
{
    if (!str_starts(str_from(r->s, r->at), str_of(what)))
        return false;
    r->at += strlen(what);
    return true;
}

/* --- classes ------------------------------------------------------------------------------- */

static void prog_put(struct prog_read *r, uint32_t low, uint32_t high)
{
    struct prog_range g = {low, high};
    if (!buf_add_bytes(&r->set, &g, sizeof g))
        prog_fail(r, r->at, "a class has too many ranges");
}

static void prog_sort(struct buf *b)
{
    struct prog_range *p = (struct prog_range *)(void *)b->p;
    size_t n = b->len / sizeof *p, kept = 0;
    for (size_t i = 1; i < n; i++) /* classes are short: at most PROG_CLASS_MAX ranges */
        for (size_t k = i; k > 0 && p[k].low < p[k - 1].low; k--) {
            struct prog_range t = p[k];
            p[k] = p[k - 1];
            p[k - 1] = t;
        }
    for (size_t i = 0; i < n; i++) {
        if (kept && p[i].low <= p[kept - 1].high + 1)
            p[kept - 1].high = prog_max(p[kept - 1].high, p[i].high);
        else
            p[kept++] = p[i];
    }
    b->len = kept * sizeof *p;
}

static void prog_negate(struct prog_read *r)
{
    struct prog_range old[64];
    prog_sort(&r->set);
    size_t n = r->set.len / sizeof old[0];
    if (n > countof(old)) {
        prog_fail(r, r->at, "a negated class has more than 64 ranges");
        return;
    }
    if (n)
        memcpy(old, r->set.p, r->set.len);
    buf_clear(&r->set);
    uint32_t from = 0;
    for (size_t i = 0; i < n; i++) {
        if (old[i].low > from)
            prog_put(r, from, old[i].low - 1);
        from = old[i].high + 1;
    }
    if (from <= PROG_CODE_MAX)
        prog_put(r, from, PROG_CODE_MAX);
}

/* The set at hand becomes a tree. */
static uint32_t prog_set(struct prog_read *r)
{
    prog_sort(&r->set);
    uint32_t t = prog_new(r, PROG_SET);
    if (t == PROG_NONE)
        return t;
    prog_tree(r, t)->first = (uint32_t)(r->ranges.len / sizeof(struct prog_range));
    prog_tree(r, t)->count = (uint32_t)(r->set.len / sizeof(struct prog_range));
    if (r->set.len && !buf_add_bytes(&r->ranges, r->set.p, r->set.len))
        return prog_fail(r, r->at, "the pattern has too many classes");
    return t;
}

/* \d \w \s and their opposites, added to the set; false for another letter. */
static bool prog_class_letter(struct prog_read *r, int c)
{
    struct buf outer = r->set;
    buf_init(&r->set, outer.size_max);
    switch (c | 32) {
    case 'd':
        prog_put(r, '0', '9');
        break;
    case 'w':
        prog_put(r, '0', '9');
        prog_put(r, 'A', 'Z');
        prog_put(r, '_', '_');
        prog_put(r, 'a', 'z');
        break;
    case 's':
        prog_put(r, '\t', '\r');
        prog_put(r, ' ', ' ');
        break;
    default:
        r->set = outer;
        return false;
    }
    if (c < 'a')
        prog_negate(r);
    struct buf inner = r->set;
    r->set = outer;
    if (!buf_add_bytes(&r->set, inner.p, inner.len))
        prog_fail(r, r->at, "a class has too many ranges");
    buf_deinit(&inner);
    return true;
}

static uint32_t prog_hex(struct prog_read *r, uint32_t digits_min, uint32_t digits_max)
{
    uint32_t v = 0, n = 0;
    for (; n < digits_max; n++) {
        int c = prog_peek(r), lower = c | 32;
        if (c >= '0' && c <= '9')
            v = v * 16 + (uint32_t)(c - '0');
        else if (c > 0 && lower >= 'a' && lower <= 'f')
            v = v * 16 + (uint32_t)(lower - 'a' + 10);
        else
            break;
        r->at++;
    }
    if (n < digits_min)
        return prog_fail(r, r->at, "a hexadecimal digit is missing");
    return v;
}

static uint32_t prog_unicode(struct prog_read *r, size_t start)
{
    uint32_t v;
    if (prog_take(r, "{")) {
        v = prog_hex(r, 1, 6);
        if (!r->failed && !prog_take(r, "}"))
            return prog_fail(r, r->at, "'}' is missing");
    } else {
        v = prog_hex(r, 4, 4);
        if (!r->failed && v >= 0xd800 && v < 0xdc00 && prog_take(r, "\\u")) {
            uint32_t low = prog_hex(r, 4, 4);
            if (!r->failed && low >= 0xdc00 && low < 0xe000)
                v = 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    if (!r->failed && (v > PROG_CODE_MAX || (v >= 0xd800 && v < 0xe000)))
        return prog_fail(r, start, "no such code point");
    return v;
}

/* One code point behind a backslash that is no class; in_class: \b is a backspace. */
static uint32_t prog_escape(struct prog_read *r, bool in_class)
{
    size_t start = r->at - 1;
    int c = prog_peek(r);
    if (c < 0)
        return prog_fail(r, start, "a backslash ends the pattern");
    r->at++;
    switch (c) {
    case 't': return '\t';
    case 'n': return '\n';
    case 'r': return '\r';
    case 'f': return '\f';
    case 'v': return '\v';
    case 'x': return prog_hex(r, 2, 2);
    case 'u': return prog_unicode(r, start);
    case '0':
        if (prog_peek(r) >= '0' && prog_peek(r) <= '9')
            return prog_fail(r, start, "octal escapes are not supported");
        return 0;
    case 'c':
        c = prog_peek(r) | 32;
        if (c < 'a' || c > 'z')
            return prog_fail(r, start, "\\c needs a letter");
        r->at++;
        return (uint32_t)(c - 'a' + 1);
    case 'b':
        if (in_class)
            return '\b';
        return prog_fail(r, start, "word boundaries are not supported");
    case 'B':
        return prog_fail(r, start, "word boundaries are not supported");
    case 'p':
    case 'P':
        return prog_fail(r, start, "Unicode properties are not supported");
    case 'k':
        return prog_fail(r, start, "back-references are not supported");
    default:
        break;
    }
    if (c >= '1' && c <= '9')
        return prog_fail(r, start, "back-references are not supported");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80)
        return prog_fail(r, start, "no such escape");
    return (uint32_t)c;
}

static uint32_t prog_code(struct prog_read *r)
{
    uint32_t v;
    size_t n = str_utf8_decode(str_from(r->s, r->at), &v);
    if (n == 0)
        return prog_fail(r, r->at, "no valid UTF-8");
    r->at += n;
    return v;
}

/* One end of a range in a class. False: it was a class of its own, already added. */
static bool prog_class_code(struct prog_read *r, uint32_t *code)
{
    if (!prog_take(r, "\\")) {
        *code = prog_code(r);
        return true;
    }
    int c = prog_peek(r);
    if (c > 0 && prog_class_letter(r, c)) {
        r->at++;
        return false;
    }
    *code = prog_escape(r, true);
    return true;
}

static uint32_t prog_class(struct prog_read *r)
{
    size_t start = r->at - 1;
    bool is_negated = prog_take(r, "^");
    buf_clear(&r->set);
    if (prog_peek(r) == ']')
        return prog_fail(r, start, "an empty class");
    while (!r->failed && prog_peek(r) != ']') {
        uint32_t low, high;
        size_t at = r->at;
        if (prog_peek(r) < 0)
            return prog_fail(r, start, "']' is missing");
        bool single = prog_class_code(r, &low);
        bool ranged = prog_peek(r) == '-' && r->at + 1 < r->s.len && r->s.p[r->at + 1] != ']';
        if (!ranged) {
            if (single && !r->failed)
                prog_put(r, low, low);
            continue;
        }
        r->at++;
        if (!single || !prog_class_code(r, &high))
            return prog_fail(r, at, "a range needs two characters");
        if (!r->failed && high < low)
            return prog_fail(r, at, "a range is in the wrong order");
        if (!r->failed)
            prog_put(r, low, high);
    }
    r->at++;
    if (!r->failed && is_negated)
        prog_negate(r);
    return r->failed ? PROG_NONE : prog_set(r);
}

/* --- the tree ------------------------------------------------------------------------------ */

static uint32_t prog_alternatives(struct prog_read *r, uint32_t nesting);

static uint32_t prog_group(struct prog_read *r, uint32_t nesting)
{
    size_t start = r->at - 1;
    if (nesting >= GRAM_DFA_NESTING_MAX) {
        if (!r->failed)
            err_set(r->e, ERR_LIMIT, "offset %zu: groups nest deeper than %u", start,
                    GRAM_DFA_NESTING_MAX);
        r->failed = true;
        return PROG_NONE;
    }
    if (prog_take(r, "?=") || prog_take(r, "?!") || prog_take(r, "?<=") || prog_take(r, "?<!"))
        return prog_fail(r, start, "look-around is not supported");
    if (prog_take(r, "?<") || prog_take(r, "?P<")) {
        size_t len = str_find_byte(str_from(r->s, r->at), '>');
        if (len == STR_NONE || len == 0)
            return prog_fail(r, start, "the name of a group does not end");
        r->at += len + 1;
    } else if (!prog_take(r, "?:") && prog_peek(r) == '?') {
        return prog_fail(r, start, "flags and special groups are not supported");
    }
    uint32_t t = prog_alternatives(r, nesting + 1);
    if (!r->failed && !prog_take(r, ")"))
        return prog_fail(r, start, "')' is missing");
    return t;
}

static uint32_t prog_atom(struct prog_read *r, uint32_t nesting)
{
    int c = prog_peek(r);
    uint32_t code;
    if (c == '(' || c == '[' || c == '^' || c == '$' || c == '.' || c == '\\')
        r->at++;
    switch (c) {
    case '(': return prog_group(r, nesting);
    case '[': return prog_class(r);
    case '^': return prog_new(r, PROG_BEGIN);
    case '$': return prog_new(r, PROG_END);
    case '*':
    case '+':
    case '?': return prog_fail(r, r->at, "nothing to repeat");
    default: break;
    }
    buf_clear(&r->set);
    if (c == '.') { /* any character that ends no line, as in ECMA-262 */
        prog_put(r, '\n', '\n');
        prog_put(r, '\r', '\r');
        prog_put(r, 0x2028, 0x2029);
        prog_negate(r);
        return prog_set(r);
    }
    if (c == '\\' && prog_peek(r) > 0 && prog_class_letter(r, prog_peek(r))) {
        r->at++;
        return prog_set(r);
    }
    code = c == '\\' ? prog_escape(r, false) : prog_code(r);
    if (r->failed)
        return PROG_NONE;
    prog_put(r, code, code);
    return prog_set(r);
}

static bool prog_number(struct prog_read *r, uint32_t *out)
{
    uint32_t v = 0;
    size_t from = r->at;
    while (prog_peek(r) >= '0' && prog_peek(r) <= '9') {
        v = v > GRAM_DFA_REPEAT_MAX ? v : v * 10 + (uint32_t)(prog_peek(r) - '0');
        r->at++;
    }
    *out = v;
    return r->at > from;
}

/* {n} {n,} {n,m}; a brace that is none of them stands for itself. */
static bool prog_braces(struct prog_read *r, uint32_t *min, uint32_t *max)
{
    size_t start = r->at;
    if (!prog_take(r, "{"))
        return false;
    bool ok = prog_number(r, min);
    *max = *min;
    if (ok && prog_take(r, ",") && !prog_number(r, max))
        *max = GRAM_DFA_FAR;
    if (!ok || !prog_take(r, "}")) {
        if (prog_peek(r) == ',')
            prog_fail(r, start, "a repetition needs its lower number");
        r->at = start;
        return false;
    }
    if (*min > GRAM_DFA_REPEAT_MAX || (*max != GRAM_DFA_FAR && *max > GRAM_DFA_REPEAT_MAX))
        prog_fail(r, start, "more than 10000 repetitions");
    else if (*max < *min)
        prog_fail(r, start, "a repetition has its numbers in the wrong order");
    return true;
}

static uint32_t prog_repeat(struct prog_read *r, uint32_t nesting)
{
    size_t start = r->at;
    uint32_t t = prog_atom(r, nesting), min = 0, max = GRAM_DFA_FAR;
    if (r->failed)
        return PROG_NONE;
    size_t at = r->at;
    if (prog_take(r, "+"))
        min = 1;
    else if (prog_take(r, "?"))
        max = 1;
    else if (!prog_take(r, "*") && !prog_braces(r, &min, &max))
        return r->failed ? PROG_NONE : t;
    if (r->failed)
        return PROG_NONE;
    enum prog_tree_kind kind = prog_tree(r, t)->kind;
    if (kind == PROG_BEGIN || kind == PROG_END)
        return prog_fail(r, start, "nothing to repeat");
    prog_take(r, "?"); /* lazy: the same texts */
    size_t end = r->at;
    uint32_t a, b;
    if (prog_peek(r) == '+' || prog_peek(r) == '*' || prog_peek(r) == '?' ||
        prog_braces(r, &a, &b))
        return prog_fail(r, at, "a repetition of a repetition");
    r->at = end;
    uint32_t rep = prog_new(r, PROG_REPEAT);
    if (rep == PROG_NONE)
        return rep;
    prog_tree(r, rep)->child = t;
    prog_tree(r, rep)->first = min;
    prog_tree(r, rep)->count = max;
    return rep;
}

static void prog_hang(struct prog_read *r, uint32_t parent, uint32_t child)
{
    prog_tree(r, child)->before = prog_tree(r, parent)->child;
    prog_tree(r, parent)->child = child;
}

static uint32_t prog_alternatives(struct prog_read *r, uint32_t nesting)
{
    uint32_t alt = prog_new(r, PROG_ALT);
    while (!r->failed) {
        uint32_t cat = prog_new(r, PROG_CAT);
        while (!r->failed && prog_peek(r) >= 0 && prog_peek(r) != '|' && prog_peek(r) != ')') {
            uint32_t t = prog_repeat(r, nesting);
            if (!r->failed)
                prog_hang(r, cat, t);
        }
        if (r->failed)
            break;
        prog_hang(r, alt, cat);
        if (!prog_take(r, "|"))
            return alt;
    }
    return PROG_NONE;
}

/* --- writing ------------------------------------------------------------------------------- */

struct prog_write {
    struct gram_prog *p;
    const struct prog_read *r;
    bool is_full;
};

static uint32_t prog_add(struct prog_write *w, struct gram_prog_node n)
{
    n.dist = GRAM_DFA_FAR;
    if (w->is_full || gram_prog_count(w->p) >= GRAM_DFA_NODES_MAX ||
        !buf_add_bytes(&w->p->nodes, &n, sizeof n)) {
        w->is_full = true;
        return 0;
    }
    return gram_prog_count(w->p) - 1;
}

static uint32_t prog_split(struct prog_write *w, uint32_t a, uint32_t b)
{
    return prog_add(w, (struct gram_prog_node){.kind = GRAM_PROG_SPLIT, .out = a, .other = b});
}

/* Code points low .. high, all of one length in UTF-8: cut where a byte would have to depend on the
 * ones before it. */
static uint32_t prog_utf8(struct prog_write *w, uint32_t low, uint32_t high, uint32_t next)
{
    char a[4], b[4];
    for (uint32_t i = 1; i < 4; i++) {
        uint32_t m = (1u << (6 * i)) - 1;
        if (high < 0x80 || (low & ~m) == (high & ~m))
            break;
        if (low & m) {
            uint32_t first = prog_utf8(w, low, low | m, next);
            return prog_split(w, first, prog_utf8(w, (low | m) + 1, high, next));
        }
        if ((high & m) != m) {
            uint32_t first = prog_utf8(w, low, (high & ~m) - 1, next);
            return prog_split(w, first, prog_utf8(w, high & ~m, high, next));
        }
    }
    size_t n = str_utf8_encode(a, low);
    str_utf8_encode(b, high);
    while (n-- > 0)
        next = prog_add(w, (struct gram_prog_node){.kind = GRAM_PROG_RANGE, .low = (uint8_t)a[n],
                                                   .high = (uint8_t)b[n], .out = next});
    return next;
}

static uint32_t prog_ranges(struct prog_write *w, const struct prog_range *g, uint32_t count,
                            uint32_t next)
{
    static const struct prog_range lengths[] = {
        {0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, PROG_CODE_MAX}};
    uint32_t all = PROG_NONE;
    for (uint32_t i = 0; i < count; i++)
        for (size_t k = 0; k < countof(lengths); k++) {
            uint32_t low = prog_max(g[i].low, lengths[k].low);
            uint32_t high = prog_min(g[i].high, lengths[k].high);
            if (low > high)
                continue;
            uint32_t one = prog_utf8(w, low, high, next);
            all = all == PROG_NONE ? one : prog_split(w, one, all);
        }
    return all;
}

static uint32_t prog_emit(struct prog_write *w, uint32_t tree, uint32_t next);

static uint32_t prog_emit_repeat(struct prog_write *w, const struct prog_tree *t, uint32_t next)
{
    if (t->count == GRAM_DFA_FAR) {
        uint32_t loop = prog_split(w, next, next);
        uint32_t body = prog_emit(w, t->child, loop);
        if (!w->is_full)
            gram_prog_at(w->p, loop)->out = body;
        next = loop;
    } else {
        uint32_t after = next;
        for (uint32_t i = t->first; i < t->count && !w->is_full; i++)
            next = prog_split(w, prog_emit(w, t->child, next), after);
    }
    for (uint32_t i = 0; i < t->first && !w->is_full; i++)
        next = prog_emit(w, t->child, next);
    return next;
}

static uint32_t prog_emit(struct prog_write *w, uint32_t tree, uint32_t next)
{
    const struct prog_tree *t = prog_tree(w->r, tree);
    uint32_t all = PROG_NONE;
    if (++w->p->emits > PROG_EMITS_MAX)
        w->is_full = true;
    if (w->is_full)
        return 0;
    switch (t->kind) {
    case PROG_EMPTY:
        return next;
    case PROG_SET:
        all = prog_ranges(w, (const struct prog_range *)(void *)w->r->ranges.p + t->first, t->count,
                          next);
        if (all != PROG_NONE)
            return all;
        return prog_add(w, (struct gram_prog_node){.kind = GRAM_PROG_RANGE, .low = 1, .high = 0});
    case PROG_CAT:
        for (uint32_t c = t->child; c != PROG_NONE; c = prog_tree(w->r, c)->before)
            next = prog_emit(w, c, next);
        return next;
    case PROG_ALT:
        for (uint32_t c = t->child; c != PROG_NONE; c = prog_tree(w->r, c)->before) {
            uint32_t one = prog_emit(w, c, next);
            all = all == PROG_NONE ? one : prog_split(w, one, all);
        }
        return all;
    case PROG_REPEAT:
        return prog_emit_repeat(w, t, next);
    case PROG_BEGIN:
        return prog_add(w, (struct gram_prog_node){.kind = GRAM_PROG_BEGIN, .out = next});
    case PROG_END:
        return prog_add(w, (struct gram_prog_node){.kind = GRAM_PROG_END, .out = next});
    }
    return next;
}

/* Fewest code points to the end from each node, and whether the text may end there. A way back
 * never shortens anything, so one pass in order of making is enough (gram_prog.h). */
static void prog_measure(struct gram_prog *p, uint32_t first)
{
    for (uint32_t i = first; i < gram_prog_count(p); i++) {
        struct gram_prog_node *n = gram_prog_at(p, i);
        const struct gram_prog_node *out = gram_prog_at(p, n->out);
        const struct gram_prog_node *other = gram_prog_at(p, n->other);
        uint32_t step = n->kind == GRAM_PROG_RANGE && n->low >= 0x80 && n->high < 0xc0 ? 0 : 1;
        switch ((enum gram_prog_kind)n->kind) {
        case GRAM_PROG_ACCEPT:
            n->dist = 0;
            n->ends = true;
            break;
        case GRAM_PROG_RANGE:
            n->dist = out->dist == GRAM_DFA_FAR || n->low > n->high ? GRAM_DFA_FAR
                                                                    : out->dist + step;
            break;
        case GRAM_PROG_SPLIT:
            n->dist = prog_min(out->dist, other->dist);
            n->ends = out->ends || other->ends;
            break;
        case GRAM_PROG_BEGIN:
            break;
        case GRAM_PROG_END:
            n->ends = out->ends;
            n->dist = n->ends ? 0 : GRAM_DFA_FAR;
            break;
        }
    }
}

static void prog_write_part(struct prog_write *w, uint32_t tree, bool is_search,
                            struct gram_prog_part *out)
{
    static const struct prog_range any = {0, PROG_CODE_MAX};
    out->first = gram_prog_count(w->p);
    uint32_t next = prog_add(w, (struct gram_prog_node){.kind = GRAM_PROG_ACCEPT});
    out->open = GRAM_DFA_FAR;
    if (is_search) {
        uint32_t loop = prog_split(w, next, next);
        uint32_t body = prog_ranges(w, &any, 1, loop);
        if (!w->is_full)
            gram_prog_at(w->p, loop)->out = body;
        out->open = next = loop;
    }
    next = prog_emit(w, tree, next);
    if (is_search && !w->is_full) {
        uint32_t loop = prog_split(w, next, next);
        uint32_t body = prog_ranges(w, &any, 1, loop);
        if (!w->is_full)
            gram_prog_at(w->p, loop)->out = body;
        next = loop;
    }
    out->start = next;
    out->last = gram_prog_count(w->p);
}

bool gram_prog_add(struct gram_prog *p, str pattern, bool is_search, struct gram_prog_part *out,
                   struct err *e)
{
    struct prog_read r = {.s = pattern, .e = e};
    if (pattern.len > GRAM_DFA_PATTERN_MAX)
        return err_set(e, ERR_LIMIT, "a pattern has at most %u bytes, got %zu",
                       GRAM_DFA_PATTERN_MAX, pattern.len);
    buf_init(&r.trees, PROG_TREE_MAX * sizeof(struct prog_tree));
    buf_init(&r.ranges, PROG_TREE_MAX * sizeof(struct prog_range));
    buf_init(&r.set, 256 * sizeof(struct prog_range));
    uint32_t tree = prog_alternatives(&r, 0);
    if (!r.failed && r.at < pattern.len)
        prog_fail(&r, r.at, "')' without '('");
    bool ok = !r.failed;
    if (ok) {
        struct prog_write w = {.p = p, .r = &r};
        prog_write_part(&w, tree, is_search, out);
        if (w.is_full)
            ok = err_set(e, ERR_LIMIT, "the pattern needs more than %u steps", GRAM_DFA_NODES_MAX);
        else
            prog_measure(p, out->first);
    }
    buf_deinit(&r.trees);
    buf_deinit(&r.ranges);
    buf_deinit(&r.set);
    return ok;
}
