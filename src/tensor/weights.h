/* weights - the tensors a plan wants, found in a file, checked and brought to a device.
 *
 * Owns:      struct weight, matching names and shapes, f32 copies of small vectors, loading by
 *            pieces.
 * Not:       the file's bytes (fmt), packed layouts and device memory (backends).
 * Invariant: after bind each weight of the plan has exactly one tensor of the wanted shape, and
 *            each tensor of the file is wanted, or named as one that may lie unused.
 *
 *     plan.weights[i] (name, want)  --bind-->  weight i (tensor)  --load: row pieces-->  device
 *
 * Thread:    one, at load. Progress is reported between pieces.
 * Limits:    a piece is at most TENSOR_PIECE_MAX bytes (16 rows if they are more).
 */
#ifndef SHOAL_TENSOR_WEIGHTS_H
#define SHOAL_TENSOR_WEIGHTS_H

#include "fmt/model_file.h"
#include "tensor/backend.h"
#include "tensor/plan.h"

struct weight {
    str name;
    enum weight_kind kind;
    enum qtype type; /* of what weight_load gets: the file's; F32 for vectors */
    uint32_t rows, cols, mats;
    const struct model_tensor *tensor;
    void *device; /* the backend's, NULL before weight_load and after weight_free */
};

struct weights {
    const struct model_file *file;
    struct weight *items; /* [count], item i is plan weight i */
    uint32_t count;
    uint64_t bytes; /* of all items as weight_load gets them */
    uint64_t hash;  /* xxh3 over all pieces in the order of the load; part of model_hash */
};

/* Fills w from the arena. ignored: globs of tensors that may lie unused in the file, ended by
 * NULL. ERR_FORMAT, with the names of file and tensor: missing, wrong shape, a matrix in a type
 * that is no weight, a vector that is no float, a tensor nobody asks for. */
bool weights_bind(struct weights *w, const struct plan *p, const struct model_file *f,
                  const char *const *ignored, struct arena *a, struct err *e) BASE_USE_RESULT;

/* Between pieces: bytes so far; false ends the load with ERR_CANCELLED. */
struct weights_progress {
    bool (*on_bytes)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
};
/* Reads every weight once, in file order, and hands it to b->weight_load. A vector that holds a NaN
 * or infinity is ERR_FORMAT; each error names the file. On failure what was loaded is freed again.
 * progress may be NULL. */
bool weights_load(struct weights *w, const struct backend *b, struct device *d,
                  const struct weights_progress *progress, struct err *e) BASE_USE_RESULT;
/* The memory of every weight in the same order, without reading one: for a device that counts. */
bool weights_reserve(struct weights *w, const struct backend *b, struct device *d,
                     struct err *e) BASE_USE_RESULT;
void weights_free(struct weights *w, const struct backend *b, struct device *d);

/* Rows of a piece of this weight: as many as TENSOR_PIECE_MAX holds, a multiple of
 * TENSOR_PIECE_ROWS, never past the end of a matrix. */
uint32_t weights_piece_rows(const struct weight *w);

#endif
