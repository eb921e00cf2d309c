#include "model/company.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tensor/sample.h"

#define REPLY 3u
#define ANSWERS (REPLY + 1u) /* behind the prompt, and behind each token of the reply */
#define PROMPT_MAX 300u

/* Around the borders of pages (32) and attention blocks (256), and behind the tiny windows (16). */
#define SEQS COMPANY_SEQS
static const uint32_t long_prompts[SEQS] = {33,  5,   270, 64,  1,   257, 31,
                                            100, 32, 255, 150, 256, 300};
/* The short form: few tokens, but still across a page and a block. */
static const uint32_t short_prompts[SEQS] = {33, 5, 270, 1, 2, 31, 1, 3, 1, 2, 1, 4, 1};

struct sequence {
    uint32_t prompt;
    int32_t ids[PROMPT_MAX + REPLY];
    struct sample_row pick[ANSWERS];
    float *logits; /* [ANSWERS][vocab]: the truth */
    int32_t picked[ANSWERS];
};

struct world {
    struct model_run m;
    const struct company *c;
    uint32_t count; /* sequences in use */
    struct sequence seq[SEQS];
    float *got; /* [SEQS][ANSWERS][vocab] */
    int32_t picked[SEQS][ANSWERS];
};

/* How a run cuts its work. */
struct cut {
    uint32_t chunk; /* tokens of a prompt per step; 0: each sequence its own size */
    uint32_t shift; /* ... of 1, 7, 32, all */
    bool is_joined; /* the whole reply in one step, as when drafts are checked */
};

static float *got_of(struct world *w, uint32_t s)
{
    return w->got + (size_t)s * ANSWERS * w->m.plan.vocab;
}

static void make_sequences(struct world *w)
{
    const uint32_t *prompts = w->c->is_long ? long_prompts : short_prompts;
    for (uint32_t s = 0; s < SEQS; s++) {
        struct sequence *q = &w->seq[s];
        q->prompt = prompts[s];
        for (uint32_t i = 0; i < PROMPT_MAX + REPLY; i++)
            q->ids[i] = (int32_t)(sample_uniform(s, i, 1) * (float)w->m.plan.vocab);
        for (uint32_t i = 0; i < ANSWERS; i++)
            q->pick[i] = (struct sample_row){.seed = s, .position = i, .typical_p = 1,
                                             .temperature = s % 3 ? 0.9f : 0,
                                             .top_k = s % 2 ? 40 : 0,
                                             .top_p = s % 4 ? 0.9f : 1};
        q->logits = calloc((size_t)ANSWERS * w->m.plan.vocab, sizeof(float));
    }
    w->got = calloc((size_t)SEQS * ANSWERS * w->m.plan.vocab, sizeof(float));
}

/* The next piece of a sequence, at most `room` rows; count 0: it has finished. */
static struct model_run_piece next_piece(struct world *w, uint32_t s, const struct cut *c,
                                         uint32_t room)
{
    struct sequence *q = &w->seq[s];
    uint32_t at = w->m.len[s], end = q->prompt + REPLY;
    static const uint32_t own[] = {1, 7, 32, MODEL_RUN_ROWS};
    uint32_t chunk = c->chunk ? c->chunk : own[(s + c->shift) % countof(own)];
    struct model_run_piece p = {.seq = s, .ids = q->ids + at};
    if (at < q->prompt)
        p.count = (uint32_t)base_min(chunk, q->prompt - at);
    else
        p.count = c->is_joined ? end - at : at < end;
    p.count = (uint32_t)base_min(p.count, room);
    uint32_t first = at < q->prompt ? q->prompt - 1 : at; /* first row with an answer */
    p.outs = at + p.count > first ? at + p.count - first : 0;
    uint32_t answer = first + 1 - q->prompt;
    p.logits = got_of(w, s) + (size_t)answer * w->m.plan.vocab;
    p.pick = q->pick + answer;
    p.picked = w->picked[s] + answer;
    return p;
}

/* Runs sequences [first, last) side by side until all have finished. */
static void run(struct world *w, uint32_t first, uint32_t last, const struct cut *c)
{
    for (;;) {
        struct model_run_piece pieces[SEQS];
        uint32_t count = 0, room = MODEL_RUN_ROWS;
        for (uint32_t s = first; s < last; s++) {
            pieces[count] = next_piece(w, s, c, room);
            room -= pieces[count].count;
            count += pieces[count].count > 0;
        }
        if (count == 0)
            return;
        model_run_step(&w->m, pieces, count);
    }
}

static void compare(struct world *w, uint32_t s, const char *what, uint32_t number)
{
    const struct sequence *q = &w->seq[s];
    const float *got = got_of(w, s);
    size_t vocab = w->m.plan.vocab;
    for (uint32_t i = 0; i < ANSWERS * vocab; i++)
        if (memcmp(&got[i], &q->logits[i], sizeof got[i]) != 0)
            fail_msg("%s, %s: %s %u: prompt of %u, answer %zu, id %zu: %.9g, alone %.9g",
                     w->c->path, w->m.info.numerics, what, number, q->prompt, i / vocab, i % vocab,
                     (double)got[i], (double)q->logits[i]);
    if (memcmp(w->picked[s], q->picked, sizeof q->picked) != 0)
        fail_msg("%s, %s: %s %u: prompt of %u: another token was drawn", w->c->path,
                 w->m.info.numerics, what, number, q->prompt);
}

static void clear(struct world *w)
{
    memset(w->got, 0xff, (size_t)SEQS * ANSWERS * w->m.plan.vocab * sizeof(float));
    memset(w->picked, 0xff, sizeof w->picked);
    for (uint32_t s = 0; s < MODEL_RUN_SEQS; s++)
        model_run_clear(&w->m, s);
}

