/* kern - every kernel of every level against ref, and how fast it is.
 *
 * Owns:      the walk over levels, hostile numbers, guarded memory, the count of cases.
 * Not:       what a kernel computes (src/cpu/ref).
 * Invariant: a case that fails prints level, kernel, parameters, the worst index and both values,
 *            enough to run it again: kern_test LEVEL NAME runs one part at one level.
 *
 *     kern_test [LEVEL] [PART]          test: parts matmul, forms, rows, attn, sample
 *     kern_test --bench [LEVEL] [TYPE] [ACT]   time: bytes, operations, share of the limits
 *
 * Thread:    one.
 */
#ifndef SHOAL_TESTS_KERN_KERN_H
#define SHOAL_TESTS_KERN_KERN_H

#include "cpu/cpu_kernels.h"

struct kern {
    const struct cpu_kernels *k, *ref;
    const char *level;
    bool is_ref;           /* the level is ref itself */
    bool is_full, is_long; /* TEST_TIER full or long; long */
    uint32_t passed, failed;
};

/* Counts a case; one that failed prints its level, then the sentence. Few of one kind are shown. */
void kern_case(struct kern *t, bool ok, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Deterministic numbers; kern_seed starts them again. */
void kern_seed(uint64_t seed);
uint32_t kern_random(void);
uint32_t kern_below(uint32_t n);
float kern_gauss(void);

/* What floats a kernel may meet. POISON: a NaN and infinities among ordinary numbers. */
enum kern_fill {
    KERN_FILL_GAUSS,
    KERN_FILL_ZERO,
    KERN_FILL_LARGE,
    KERN_FILL_DENORMAL,
    KERN_FILL_OUTLIER,
    KERN_FILL_SIGNS, /* +-1, and zeros of both signs */
    KERN_FILL_POISON,
    KERN_FILL_COUNT
};
const char *kern_fill_name(enum kern_fill f);
void kern_fill(float *x, size_t n, enum kern_fill f);
/* Blocks of random bytes whose values are all finite and below 1e5. */
void kern_fill_blocks(void *dst, enum qtype t, size_t elements);

/* Memory between guards, `shift` bytes off a 64-byte line. kern_free_all returns whether every
 * guard is whole, and frees all. */
void *kern_new(size_t size, size_t shift);
bool kern_free_all(void);

/* Index of the first number that differs in its bits (a NaN equals any NaN), or n. */
size_t kern_differs(const float *a, const float *b, size_t n);

/* The parts. */
void kern_matmul(struct kern *t);
void kern_forms(struct kern *t);
void kern_rows(struct kern *t);
void kern_attn(struct kern *t);
void kern_sample(struct kern *t);
/* Exit status; NULL: the best level, all types, the activations of auto. */
int kern_bench(const char *level, const char *type, const char *act);

/* Operations done in `turns` turns of a loop that only multiplies (kern_peak.h). */
uint64_t kern_peak_int8_avx2(uint32_t turns);
uint64_t kern_peak_float_avx2(uint32_t turns);
uint64_t kern_peak_int8_avx512(uint32_t turns);
uint64_t kern_peak_float_avx512(uint32_t turns);
uint64_t kern_peak_int8_vnni(uint32_t turns);
uint64_t kern_peak_float_vnni(uint32_t turns);

#endif
