#include "chat/output.h"

#include <string.h>

#include "api/api_request.h"

/* ---- Stop strings: Knuth-Morris-Pratt, a table per string ---- */

/* back[n] for a prefix of n bytes: its longest proper prefix that is also its suffix. */
static void fill_back(uint16_t *back, str s)
{
    back[0] = back[1] = 0;
    for (size_t i = 1, k = 0; i < s.len; i++) {
        while (k > 0 && s.p[i] != s.p[k])
            k = back[k];
        k += s.p[i] == s.p[k];
        back[i + 1] = (uint16_t)k;
    }
}

static uint16_t step(const struct output_stop *stop, char byte)
{
    size_t k = stop->matched;
    while (k > 0 && stop->text.p[k] != byte)
        k = stop->back[k];
    return (uint16_t)(k + (stop->text.p[k] == byte));
}

bool output_init(struct output *o, const str *stops, uint32_t stops_count, bool keep_stop,
                 struct arena *a, struct err *e)
{
    *o = (struct output){.keep_stop = keep_stop, .stops_count = stops_count, .held_max = 4};
    if (stops_count > API_STOP_MAX)
        return err_set(e, ERR_REQUEST, "stop: %u strings, at most %u", stops_count, API_STOP_MAX);
    o->stops = ARENA_ARRAY(a, struct output_stop, stops_count);
    for (uint32_t i = 0; i < stops_count; i++) {
        if (stops[i].len == 0 || stops[i].len > API_STOP_LEN_MAX)
            return err_set(e, ERR_REQUEST, "stop[%u]: 1 to %u bytes expected, got %zu", i,
                           API_STOP_LEN_MAX, stops[i].len);
        uint16_t *back = ARENA_ARRAY(a, uint16_t, stops[i].len + 1);
        if (o->stops == NULL || back == NULL)
            return err_set(e, ERR_LIMIT, "stop: out of memory");
        fill_back(back, stops[i]);
        o->stops[i] = (struct output_stop){stops[i], back, 0};
        o->held_max = (uint32_t)base_max(o->held_max, stops[i].len + 4);
    }
    o->held = arena_alloc(a, o->held_max);
    o->held_raw = ARENA_ARRAY(a, uint16_t, o->held_max);
    return (o->held && o->held_raw) || err_set(e, ERR_LIMIT, "stop: out of memory");
}

/* ---- Held text ---- */

static void show(struct output *o, uint32_t count, struct buf *shown)
{
    buf_add_bytes(shown, o->held, count);
    for (uint32_t i = 0; i < count; i++)
        o->bytes_shown += o->held_raw[i];
    o->held_len -= count;
    memmove(o->held, o->held + count, o->held_len);
    memmove(o->held_raw, o->held_raw + count, o->held_len * sizeof *o->held_raw);
}

/* One byte of clean text. True when it completes a stop string. */
static bool push(struct output *o, char byte, uint16_t raw)
{
    size_t best = 0;
    must(o->held_len < o->held_max);
    o->held[o->held_len] = byte;
    o->held_raw[o->held_len++] = raw;
    for (uint32_t i = 0; i < o->stops_count; i++) {
        struct output_stop *s = &o->stops[i];
        s->matched = step(s, byte);
        if (s->matched == s->text.len && s->text.len > best) {
            best = s->text.len;
            o->stop = i;
            o->is_stopped = true;
        }
    }
    return o->is_stopped;
}

/* A whole character; then everything that no stop string can begin with is shown. */
static void character(struct output *o, const char *bytes, uint32_t len, uint16_t replaced,
                      struct buf *shown)
{
    uint32_t keep = 0;
    for (uint32_t i = 0; i < len; i++) {
        uint16_t raw = replaced == 0 ? 1 : i + 1 == len ? replaced : 0;
        if (push(o, bytes[i], raw)) {
            uint32_t stop_len = (uint32_t)o->stops[o->stop].text.len;
            show(o, o->keep_stop ? o->held_len : o->held_len - stop_len, shown);
            o->held_len = 0;
            return;
        }
    }
    for (uint32_t i = 0; i < o->stops_count; i++)
        keep = o->stops[i].matched > keep ? o->stops[i].matched : keep;
    show(o, o->held_len - keep, shown);
}

/* ---- UTF-8 ---- */

static uint32_t length_of(uint8_t lead)
{
    return lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3
                                                          : lead < 0xf5   ? 4 : 0;
}

/* Whether byte may follow what has begun (Unicode 15, table 3-7). */
static bool fits(const struct output *o, uint8_t byte)
{
    uint8_t low = 0x80, high = 0xbf, lead = (uint8_t)o->begun[0];
    if (o->begun_len == 1) {
        low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : low;
        high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : high;
    }
    return byte >= low && byte <= high;
}

#define REPLACEMENT "\xef\xbf\xbd"

static void give_up(struct output *o, uint16_t raw, struct buf *shown)
{
    o->begun_len = 0;
    character(o, REPLACEMENT, 3, raw, shown);
}

void output_add(struct output *o, str bytes, struct buf *shown)
{
    for (size_t i = 0; i < bytes.len && !o->is_stopped;) {
        uint8_t byte = (uint8_t)bytes.p[i];
        if (o->begun_len && !fits(o, byte)) { /* this byte is looked at again, on its own */
            give_up(o, o->begun_len, shown);
            continue;
        }
        i++;
        o->bytes_in++;
        if (o->begun_len == 0 && length_of(byte) == 0) {
            give_up(o, 1, shown);
            continue;
        }
        o->begun[o->begun_len++] = (char)byte;
        if (o->begun_len == length_of((uint8_t)o->begun[0])) {
            uint32_t len = o->begun_len;
            o->begun_len = 0;
            character(o, o->begun, len, 0, shown);
        }
    }
}

void output_end(struct output *o, struct buf *shown)
{
    if (o->is_stopped)
        return;
    if (o->begun_len)
        give_up(o, o->begun_len, shown);
    if (!o->is_stopped)
        show(o, o->held_len, shown);
}
