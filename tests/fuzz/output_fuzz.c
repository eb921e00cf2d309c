/* Any bytes from a model, any stop strings: whole and byte by byte give the same valid UTF-8.
 * Input: stop strings up to the first zero byte, separated by ones; then the bytes. */
#include <stdint.h>
#include <stdlib.h>

#include "chat/output.h"

#define STOPS_MAX 16

static void take(struct output *o, struct buf *shown, uint64_t *seen)
{
    uint32_t n;
    const struct output_event *ev = output_events(o, &n);
    for (uint32_t i = 0; i < n; i++) {
        if (ev[i].kind != API_EVENT_CONTENT || ev[i].bytes_begin != *seen ||
            ev[i].bytes_end > o->bytes_in)
            abort();
        *seen = ev[i].bytes_end;
        buf_add(shown, ev[i].text);
    }
    output_clear(o);
}

static void run(const str *stops, uint32_t count, str bytes, size_t piece, struct buf *shown)
{
    const struct output_options opt = {.stops = stops, .stops_count = count};
    struct arena a;
    struct output o;
    struct err e;
    uint64_t seen = 0;
    arena_init(&a, 1 << 20);
    if (output_init(&o, &opt, &a, &e)) {
        bool ok = true;
        for (size_t at = 0; at < bytes.len; at += piece) {
            ok = ok && output_add(&o, str_sub(bytes, at, piece));
            take(&o, shown, &seen);
        }
        ok = ok && output_end(&o, false);
        take(&o, shown, &seen);
        if (!ok || (!o.has_stop && seen != bytes.len))
            abort();
    }
    output_deinit(&o);
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
