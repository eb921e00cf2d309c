/* Masks per token on a real vocabulary: what one costs, and the same tokens for other libraries.
 *
 * usage: grammar_bench MODEL.gguf OUT CASES...
 *   CASES: files of lines "s SCHEMA" and "+ INSTANCE" (tests/golden/grammar, tools.txt)
 * Everything is done ROUNDS times with an empty cache; the least of each mask's times counts, since
 * a machine with other work would else be measured. Prints one JSON line. OUT/vocab: the bytes of
 * each token in hexadecimal; OUT/cases: for each instance its schema, then its token ids. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chrono.h"
#include "fmt/model_file.h"
#include "grammar/gram_mask.h"
#include "grammar/gram_schema.h"
#include "text/tok.h"

enum { TIMES_MAX = 1 << 18, ROUNDS = 5 };

struct times {
    int64_t *ns; /* least of the rounds so far */
    size_t count;
};

static void fail(const char *what, const struct err *e)
{
    fprintf(stderr, "%s: %s\n", what, e ? e->text : "no memory");
    exit(1);
}

static void add(struct times *t, int64_t begin_ns)
{
    int64_t ns = chrono_ns(&chrono_real) - begin_ns;
    if (t->count == TIMES_MAX)
        fail("times", &(struct err){.text = "too many"});
    if (t->ns[t->count] == 0 || ns < t->ns[t->count])
        t->ns[t->count] = ns;
    t->count++;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void show(const char *name, struct times *t)
{
    static const double at[] = {0.5, 0.99, 0.999};
    static const char *const names[] = {"median", "p99", "p999"};
    double sum = 0;
    qsort(t->ns, t->count, sizeof *t->ns, by_size);
    for (size_t i = 0; i < t->count; i++)
        sum += (double)t->ns[i];
    printf("\"%s\":{\"count\":%zu,\"mean_us\":%.2f", name, t->count, sum / 1e3 / (double)t->count);
    for (size_t i = 0; i < countof(at); i++)
        printf(",\"%s_us\":%.2f", names[i],
               (double)t->ns[(size_t)(at[i] * (double)(t->count - 1))] / 1e3);
    printf(",\"max_us\":%.2f}", (double)t->ns[t->count - 1] / 1e3);
}

static void write_vocab(const struct vocab *v, const char *out)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/vocab", out);
    FILE *f = fopen(path, "w");
    if (!f)
        fail(path, &(struct err){.text = "cannot be written"});
    for (int32_t id = 0; vocab_has(v, id); id++) {
        str b = vocab_bytes(v, id);
        for (size_t i = 0; i < b.len; i++)
            fprintf(f, "%02x", (uint8_t)b.p[i]);
        fprintf(f, "%s\n", vocab_is_eog(v, id) ? " e" : vocab_is_control(v, id) ? " c" : "");
    }
    fclose(f);
}

static struct gram *compile(str schema, struct times *t, struct err *e)
{
    const struct gram_limits l = {.bytes_max = (size_t)64 << 20};
    const struct gram_schema_options o = {.is_strict = true};
    int64_t begin = chrono_ns(&chrono_real);
    struct gram *g = gram_new(&l);
    uint32_t rule;
    if (!g || !gram_schema(g, schema, &o, &rule, e) ||
        !gram_finish(g, gram_call(g, rule, gram_end(g)), e)) {
        gram_unref(g);
        return NULL;
    }
    add(t, begin);
    return g;
}

struct bench {
    struct tok *tok;
    struct gram_mask *cache;
    const struct gram_index *index;
    struct times compiles, masks, again;
    unsigned refused;
    FILE *cases;
};

/* Every token of the instance: mask, then the token; false: it is not accepted. */
static bool run(struct bench *b, struct gram *g, const struct tok_ids *ids, struct times *t)
{
    static uint32_t mask[1 << 17];
    struct gram_state s, next;
    struct err e;
    bool ok = true;
    if (!gram_mask_open(b->cache, g, &s, &e))
        fail("open", &e);
    for (size_t i = 0; ok && i < tok_ids_count(ids); i++) {
        int32_t id = tok_ids_data(ids)[i];
        int64_t begin = chrono_ns(&chrono_real);
        gram_mask(b->cache, &s, mask);
        add(t, begin);
        ok = gram_mask_try(b->cache, &s, id, &next) && mask[id / 32] >> (id % 32) & 1;
        if (ok)
            s = next;
    }
    ok = ok && gram_mask_can_end(b->cache, &s);
    gram_mask_close(b->cache, &s);
    return ok;
}

