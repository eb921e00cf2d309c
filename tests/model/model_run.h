/* model_run - a model on a backend without an engine: tokens in, logits out.
 *
 * Owns:      the whole chain file, hparams, plan, weights, device, pages; which page belongs to
 *            which sequence (a fixed shuffle, so that nothing relies on their order).
 * Not:       scheduling, sampling policy: a test says exactly which rows make a step.
 * Invariant: sequences only grow, by model_run_step; model_run_clear starts one again. Pages behind
 *            a window are taken away before each step, as the engine may do.
 * Thread:    one.
 * Limits:    MODEL_RUN_* below. Failures end the test with a sentence.
 */
#ifndef SHOAL_TESTS_MODEL_RUN_H
#define SHOAL_TESTS_MODEL_RUN_H

#include "arch/arch.h"
#include "tensor/weights.h"

#define MODEL_RUN_SEQS 16u
#define MODEL_RUN_ROWS 512u
#define MODEL_RUN_TOKENS 2048u /* per sequence */
#define MODEL_RUN_PAGES (MODEL_RUN_TOKENS / KV_PAGE_TOKENS)

struct model_run {
    struct model_file *file;
    struct hparams *hp;
    struct arena arena;
    struct plan plan;
    struct weights weights;
    const struct backend *backend;
    struct device *device;
    struct prepared *prepared;
    struct kv_layout *layout;
    struct device_info info;
    uint32_t *pages[KV_GROUPS_MAX]; /* [MODEL_RUN_SEQS][MODEL_RUN_PAGES] */
    struct kv_copy copies[KV_GROUPS_MAX * MODEL_RUN_SEQS];
    uint32_t copies_count;
    uint32_t len[MODEL_RUN_SEQS];
};

/* The tiny models: every name that tests/golden/tiny holds a truth about, in order; count of them.
 * A new family is tested from the moment its golden is there. */
size_t model_run_tiny(const char *const **names);

struct model_run_options {
    const char *backend; /* NULL: what TEST_BACKEND names, else the CPU */
    const char *level; /* NULL: the best */
    enum act act;
    uint32_t threads; /* 0: 1 */
    bool is_kv_int8;  /* else what goes with act */
    uint32_t upper;   /* so many last layers on a second device; 0: one device */
};

void model_run_open(struct model_run *m, const char *path, const struct model_run_options *o);
void model_run_close(struct model_run *m);
void model_run_clear(struct model_run *m, uint32_t seq);
/* `to` becomes a copy of the first `tokens` tokens of `from`: whole pages by reference, the last
 * one copied in the next step. */
void model_run_fork(struct model_run *m, uint32_t from, uint32_t to, uint32_t tokens);
/* The same with all pages read out, and written into pages of its own: a tier's restore. */
void model_run_restore(struct model_run *m, uint32_t from, uint32_t to, uint32_t tokens);

/* Appends count tokens to a sequence; logits, if not NULL, gets those of the last `outs` of them:
 * [outs][vocab]. pick, if not NULL, says how they are sampled; ids gets what was drawn. */
struct model_run_piece {
    uint32_t seq, count, outs;
    const int32_t *ids;
    float *logits;
    const struct sample_row *pick; /* [outs] */
    int32_t *picked;               /* [outs] */
};
/* All pieces in one step; different sequences, in any order. */
void model_run_step(struct model_run *m, const struct model_run_piece *pieces, uint32_t count);

/* The id of the largest of a row's logits, the first among equals. */
uint32_t model_run_argmax(const float *logits, uint32_t vocab);

#endif
