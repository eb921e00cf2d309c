/* Any bytes from a model, any stop strings: whole and byte by byte give the same valid UTF-8.
 * Input: stop strings up to the first zero byte, separated by ones; then the bytes. */
#include <stdint.h>
#include <stdlib.h>

#include "chat/output.h"

#define STOPS_MAX 16

static void run(const str *stops, uint32_t count, str bytes, size_t piece, struct buf *shown)
{
    struct arena a;
    struct output o;
    struct err e;
    arena_init(&a, 1 << 20);
    if (output_init(&o, stops, count, false, &a, &e)) {
        for (size_t at = 0; at < bytes.len; at += piece)
            output_add(&o, str_sub(bytes, at, piece), shown);
        output_end(&o, shown);
        if (o.bytes_shown > o.bytes_in || (!o.is_stopped && o.bytes_shown != bytes.len))
            abort();
    }
    arena_deinit(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    str stops[STOPS_MAX], rest = str_view(data, size), head, stop;
    struct buf whole, pieces;
    uint32_t count = 0;
    if (!str_split(&rest, 0, &head))
        return 0;
    while (count < STOPS_MAX && str_split(&head, 1, &stop))
        if (str_utf8_valid(stop) == stop.len)
            stops[count++] = stop;
    buf_init(&whole, 1 << 24);
    buf_init(&pieces, 1 << 24);
    run(stops, count, rest, rest.len + 1, &whole);
    run(stops, count, rest, 1, &pieces);
    if (!str_eq(buf_view(&whole), buf_view(&pieces)) ||
        str_utf8_valid(buf_view(&whole)) != whole.len)
        abort();
    buf_deinit(&whole);
    buf_deinit(&pieces);
    return 0;
}
