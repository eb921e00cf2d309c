#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *b, size_t size_max) { *b = (struct buf){.size_max = size_max}; }

void buf_deinit(struct buf *b)
{
    free(b->p);
    *b = (struct buf){0};
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->full = false;
    if (b->p)
        b->p[0] = 0;
}

void buf_shrink(struct buf *b, size_t size_kept)
{
    size_t size_max = b->size_max;
    if (b->size > size_kept) {
        buf_deinit(b);
        buf_init(b, size_max);
    }
    buf_clear(b);
}

bool buf_reserve(struct buf *b, size_t more)
{
    if (b->full || more > b->size_max - b->len) {
        b->full = true;
        return false;
    }
    size_t need = b->len + more + 1;
    if (need <= b->size)
        return true;
    size_t size = base_max(b->size + b->size / 2, 64);
    size = base_max(base_min(size, b->size_max + 1), need);
    char *p = realloc(b->p, size);
    if (!p) {
        b->full = true;
        return false;
    }
    b->p = p;
    b->size = size;
    return true;
}

bool buf_add_bytes(struct buf *b, const void *p, size_t len)
{
    if (!buf_reserve(b, len))
        return false;
    if (len)
        memcpy(b->p + b->len, p, len);
    b->len += len;
    b->p[b->len] = 0;
    return true;
}

bool buf_add(struct buf *b, str s) { return buf_add_bytes(b, s.p, s.len); }
bool buf_add_z(struct buf *b, const char *z) { return buf_add(b, str_of(z)); }
bool buf_add_byte(struct buf *b, char c) { return buf_add_bytes(b, &c, 1); }

bool buf_printf(struct buf *b, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    bool ok = n >= 0 && buf_reserve(b, (size_t)n);
    if (ok) {
        vsnprintf(b->p + b->len, (size_t)n + 1, format, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return ok;
}

void buf_drop(struct buf *b, size_t count)
{
    must(count <= b->len);
    if (count == 0)
        return;
    memmove(b->p, b->p + count, b->len - count + 1);
    b->len -= count;
}

bool buf_add_printable(struct buf *b, str s)
{
    while (s.len) {
        uint32_t c = 0;
        size_t n = str_utf8_decode(s, &c);
        if (n == 0)
            buf_add_z(b, "\xef\xbf\xbd");
        else if (c == '\n' || c == '\t' || c == '\r')
            buf_add_z(b, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r");
        else if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029)
            buf_printf(b, "\\u%04x", (unsigned)c);
        else
            buf_add(b, str_sub(s, 0, n));
        s = str_from(s, n ? n : 1);
    }
    return !b->full;
}

bool buf_add_size(struct buf *b, uint64_t bytes)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    double v = (double)bytes;
    size_t u = 0;
    for (; v >= 1024 && u + 1 < countof(units); u++)
        v /= 1024;
    return u ? buf_printf(b, "%.1f %s", v, units[u]) : buf_printf(b, "%.0f B", v);
}
