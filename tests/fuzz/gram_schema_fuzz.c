/* A schema, a line feed, a text: it is refused or compiles, strict or not; and wherever the text
 * leads, some byte may follow or the reply may end. */
#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "grammar/gram_schema.h"
#include "grammar/gram_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FRAMES_MAX = 8192, TABLES_MAX = 256 };

struct place {
    struct gram_thread threads[GRAM_THREADS_MAX];
    uint32_t count, frames;
};

static void step(struct gram_walk *w, const struct place *from, uint8_t byte, struct place *to)
{
    struct gram_threads out = {.items = to->threads, .max = GRAM_THREADS_MAX};
    w->frames_count = from->frames;
    for (uint32_t i = 0; i < from->count; i++)
        gram_walk_step(w, &from->threads[i], byte, &out);
    to->count = out.count;
    to->frames = w->frames_count;
}

static bool has_way(struct gram_walk *w, const struct place *at)
{
    struct place next;
    for (uint32_t i = 0; i < at->count; i++)
        if (gram_walk_can_end(w, &at->threads[i]))
            return true;
    for (uint32_t b = 0; b < 256; b++) {
        step(w, at, (uint8_t)b, &next);
        if (next.count || w->is_unsure)
            return true;
    }
    return false;
}

static void walk(const struct gram *g, str text)
{
    static struct gram_frame frames[FRAMES_MAX];
    struct gram_dfa_table *tables[TABLES_MAX] = {NULL};
    struct gram_walk w = {.g = g, .tables = tables, .frames = frames, .frames_max = FRAMES_MAX};
    struct gram_state s;
    struct place at = {.count = 1}, next;
    uint32_t count = gram_dfa_count(g);
    for (uint32_t i = 0; i < count && count <= TABLES_MAX; i++) {
        const struct gram_dfa *d = gram_dfa_at(g, i);
        tables[i] = gram_dfa_whole(d) ? gram_dfa_whole(d) : gram_dfa_table_new(d, 1 << 20);
    }
    gram_start(g, &s);
    at.threads[0] = s.threads[0];
    for (size_t i = 0; i < text.len && count <= TABLES_MAX; i++) {
        step(&w, &at, (uint8_t)text.p[i], &next);
        if (next.count == 0)
            break;
        at = next;
        if (!has_way(&w, &at))
            abort();
    }
    for (uint32_t i = 0; i < count && count <= TABLES_MAX; i++)
        if (!gram_dfa_whole(gram_dfa_at(g, i)))
            gram_dfa_table_free(tables[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    str schema = {NULL, 0}, text = str_view(data, size);
    str_split(&text, '\n', &schema);
    for (int strict = 0; strict < 2; strict++) {
        const struct gram_limits l = {.bytes_max = (size_t)16 << 20,
                                      .deadline_ns = chrono_ns(&chrono_real) + 1000000000};
        struct buf dropped;
        const struct gram_schema_options o = {.is_strict = strict, .dropped = &dropped};
        struct err e;
        uint32_t rule;
        buf_init(&dropped, 65536);
        struct gram *g = gram_new(&l);
        if (g && gram_schema(g, schema, &o, &rule, &e) &&
            gram_finish(g, gram_call(g, rule, gram_end(g)), &e))
            walk(g, text);
        gram_unref(g);
        buf_deinit(&dropped);
    }
    return 0;
}
