/* bench - how fast a model runs here, beside what the memory can deliver; for `shoal bench`.
 *
 * Owns:      the tests (prompt and generation at a depth, for a batch), their timing, the probe of
 *            memory bandwidth, the arithmetic of bytes and operations per step.
 * Not:       flags (cmd_bench), printing (bench_print), load (engine).
 * Invariant: no tokenising and no sampling but argmax; token ids come from a seed. Each test runs
 *            once unmeasured. A repetition starts from the same depth: its pages are written again.
 *            GB/s = (weights that a step reads + K and V that it attends to) / time of a step,
 *            weights as they lie in the file; of experts the expected number of different ones.
 *            Operations of attention are those of a token in the middle of the test.
 * Thread:    main, which is the engine thread of this process.
 * Limits:    BENCH_TESTS_MAX tests, BENCH_REPS_MAX repetitions, BENCH_BATCH_MAX sequences.
 */
#ifndef SHOAL_CLI_BENCH_H
#define SHOAL_CLI_BENCH_H

#include "cli/cmd.h"
#include "base/mem.h"
#include "cli/model_plan.h"
#include "engine/budget.h"

#define BENCH_LIST_MAX 16
#define BENCH_REPS_MAX 100
#define BENCH_BATCH_MAX 512
#define BENCH_TESTS_MAX (BENCH_LIST_MAX * (BENCH_LIST_MAX + 1))

struct bench_test {
    bool is_prompt;  /* tokens rows of one sequence; else tokens steps of batch rows */
    uint32_t tokens, depth, batch;
    double rates[BENCH_REPS_MAX]; /* tokens/s of each repetition */
    uint32_t reps;
    double mean, sd;
    double step_bytes; /* read by one step; 0 for prompts */
    double token_ops;  /* multiplications and additions of matmuls for a token */
    double attend_ops; /* the same of attention, over what lies before the token */
};

struct bench_probe {
    double gb_s;   /* best of several */
    uint64_t size; /* bytes read each time */
};

struct bench {
    struct cmd_context *c;
    struct library_entry model;
    struct model_plan *plan;
    struct device *device;
    struct device_info info;
    char machine[64]; /* the name of the CPU, or of the GPU */
    char level[16];   /* of the kernels, as machine_level_name; "": the best there is */
    struct prepared *prepared;
    struct budget budget;
    struct step_limits limits;
    struct mem mem;
    struct arena arena;
    uint32_t prompt, generated, reps;
    uint32_t batches[BENCH_LIST_MAX], depths[BENCH_LIST_MAX];
    uint32_t batches_count, depths_count;
    struct bench_test tests[BENCH_TESTS_MAX];
    uint32_t tests_count;
    struct bench_probe before, after;
    int64_t load_ns;    /* from the open file to the first step */
    int64_t weights_ns; /* of it: reading and packing the weights */
};

/* Loads the model for the largest test, makes the list of tests. */
bool bench_run_open(struct bench *b, struct err *e) BASE_USE_RESULT;
/* Probe, all tests, probe. Progress on stderr. ERR_DEVICE and what a step can fail with. */
bool bench_run_all(struct bench *b, struct err *e) BASE_USE_RESULT;
void bench_run_close(struct bench *b); /* also after a failed open */

/* All workers of a pool of so many threads read size bytes, with prefetch; best of 6. */
bool bench_probe_read(struct bench_probe *p, uint64_t size, uint32_t threads,
                      struct err *e) BASE_USE_RESULT;
/* Multiplications and additions, 10^9 a second, of the CPU's int8 kernels on 256 rows of a prompt
 * with so many threads; half a second. What a prompt can reach at most. */
bool bench_probe_int8(double *gops, uint32_t threads, struct err *e) BASE_USE_RESULT;
/* The same that a token of a prompt takes in the matmuls of m. */
double bench_run_prompt_ops(const struct model_plan *m);

void bench_print_text(struct buf *out, const struct bench *b);
void bench_print_json(struct buf *out, const struct bench *b);

#endif