static void one(struct bench *b, str schema, struct gram *g, str instance)
{
    struct tok_ids ids;
    struct err e;
    tok_ids_init(&ids, 1 << 16);
    if (!tok_encode_str(b->tok, instance, false, false, &ids, &e))
        fail("tokens", &e);
    size_t masks = b->masks.count;
    if (run(b, g, &ids, &b->masks) && run(b, g, &ids, &b->again)) {
        fprintf(b->cases, "%.*s\n", STR_ARG(schema));
        for (size_t i = 0; i < tok_ids_count(&ids); i++)
            fprintf(b->cases, "%d ", tok_ids_data(&ids)[i]);
        fprintf(b->cases, "\n");
    } else {
        b->masks.count = masks;
        b->refused++;
        fprintf(stderr, "not accepted: %.*s\n", STR_ARG(instance));
    }
    tok_ids_deinit(&ids);
}

static void file(struct bench *b, const char *path)
{
    static char line[1 << 19], schema[1 << 19];
    FILE *f = fopen(path, "r");
    struct gram *g = NULL;
    struct err e;
    if (!f)
        fail(path, &(struct err){.text = "cannot be read"});
    while (fgets(line, sizeof line, f)) {
        size_t len = strcspn(line, "\n");
        line[len] = 0;
        if (line[0] == 's') {
            memcpy(schema, line + 2, len - 1);
            gram_unref(g);
            g = compile(str_of(schema), &b->compiles, &e);
            if (!g)
                fail(schema, &e);
        } else if (line[0] == '+' && g) {
            one(b, str_of(schema), g, str_of(line + 2));
        }
    }
    gram_unref(g);
    fclose(f);
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    struct model_file *m;
    struct err e;
    char path[4096];
    if (argc < 4)
        fail("usage", &(struct err){.text = "grammar_bench MODEL.gguf OUT CASES..."});
    if (!model_file_open(&m, argv[1], &e) || !tok_open(&b.tok, m, &e))
        fail(argv[1], &e);
    const struct vocab *v = tok_vocab(b.tok);
    struct times *const all[] = {&b.compiles, &b.masks, &b.again};
    for (size_t i = 0; i < countof(all); i++)
        all[i]->ns = calloc(TIMES_MAX, sizeof(int64_t));
    write_vocab(v, argv[2]);
    int64_t begin = chrono_ns(&chrono_real);
    struct gram_index *x = gram_index_new(v);
    double index_ms = (double)(chrono_ns(&chrono_real) - begin) / 1e6;
    const struct gram_mask_options o = {.index = x, .homes_max = 64,
                                        .masks_bytes = (size_t)32 << 20};
    b.index = x;
    snprintf(path, sizeof path, "%s/cases", argv[2]);
    for (int round = 0; x && round < ROUNDS; round++) {
        gram_mask_free(b.cache);
        b.cache = gram_mask_new(&o);
        b.cases = fopen(path, "w");
        if (!b.cache || !b.cases)
            fail(path, NULL);
        b.compiles.count = b.masks.count = b.again.count = b.refused = 0;
        for (int i = 3; i < argc; i++)
            file(&b, argv[i]);
        fclose(b.cases);
    }
    printf("{\"name\":\"shoal\",\"vocab\":%u,\"index_ms\":%.1f,\"refused\":%u,", vocab_count(v),
           index_ms, b.refused);
    show("compile", &b.compiles);
    printf(",");
    show("mask", &b.masks);
    printf(",");
    show("mask_again", &b.again);
    struct gram_mask_stats st = gram_mask_stats(b.cache);
    printf(",\"hits\":%.3f}\n", (double)st.hits / (double)st.masks);
    gram_mask_free(b.cache);
    gram_index_free(x);
    tok_close(b.tok);
    model_file_close(m);
    for (size_t i = 0; i < countof(all); i++)
        free(all[i]->ns);
    return b.refused != 0;
}
