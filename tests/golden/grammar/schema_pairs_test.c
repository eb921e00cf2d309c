/* Schemas and instances judged by Python's jsonschema: what the automaton accepts is valid, and
 * canonical valid instances are accepted (make_pairs.py).
 *
 * usage: schema_pairs_test [FILE]   lines of FILE, "-" stdin; default: pairs.txt beside this file
 *   s SCHEMA    a schema that must compile      r SCHEMA    one that must be refused
 *   + INSTANCE  must be accepted                - INSTANCE  is invalid: must not be
 *   ? INSTANCE  valid, but not canonical: either
 *   !           from here on say only "s ok" or why not of a schema; g COUNT SEED: print so many
 *               texts that the automaton accepts, drawn byte by byte, as "= TEXT"
 * An instance is a JSON text; every prefix of an accepted one must go on somewhere. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "grammar/gram_mask.h"
#include "grammar/gram_schema.h"
#include "unit/engine/engine_vocab.h"

struct judge {
    struct gram_mask *cache;
    struct gram *gram;
    struct gram_state start;
    uint32_t words;
};

static bool allowed(const uint32_t *mask, uint32_t id) { return mask[id / 32] >> (id % 32) & 1; }

/* Whether the text is accepted; the masks on the way must say the same as the tries. */
static bool accepts(struct judge *j, str text, bool *masks_agree)
{
    struct gram_state at = j->start, next;
    uint32_t mask[16], exact[16];
    *masks_agree = true;
    for (size_t i = 0; i < text.len; i++) {
        uint8_t byte = (uint8_t)text.p[i];
        bool ok = gram_mask_try(j->cache, &at, byte, &next);
        gram_mask(j->cache, &at, mask);
        gram_mask_exact(j->cache, &at, exact);
        *masks_agree = *masks_agree && (!ok || allowed(mask, byte)) && ok == allowed(exact, byte);
        if (!ok)
            return false;
        at = next;
    }
    gram_mask_exact(j->cache, &at, exact);
    bool ends = gram_mask_can_end(j->cache, &at), any = false;
    for (uint32_t w = 0; w < j->words; w++)
        any = any || exact[w];
    *masks_agree = *masks_agree && ends == allowed(exact, 256) &&
                   (any || gram_mask_is_done(j->cache, &at));
    return ends;
}

static bool compile(struct judge *j, str schema, struct err *e)
{
    const struct gram_limits l = {.bytes_max = (size_t)64 << 20};
    const struct gram_schema_options o = {.is_strict = true};
    uint32_t rule;
    if (j->gram) {
        gram_mask_close(j->cache, &j->start);
        gram_unref(j->gram);
    }
    j->gram = gram_new(&l);
    bool ok = gram_schema(j->gram, schema, &o, &rule, e) &&
              gram_finish(j->gram, gram_call(j->gram, rule, gram_end(j->gram)), e) &&
              gram_mask_open(j->cache, j->gram, &j->start, e);
    if (!ok) {
        gram_unref(j->gram);
        j->gram = NULL;
    }
    return ok;
}

static bool line_is_right(struct judge *j, char kind, str text, char *why, size_t size)
{
    struct err e = {0};
    bool agree = true;
    if (kind == 's' || kind == 'r') {
        bool ok = compile(j, text, &e);
        snprintf(why, size, "%s", ok ? "it compiles" : e.text);
        return ok == (kind == 's');
    }
    if (!j->gram)
        return true;
    bool ok = accepts(j, text, &agree);
    snprintf(why, size, "%s", !agree ? "a mask differs" : ok ? "accepted" : "not accepted");
    return agree && (kind == '?' || ok == (kind == '+'));
}

/* A text drawn byte by byte; long ones are steered to their end. False: it came to a place where
 * nothing may follow. Empty: it did not end for a long time. */
static bool draw(struct judge *j, struct chrono_rng *r, struct buf *out)
{
    struct gram_state at = j->start, next;
    uint32_t mask[16];
    buf_clear(out);
    for (uint32_t step = 0; step < 20000; step++) {
        bool ends = gram_mask_can_end(j->cache, &at);
        if (gram_mask_is_done(j->cache, &at) || (ends && chrono_rng_below(r, 3) == 0))
            return true;
        gram_mask_exact(j->cache, &at, mask);
        uint32_t id = 256;
        static const char closers[] = "\"]}:0,";
        for (const char *c = closers; step > 60 && *c && id == 256; c++)
            if (allowed(mask, (uint8_t)*c) && chrono_rng_below(r, 4))
                id = (uint8_t)*c;
        for (uint32_t tries = 0; id == 256 && tries < 5000; tries++) {
            uint32_t b = (uint32_t)chrono_rng_below(r, tries & 1 ? 128 : 256);
            id = allowed(mask, b) ? b : 256;
        }
        if (id == 256)
            return ends;
        if (!gram_mask_try(j->cache, &at, (int32_t)id, &next))
            return false;
        buf_add_byte(out, (char)id);
        at = next;
    }
    buf_clear(out);
    return true;
}

static void draw_some(struct judge *j, str args)
{
    struct buf text;
    struct chrono_rng r;
    uint64_t count = 0, seed = 0;
    str head;
    bool ok = str_split(&args, ' ', &head) && str_to_u64(head, &count) && str_to_u64(args, &seed);
    chrono_rng_init(&r, seed);
    buf_init(&text, 1 << 20);
    for (uint64_t i = 0; ok && j->gram && i < count; i++) {
        bool done = draw(j, &r, &text);
        if (done && text.len == 0)
            continue;
        printf(done ? "= %.*s\n" : "stuck behind %.*s\n", STR_ARG(buf_view(&text)));
    }
    buf_deinit(&text);
}

int main(int argc, char **argv)
{
    static char line[1 << 20];
    const char *path = argc > 1 ? argv[1] : "tests/golden/grammar/pairs.txt";
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    struct vocab *v = engine_vocab_bytes();
    struct gram_index *x = gram_index_new(v);
    const struct gram_mask_options o = {.index = x, .homes_max = 4, .masks_bytes = 1 << 20};
    struct judge j = {.cache = gram_mask_new(&o), .words = x->words};
    unsigned passed = 0, failed = 0;
    bool makes = false;
    char schema[2000] = "", why[300];
    if (!f) {
        fprintf(stderr, "%s: cannot be read\n", path);
        return 1;
    }
    while (fgets(line, sizeof line, f)) {
        size_t len = strcspn(line, "\n");
        str text = str_view(line + 2, len > 2 ? len - 2 : 0);
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if (line[0] == '!') {
            makes = true;
            continue;
        }
        if (makes && line[0] == 's') {
            struct err e;
            bool ok = compile(&j, text, &e);
            printf("s %s\n", ok ? "ok" : e.text);
            continue;
        }
        if (line[0] == 'g') {
            draw_some(&j, text);
            continue;
        }
        if (line[0] == 's' || line[0] == 'r')
            snprintf(schema, sizeof schema, "%.*s", STR_ARG(text));
        if (line_is_right(&j, line[0], text, why, sizeof why)) {
            passed++;
            continue;
        }
        if (++failed <= 20)
            printf("%c %.*s\n  %s\n  schema: %s\n", line[0], STR_ARG(text), why, schema);
    }
    printf("%u passed, %u failed\n", passed, failed);
    if (j.gram) {
        gram_mask_close(j.cache, &j.start);
        gram_unref(j.gram);
    }
    gram_mask_free(j.cache);
    gram_index_free(x);
    vocab_free(v);
    if (f != stdin)
        fclose(f);
    return failed || !passed;
}