static void find_truth(struct world *w)
{
    clear(w);
    for (uint32_t s = 0; s < w->count; s++) {
        run(w, s, s + 1, &(struct cut){.chunk = MODEL_RUN_ROWS});
        memcpy(w->seq[s].logits, got_of(w, s),
               (size_t)ANSWERS * w->m.plan.vocab * sizeof(float));
        memcpy(w->seq[s].picked, w->picked[s], sizeof w->picked[s]);
    }
}

/* ---- axes ---- */

static void check_chunks(struct world *w)
{
    static const uint32_t chunks[] = {1, 7, 32};
    for (size_t c = 0; c < countof(chunks); c++) {
        clear(w);
        for (uint32_t s = 0; s < w->count; s++) {
            run(w, s, s + 1, &(struct cut){.chunk = chunks[c]});
            compare(w, s, "chunks of", chunks[c]);
        }
    }
}

static void check_batches(struct world *w)
{
    const uint32_t batches[] = {(uint32_t)base_min(8, w->count), w->count};
    for (size_t b = batches[0] == batches[1]; b < countof(batches); b++) {
        clear(w);
        uint32_t count = batches[b];
        run(w, 0, count, &(struct cut){.shift = (uint32_t)b});
        for (uint32_t s = 0; s < count; s++)
            compare(w, s, "batch of", count);
    }
    clear(w);
    run(w, 0, w->count, &(struct cut){.chunk = MODEL_RUN_ROWS, .is_joined = true});
    for (uint32_t s = 0; s < w->count; s++)
        compare(w, s, "reply in one step, batch of", w->count);
}

/* All at once, each cut in its own way: the short form of the two above. */
static void check_company(struct world *w, const struct cut *c)
{
    clear(w);
    run(w, 0, w->count, c);
    for (uint32_t s = 0; s < w->count; s++)
        compare(w, s, c->is_joined ? "reply in one step, batch of" : "mixed batch of", w->count);
}

/* What a sequence's own pages held is of no use any more. */
static void scribble(struct world *w, uint32_t seq)
{
    struct model_run *m = &w->m;
    struct err e;
    model_run_clear(m, seq);
    for (uint32_t g = 0; g < m->layout->groups_count; g++) {
        uint8_t *page = malloc(m->layout->page_size[g]);
        memset(page, 0x3c, m->layout->page_size[g]);
        for (uint32_t i = 0; i * KV_PAGE_TOKENS < PROMPT_MAX; i++) {
            struct kv_ref at = {.group = g, .index = m->pages[g][seq * MODEL_RUN_PAGES + i]};
            if (!m->backend->kv_set(m->device, at, page, &e))
                fail_msg("%s", e.text);
        }
        free(page);
    }
}

/* Behind find_truth: sequence s is continued from a prefix that lies in another one's pages. */
static void check_prefixes(struct world *w)
{
    const uint32_t other = MODEL_RUN_SEQS - 1;
    for (uint32_t s = 0; s < w->count; s++) {
        const struct sequence *q = &w->seq[s];
        model_run_restore(&w->m, s, other, q->prompt);
        for (int how = 0; how < 2; how++) {
            uint32_t prefix = how ? q->prompt / 2 : q->prompt - 1;
            if (prefix == 0)
                continue;
            scribble(w, s);
            memset(got_of(w, s), 0xff, (size_t)ANSWERS * w->m.plan.vocab * sizeof(float));
            memset(w->picked[s], 0xff, sizeof w->picked[s]);
            if (how)
                model_run_restore(&w->m, other, s, prefix);
            else
                model_run_fork(&w->m, other, s, prefix);
            run(w, s, s + 1, &(struct cut){.chunk = MODEL_RUN_ROWS});
            compare(w, s, how ? "restored prefix of" : "forked prefix of", prefix);
        }
    }
}

static struct world *world_open(const struct company *c, uint32_t threads)
{
    struct world *w = calloc(1, sizeof *w);
    struct model_run_options o = {.backend = c->backend, .level = c->level, .act = c->act,
                                  .threads = threads, .is_kv_int8 = c->is_kv_int8};
    w->c = c;
    w->count = c->count;
    model_run_open(&w->m, c->path, &o);
    make_sequences(w);
    return w;
}

static void world_close(struct world *w)
{
    for (uint32_t s = 0; s < SEQS; s++)
        free(w->seq[s].logits);
    free(w->got);
    model_run_close(&w->m);
    free(w);
}

/* The reply in one step, cut otherwise, on two threads: the truth is that of one. */
static void check_threads(const struct company *c, const struct world *one)
{
    struct world *two = world_open(c, 2);
    for (uint32_t s = 0; s < SEQS; s++) {
        memcpy(two->seq[s].logits, one->seq[s].logits,
               (size_t)ANSWERS * one->m.plan.vocab * sizeof(float));
        memcpy(two->seq[s].picked, one->seq[s].picked, sizeof one->seq[s].picked);
    }
    if (c->is_long)
        check_batches(two);
    else
        check_company(two, &(struct cut){.shift = 1, .is_joined = true});
    world_close(two);
}

void company_check(const struct company *c)
{
    must(c->count && c->count <= SEQS);
    struct world *one = world_open(c, 1);
    find_truth(one);
    check_prefixes(one);
    if (c->is_long) {
        check_chunks(one);
        check_batches(one);
    } else {
        check_company(one, &(struct cut){.shift = 0});
    }
    if (!c->is_one_thread)
        check_threads(c, one);
    world_close(one);
}

bool company_is_long(void)
{
    const char *tier = getenv("TEST_TIER");
    return tier && strcmp(tier, "long") == 0;
}
