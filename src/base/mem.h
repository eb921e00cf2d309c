/* mem - the memory of one model: named, counted, and never above a limit fixed at load.
 *
 * Owns:      the blocks it hands out, their names, the running sum.
 * Not:       what the limit should be (engine/budget); memory of requests (arena) and texts (buf).
 * Invariant: bytes_used <= bytes_max. Blocks are zero and aligned to 64 bytes, from 2 MiB on to
 *            2 MiB with huge pages advised. Pages become resident when they are first written,
 *            so a large block costs address space until it is used. A block never moves.
 * Thread:    one thread at a time (the one that loads or closes the model).
 * Limits:    bytes_max; sizes count as rounded (64 bytes, large blocks 4 KiB). Past the limit the
 *            answer is a sentence that holds the arithmetic.
 */
#ifndef SHOAL_BASE_MEM_H
#define SHOAL_BASE_MEM_H

#include "base/buf.h"
#include "base/err.h"

#define MEM_ALIGN ((size_t)64)

struct mem_block;
struct mem {
    struct mem_block *blocks; /* newest first */
    size_t bytes_used, bytes_peak, bytes_max;
    uint32_t count;
    bool is_counting;
};

void mem_init(struct mem *m, size_t bytes_max);
/* Sums and refusals as of a real one, without the memory: a block of 2 MiB or more is address
 * space that reads as zeros and must not be written. */
void mem_init_counting(struct mem *m, size_t bytes_max);
void mem_deinit(struct mem *m); /* frees every block; also after a zeroed struct */

/* size zeroed bytes under a name ("weights", "kv", "scratch"; at most 31 bytes are kept; several
 * blocks may share one). NULL with ERR_MEMORY: "memory: kv needs 3.0 GB, but 5.5 GB of 8.0 GB
 * are taken (weights 5.0 GB, scratch 0.5 GB)". Size 0 gives a valid pointer. */
void *mem_new(struct mem *m, const char *name, size_t size, struct err *e) BASE_USE_RESULT;
/* count * size with overflow check. */
void *mem_new_array(struct mem *m, const char *name, size_t count, size_t size,
                    struct err *e) BASE_USE_RESULT;
/* Gives back one block; NULL is allowed, a pointer that mem_new did not return is our mistake. */
void mem_free(struct mem *m, void *p);

#endif
