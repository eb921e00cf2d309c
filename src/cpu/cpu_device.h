/* cpu_device - what the parts of the CPU backend share: the device and a prepared plan.
 *
 * Owns:      struct device, struct prepared, how a view of a value becomes pointers.
 * Not:       kernels (cpu_kernels), the functions of struct backend (cpu_backend).
 * Invariant: all memory is taken at load from device.mem; a step allocates nothing. A region is one
 *            thread_parallel_for; how work is cut into chunks changes no bit of the result.
 *
 *     cpu_backend   open, weights, pages, prepare, submit
 *       cpu_run     the op list: row ops, values, regions
 *         cpu_mul      packed inputs, matmul, experts
 *         cpu_attend   page writes, attention blocks
 *         cpu_answer   sampling and lists
 *
 * Thread:    engine thread; bodies of regions on pool threads.
 * Limits:    step_limits, memory_max.
 */
#ifndef SHOAL_CPU_CPU_DEVICE_H
#define SHOAL_CPU_CPU_DEVICE_H

#include <stdatomic.h>

#include "base/mem.h"
#include "base/thread.h"
#include "cpu/cpu_kernels.h"
#include "tensor/plan.h"
#include "tensor/weights.h"

/* weight.device. A matrix: packed by mm, mats of them mat_size apart; a vector: f32 at data. */
struct cpu_weight {
    const struct cpu_matmul *mm;
    size_t mat_size;
    size_t rows_loaded; /* pieces come in order */
    uint8_t *data;
};

struct mul_item; /* cpu_mul.c */

struct device {
    struct cpu_kernels k;
    struct mem mem;
    struct thread_pool *pool; /* NULL: one thread */
    uint32_t workers;
    enum act act; /* ACT_AUTO: by type */
    bool has_kv;
    struct kv_layout layout;
    uint8_t *pages[KV_GROUPS_MAX];
    uint32_t pages_count[KV_GROUPS_MAX];
    _Atomic uint64_t ops_done; /* the heartbeat reads it from another thread */
};

/* The packed input that was made last: later matmuls of the same view and form read it too. */
struct cpu_packed {
    struct view view;
    bool is_rows; /* row forms side by side, for experts, instead of panels */
    bool is_valid;
    uint8_t *data;
};

/* (row, rank) pairs of a step by expert. */
struct cpu_grouping {
    uint16_t ids;    /* the value it was made from, or TENSOR_NONE */
    uint32_t *first; /* [experts + 1] into pair */
    uint32_t *pair;  /* row * k + rank */
};

struct cpu_answer {
    uint32_t lanes;    /* rows sampled at the same time */
    uint8_t *scratch;  /* [lanes] of scratch_size: work, then the kernels' scratch */
    size_t scratch_size;
    int32_t *ids, *top_ids, *raw_ids;
    float *logprob, *top_val, *raw_val, *lse;
};

struct prepared {
    struct device *d;
    const struct plan *plan;
    struct weight *weights;
    struct step_limits limits;
    float **slot;               /* [plan.slots] */
    struct cpu_packed packed[CPU_FORM_COUNT];
    uint8_t *expert_panels;     /* joined inputs of experts */
    struct mul_item *expert_items; /* [experts] of cpu_mul */
    struct cpu_grouping group;
    float **columns;            /* output pointers of matmuls */
    uint16_t *rope_table;       /* [ops] index of the table an op reads */
    struct cpu_rope_table *ropes;
    uint32_t ropes_count;
    uint32_t *seq_first;        /* [seqs_max + 1] first row of each sequence of the step */
    uint8_t **row_page;         /* [rows_max] */
    uint32_t *unit_first;       /* [seqs_max + 1] attention units before each sequence */
    float *states;              /* attention states of blocks that run at the same time */
    size_t states_size;         /* floats */
    uint8_t *scratch;           /* [workers] of scratch_size */
    size_t scratch_size;
    float *pooled;
    struct cpu_answer answer;
    const struct step *step;    /* while submit runs */
};

struct cpu_rope_table {
    const struct op_rope *op; /* the first that needs it */
    uint16_t divisors;        /* its weight, or TENSOR_NONE */
    uint32_t pairs;
    float *freqs;             /* [pairs] */
    float (*table)[2];        /* [rows_max][pairs] */
};

/* Rows of this step of a value or view. */
uint32_t cpu_run_rows(const struct prepared *p, uint16_t value);
struct cpu_view cpu_run_view(const struct prepared *p, struct view v);
float *cpu_run_out(const struct prepared *p, uint16_t value);
/* f32 vector of a plan weight; NULL for TENSOR_NONE. */
const float *cpu_run_vector(const struct prepared *p, uint16_t weight);
static inline const struct cpu_weight *cpu_run_weight(const struct prepared *p, uint16_t weight)
{
    return (const struct cpu_weight *)p->weights[weight].device;
}
static inline uint8_t *cpu_run_scratch(const struct prepared *p, uint32_t worker)
{
    return p->scratch + p->scratch_size * worker;
}

/* One region: chunks over the pool, the caller alone if there is one. */
static inline void cpu_run_region(const struct prepared *p, const struct thread_job *job)
{
    thread_parallel_for(p->d->pool, job);
}

/* Sizes and memory that an op kind needs of prepare, and running it. Each returns the number of ops
 * it has done (a group of matmuls of one input counts as one region). */
bool cpu_mul_prepare(struct prepared *p, struct err *e) BASE_USE_RESULT;
void cpu_mul_begin(struct prepared *p); /* of a step: nothing is packed */
uint32_t cpu_mul_run(struct prepared *p, uint32_t op_index);
uint32_t cpu_mul_run_experts(struct prepared *p, uint32_t op_index);

bool cpu_attend_prepare(struct prepared *p, struct err *e) BASE_USE_RESULT;
void cpu_attend_begin(struct prepared *p);
void cpu_attend_write(struct prepared *p, const struct op *o);
void cpu_attend_run(struct prepared *p, const struct op *o);

bool cpu_answer_prepare(struct prepared *p, struct err *e) BASE_USE_RESULT;
uint32_t cpu_answer_run(struct prepared *p, uint32_t op_index);
void cpu_answer_out(const struct prepared *p, struct step_out *out);

bool cpu_run_prepare(struct prepared *p, struct err *e) BASE_USE_RESULT;
void cpu_run_plan(struct prepared *p, const struct step *s);

#endif
