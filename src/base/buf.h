/* buf - bytes that grow up to a maximum given at creation.
 *
 * Owns:      its heap memory; a NUL follows the bytes, so buf.p can be printed.
 * Not:       many small objects of one lifetime (arena).
 * Invariant: len <= size_max. When an append does not fit, the buf is left as it was and full is
 *            set; later appends are ignored until buf_clear: a writer checks once at the end.
 * Thread:    its owner's.
 * Limits:    size_max bytes, checked before anything is allocated.
 */
#ifndef SHOAL_BASE_BUF_H
#define SHOAL_BASE_BUF_H

#include "base/str.h"

struct buf {
    char *p;
    size_t len, size, size_max;
    bool full; /* something did not fit: the content is not complete */
};

void buf_init(struct buf *b, size_t size_max);
void buf_deinit(struct buf *b); /* also after a zeroed struct */
void buf_clear(struct buf *b);  /* keeps the memory, resets full */
/* As clear, but more than size_kept bytes of memory are freed: for a buffer that one large message
 * has gone through. */
void buf_shrink(struct buf *b, size_t size_kept);

/* All return false (and set full) when size_max would be passed. */
bool buf_reserve(struct buf *b, size_t more);
bool buf_add(struct buf *b, str s);
bool buf_add_bytes(struct buf *b, const void *p, size_t len);
bool buf_add_z(struct buf *b, const char *z);
bool buf_add_byte(struct buf *b, char c);
bool buf_printf(struct buf *b, const char *format, ...) BASE_PRINTF(2, 3);
/* Drops the first count bytes. */
void buf_drop(struct buf *b, size_t count);
static inline str buf_view(const struct buf *b) { return (str){b->p, b->len}; }

/* Text for a terminal or a line of a log: control characters (line feeds too) as \n, \u001b;
 * what is no UTF-8 as U+FFFD. */
bool buf_add_printable(struct buf *b, str s);

/* Human size with 1024 steps and one decimal: "468.6 MB"; bytes: "17 B". */
bool buf_add_size(struct buf *b, uint64_t bytes);

#endif
