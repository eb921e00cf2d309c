#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BLOCK_MIN ((size_t)4096)
#define ARENA_BLOCK_MAX ((size_t)1 << 20) /* growth ends here: a block wastes little */

struct arena_block {
    struct arena_block *next;
    size_t used, size; /* of the bytes behind this header */
};
#define ARENA_HEADER base_align(sizeof(struct arena_block), 16)

void arena_init(struct arena *a, size_t bytes_max) { *a = (struct arena){.bytes_max = bytes_max}; }

void arena_reset(struct arena *a)
{
    for (struct arena_block *b = a->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *a = (struct arena){.bytes_max = a->bytes_max};
}

void arena_rewind(struct arena *a)
{
    struct arena_block *b = a->blocks;
#ifndef __SANITIZE_ADDRESS__ /* there a view that outlives its event shall be found */
    if (b && !b->next && b->size == ARENA_BLOCK_MIN) {
        b->used = 0;
        *a = (struct arena){.blocks = b, .bytes_max = a->bytes_max};
        return;
    }
#endif
    (void)b;
    arena_reset(a);
}

void arena_deinit(struct arena *a)
{
    arena_reset(a);
    a->bytes_max = 0;
}

static struct arena_block *arena_grow(struct arena *a, size_t size)
{
    size_t want = a->blocks ? base_min(a->blocks->size * 2, ARENA_BLOCK_MAX) : ARENA_BLOCK_MIN;
    want = base_max(want, size);
    struct arena_block *b = malloc(ARENA_HEADER + want);
    if (!b)
        return NULL;
    *b = (struct arena_block){.next = a->blocks, .size = want};
    a->blocks = b;
    return b;
}

/* What alignment skips counts as used; what is left of a block that a new one replaces does not:
 * blocks stay small against the limits that matter. */
static char *arena_take(struct arena *a, size_t size, size_t align)
{
    struct arena_block *b = a->blocks;
    size_t skip = b ? base_align(b->used, align) - b->used : 0;
    if (!b || b->size - b->used < skip || size > b->size - b->used - skip) {
        b = NULL;
        skip = 0;
    }
    if (a->is_full || size > a->bytes_max || skip + size > a->bytes_max - a->bytes_used ||
        (!b && !(b = arena_grow(a, size)))) {
        a->is_full = true;
        return NULL;
    }
    char *p = (char *)b + ARENA_HEADER + b->used + skip;
    b->used += skip + size;
    a->bytes_used += skip + size;
    return p;
}

void *arena_alloc(struct arena *a, size_t size)
{
    char *p = arena_take(a, size, 16);
    return p ? memset(p, 0, size) : NULL;
}

char *arena_alloc_text(struct arena *a, size_t size) { return arena_take(a, size, 1); }

void *arena_alloc_array(struct arena *a, size_t count, size_t size)
{
    size_t bytes;
    if (!base_mul(&bytes, count, size)) {
        a->is_full = true;
        return NULL;
    }
    return arena_alloc(a, bytes);
}

str arena_copy(struct arena *a, str s)
{
    char *p = arena_alloc_text(a, s.len + 1);
    if (!p)
        return (str){NULL, 0};
    if (s.len)
        memcpy(p, s.p, s.len);
    p[s.len] = 0;
    return (str){p, s.len};
}

str arena_printf(struct arena *a, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *p = n < 0 ? NULL : arena_alloc_text(a, (size_t)n + 1);
    if (p)
        vsnprintf(p, (size_t)n + 1, format, again);
    va_end(again);
    return (str){p, p ? (size_t)n : 0};
}
