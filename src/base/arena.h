/* arena - bump memory with a limit, freed in one call.
 *
 * Owns:      its blocks. One arena is one lifetime: a request, a parse, a load.
 * Not:       growing byte strings (buf), model memory under the budget (mem).
 * Invariant: bytes_used <= bytes_max. What was handed out stays at its address until reset or
 *            deinit.
 *
 *     block --> block --> block        each: header | used ... | free
 *
 * Thread:    one owner at a time; it may move with its request.
 * Limits:    bytes_max. Past it (or out of memory) every call returns NULL, is_full stays set, and
 *            the caller answers with ERR_LIMIT or ERR_MEMORY.
 */
#ifndef SHOAL_BASE_ARENA_H
#define SHOAL_BASE_ARENA_H

#include "base/str.h"

struct arena_block;
struct arena {
    struct arena_block *blocks;
    size_t bytes_used, bytes_max;
    bool is_full;
};

void arena_init(struct arena *a, size_t bytes_max);
void arena_deinit(struct arena *a);
void arena_reset(struct arena *a); /* frees all but keeps the limit */
/* As reset, but a small block stays for what comes next: memory of one event after another. */
void arena_rewind(struct arena *a);

/* Zeroed, aligned to 16; size 0 gives a valid pointer; NULL past the limit. */
void *arena_alloc(struct arena *a, size_t size);
/* count * size with overflow check, zeroed. */
void *arena_alloc_array(struct arena *a, size_t count, size_t size);
/* Bytes for text: neither zeroed nor aligned, so that short strings do not waste 16. */
char *arena_alloc_text(struct arena *a, size_t size);
/* Copies with a NUL after it; p == NULL only past the limit. */
str arena_copy(struct arena *a, str s);
str arena_printf(struct arena *a, const char *format, ...) BASE_PRINTF(2, 3);

#define ARENA_NEW(arena, type) ((type *)arena_alloc((arena), sizeof(type)))
#define ARENA_ARRAY(arena, type, count) ((type *)arena_alloc_array((arena), (count), sizeof(type)))

#endif
