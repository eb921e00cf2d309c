/* cuda_device - what the parts of the CUDA backend share: the device, weights, a prepared plan.
 *
 * Owns:      struct device, struct prepared, device memory with its count and limit.
 * Not:       the driver (cuda_driver), kernels (.cu), the functions of struct backend.
 * Invariant: all device memory is taken at load. Steps of few rows run as graphs, one per shape,
 *            kept in a small table. After a device error is_lost stays set and every call fails.
 *
 *     cuda_backend   open, close, pages        cuda_weight   pieces of weights
 *     cuda_step      prepare, submit, wait     cuda_run cuda_mul cuda_attend   op -> launches
 *
 * Thread:    engine thread.
 * Limits:    step_limits, memory_max, CUDA_GRAPHS_MAX.
 */
#ifndef SHOAL_CUDA_CUDA_DEVICE_H
#define SHOAL_CUDA_CUDA_DEVICE_H

#include "cuda/cuda_kernels.h"
#include "tensor/plan.h"
#include "tensor/weights.h"

#define CUDA_GRAPHS_MAX 64
#define CUDA_GRAPH_ROWS_MAX 256 /* more rows: the launches cost nothing beside the work */
/* Fewer meet a weight: stream.cuh is faster. */
#define CUDA_GEMM_COLUMNS_MIN 9
#define CUDA_GEMM_BF16_COLUMNS_MIN 1
#define CUDA_STAGES 2

/* A pinned piece of host memory on its way to the device. */
struct cuda_stage {
    void *host;
    cuda_ptr device;
    cuda_event done;
};

struct cuda_weight {
    cuda_ptr p;
    size_t size, mat_size;
    uint32_t format, kp; /* kp: inputs rounded up to a record */
    bool is_vector;
};

struct device {
    const struct cuda_driver *driver;
    struct cuda_driver counting; /* driver points here while nothing is to be taken */
    struct cuda_kernels k;
    cuda_device_id id;
    cuda_context context;
    cuda_stream stream;
    struct cuda_stage stages[CUDA_STAGES];
    size_t stage_size;
    uint32_t stage_next;
    uint64_t memory_max, memory_used;
    char name[64];
    int major, minor, sm_count;
    bool is_lost, has_kv;
    struct kv_layout layout;
    cuda_ptr pages[KV_GROUPS_MAX];
    uint32_t pages_count[KV_GROUPS_MAX];
    struct prepared *prepared; /* list */
};

/* What decides the launches of a step; a graph serves all steps of its shape. */
struct cuda_shape {
    uint32_t rows, outs, seqs, page_stride, flags;
    uint32_t singles; /* rows at the front that are their sequences' only ones */
};

struct cuda_graph_entry {
    struct cuda_shape shape;
    cuda_graph_exec exec;
    uint64_t used; /* step number, for the oldest to go */
};

/* Byte offsets in the step buffer; host and device copies are alike. */
struct cuda_inputs {
    size_t ids, pos, aux, seq, out_rows, len, sample, pages[KV_GROUPS_MAX], mask, adjust;
    size_t size;
};

/* Bytes of the widest packed input, the most rows of one, the most experts. */
struct cuda_sizes {
    size_t elements, floats, part, pairs, experts, image, turned, beside;
    size_t glu_elements, glu_image; /* of act_q[1], act_image[1] */
};

struct prepared {
    struct prepared *next;
    struct device *d;
    const struct plan *plan;
    struct weight *weights;
    struct step_limits limits;
    cuda_ptr *slots;                     /* [slots_count] */
    cuda_ptr *freqs;                     /* [ops_count] of ropes, else 0 */
    /* Packed inputs; [1]: what a glu of BF16 leaves, whose own input is in [0]; act_f: a view
     * without gaps. */
    cuda_ptr act_q[2], act_d, act_s, act_f;
    cuda_ptr act_image[2]; /* the same as an image; 0: no step is that wide */
    cuda_ptr turned;                     /* queries for pages of int8; 0: others */
    cuda_ptr beside;                     /* up projections of another type than the gate; 0: none */
    cuda_ptr part, work, pair, adjusted, best, sums; /* best, sums: of logits, for sampling */
    size_t part_size;
    struct cuda_sizes sizes;
    uint8_t *in_host, *out_host;
    cuda_ptr in, out;
    size_t in_size, out_size;
    struct cuda_graph_entry graphs[CUDA_GRAPHS_MAX];
    uint64_t steps;
    /* the step at hand */
    struct cuda_shape shape;
    struct cuda_inputs at;
    struct view packed; /* input in act_q .. act_s, and its form */
    uint32_t packed_form, packed_in; /* in: of act_q, act_image */
    bool has_packed;
    struct cuda_sort_args sorted; /* the last sort of pairs, of this value; ids 0: none */
    uint16_t sorted_value;
};

/* Byte offsets in the answer buffer for these limits. */
struct cuda_answers {
    size_t ids, logprob, top_ids, top_val, raw_ids, raw_val, lse, pooled, size;
};
struct cuda_answers cuda_step_answers(const struct prepared *p);

/* ---- cuda_backend.c ---- */
bool cuda_backend_alloc(struct device *d, const char *what, size_t size, cuda_ptr *out,
                        struct err *e);
void cuda_backend_free(struct device *d, cuda_ptr p, size_t size);
/* Notes that the device is lost when r is a device error. */
bool cuda_backend_check(struct device *d, cuda_result r, const char *what, struct err *e);

/* A layer's part of a page: K [head][token][dk], then V, with int8 each head's scales behind its
 * codes; and how many bytes it has. */
cuda_ptr cuda_backend_layer_page(const struct device *d, const struct kv_layer *l, uint32_t page);
size_t cuda_backend_layer_size(const struct device *d, const struct kv_layer *l);
bool cuda_backend_copy_page(struct device *d, const struct kv_copy *c, struct err *e);

/* ---- cuda_weight.c ---- */
bool cuda_weight_load(struct device *d, struct weight *w, size_t row_first, size_t rows,
                      const void *src, struct err *e);
void cuda_weight_free(struct device *d, struct weight *w);

/* ---- cuda_step.c ---- */
bool cuda_step_prepare(struct device *d, const struct plan *p, struct weight *weights,
                       const struct step_limits *m, struct prepared **out, struct err *e);
bool cuda_step_submit(struct device *d, struct prepared *p, const struct step *s, struct err *e);
bool cuda_step_wait(struct device *d, struct prepared *p, struct step_out *out, struct err *e);
bool cuda_step_logits(struct device *d, struct prepared *p, uint32_t out_row, float *dst,
                      struct err *e);
void cuda_step_free(struct device *d, struct prepared *p);

/* ---- cuda_run.c ---- */
/* Launches all ops of the plan for the shape at hand. */
bool cuda_run_plan(struct prepared *p, struct err *e);

#endif
