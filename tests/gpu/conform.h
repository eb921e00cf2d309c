/* conform - one small plan run by two backends on the same weights and the same steps.
 *
 * Owns:      random weights of any type, a plan whose answer is the op under test, its steps.
 * Invariant: the input is a table of random rows that op embed reads, so any values can be fed; the
 *            answer comes back through logits_row. Everything follows from one seed.
 */
#ifndef SHOAL_TESTS_GPU_CONFORM_H
#define SHOAL_TESTS_GPU_CONFORM_H

#include "tensor/plan.h"
#include "tensor/weights.h"

#define CONFORM_ROWS 130u /* rows of the input table and the most rows of a step */
#define CONFORM_LONG (68 * CONFORM_ROWS) /* positions of a sequence, at most */

/* Appends the op under test behind x and returns what is compared. */
typedef struct view conform_build(struct plan *p, struct view x, const void *arg);

struct conform_case {
    const char *name;
    conform_build *build;
    const void *arg;
    uint32_t width;  /* of the input */
    enum qtype type; /* of matrices named "w*"; the others are F32 */
    float scale;     /* of the input's normal values */
    enum kv_type kv; /* of pages */
};

struct conform {
    struct arena arena;
    struct plan plan;
    struct weight *weights;
    void **bytes; /* file layout of each weight */
    enum kv_type kv;
    uint32_t pages;
};

bool conform_init(struct conform *c, const struct conform_case *k, const struct backend *b,
                  uint64_t seed, struct err *e);
void conform_deinit(struct conform *c);

/* A device with the weights loaded and the plan prepared. Weights are copied: two devices may hold
 * the same case. */
struct conform_run {
    const struct backend *b;
    struct device *d;
    struct prepared *p;
    struct weight *weights;
};
bool conform_open(struct conform_run *r, struct conform *c, const struct backend *b,
                  const struct device_options *o, struct err *e);
void conform_close(struct conform_run *r);

/* Positions [first, first + rows) of sequence `seq`, in its own pages; their input is the table
 * over and over. out[rows][vocab]. */
bool conform_step(struct conform_run *r, const struct conform *c, uint32_t first, uint32_t rows,
                  uint32_t seq, float *out, struct err *e);

/* One step for two: row `first` of sequence 1, which is alone in it, and beside it the rows from 0
 * on of sequence 0. out[1 + rows][vocab]. */
bool conform_beside(struct conform_run *r, const struct conform *c, uint32_t first, uint32_t rows,
                    float *out, struct err *e);

/* How the rows are sampled, and what is added to their logits first. */
struct conform_pick {
    struct sample_row rows[CONFORM_ROWS];
    const struct logit_adjust *adjust;
    uint32_t adjust_count;
};
/* All rows once; ids[CONFORM_ROWS] gets what was drawn. */
bool conform_sample(struct conform_run *r, const struct conform_pick *pick, int32_t *ids,
                    struct err *e);

#endif
