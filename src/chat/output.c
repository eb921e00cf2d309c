#include "chat/output.h"

#include <string.h>

#include "api/api_request.h"
#include "chat/output_shape.h"

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

static bool init_stops(struct output *o, struct arena *a, struct err *e)
{
    const struct output_options *opt = &o->o;
    if (opt->stops_count > API_STOP_MAX)
        return err_set(e, ERR_REQUEST, "stop: %u strings, at most %u", opt->stops_count,
                       API_STOP_MAX);
    o->stops = ARENA_ARRAY(a, struct output_stop, opt->stops_count);
    for (uint32_t i = 0; i < opt->stops_count; i++) {
        str s = opt->stops[i];
        if (s.len == 0 || s.len > API_STOP_LEN_MAX)
            return err_set(e, ERR_REQUEST, "stop[%u]: 1 to %u bytes expected, got %zu", i,
                           API_STOP_LEN_MAX, s.len);
        uint16_t *back = ARENA_ARRAY(a, uint16_t, s.len + 1);
        if (o->stops == NULL || back == NULL)
            return err_set(e, ERR_LIMIT, "stop: out of memory");
        fill_back(back, s);
        o->stops[i] = (struct output_stop){s, back, 0};
        o->held_max = (uint32_t)base_max(o->held_max, s.len + 4);
    }
    o->held = arena_alloc(a, o->held_max);
    o->held_end = ARENA_ARRAY(a, uint64_t, o->held_max);
    return (o->held && o->held_end) || err_set(e, ERR_LIMIT, "stop: out of memory");
}

static enum output_phase first_phase(const struct output_options *opt)
{
    const struct output_row *row = opt->format.calls;
    if (row && row->shape == OUTPUT_SHAPE_CHANNEL)
        return opt->begin == OUTPUT_BEGIN_FRESH ? OUTPUT_PHASE_HEADER : OUTPUT_PHASE_MESSAGE;
    if (opt->format.think == NULL || opt->begin == OUTPUT_BEGIN_ANSWER)
        return OUTPUT_PHASE_BODY;
    return opt->begin == OUTPUT_BEGIN_FRESH ? OUTPUT_PHASE_START : OUTPUT_PHASE_THINK;
}

bool output_init(struct output *o, const struct output_options *opt, struct arena *a,
                 struct err *e)
{
    *o = (struct output){.o = *opt, .phase = first_phase(opt), .held_max = 4};
    o->drops_blanks = opt->begin == OUTPUT_BEGIN_THINKING;
    o->message = opt->begin == OUTPUT_BEGIN_THINKING ? API_EVENT_REASONING : API_EVENT_CONTENT;
    buf_init(&o->text, OUTPUT_TEXT_MAX);
    buf_init(&o->text_raw, OUTPUT_TEXT_MAX * sizeof(uint16_t));
    buf_init(&o->args, 6 * OUTPUT_TEXT_MAX); /* an escape has six bytes */
    buf_init(&o->name, OUTPUT_SHAPE_HEAD_MAX);
    buf_init(&o->shown, 8 * OUTPUT_TEXT_MAX);
    buf_init(&o->events, OUTPUT_TEXT_MAX * sizeof(struct output_event));
    return init_stops(o, a, e);
}

void output_deinit(struct output *o)
{
    buf_deinit(&o->text);
    buf_deinit(&o->text_raw);
    buf_deinit(&o->args);
    buf_deinit(&o->name);
    buf_deinit(&o->shown);
    buf_deinit(&o->events);
}

/* ---- Events ---- */

static struct output_event *last_event(const struct output *o)
{
    size_t count = o->events.len / sizeof(struct output_event);
    return count ? (struct output_event *)(void *)o->events.p + (count - 1) : NULL;
}

struct output_event *output_shape_event(struct output *o, enum api_event_kind kind, str text)
{
    struct output_event ev = {.kind = kind, .text = text, .from = o->shown.len};
    buf_add(&o->shown, text);
    return buf_add_bytes(&o->events, &ev, sizeof ev) ? last_event(o) : NULL;
}

static void say(struct output *o, enum api_event_kind kind, str text, uint64_t begin, uint64_t end)
{
    struct output_event *ev = last_event(o);
    if (text.len == 0)
        return;
    if (ev && ev->kind == kind && (kind != API_EVENT_CONTENT || ev->bytes_end == begin)) {
        buf_add(&o->shown, text);
        ev->text.len += text.len;
    } else {
        ev = output_shape_event(o, kind, text);
        if (ev)
            ev->bytes_begin = begin;
    }
    if (ev)
        ev->bytes_end = end;
}

const struct output_event *output_events(struct output *o, uint32_t *count)
{
    struct output_event *ev = (struct output_event *)(void *)o->events.p;
    *count = (uint32_t)(o->events.len / sizeof *ev);
    for (uint32_t i = 0; i < *count; i++)
        ev[i].text.p = o->shown.p + ev[i].from;
    return ev;
}

void output_clear(struct output *o)
{
    buf_clear(&o->events);
    buf_clear(&o->shown);
}

/* ---- Content, with what may be the beginning of a stop string held back ---- */

static void show_held(struct output *o, uint32_t count)
{
    if (count == 0)
        return;
    uint64_t end = o->held_end[count - 1];
    say(o, API_EVENT_CONTENT, str_view(o->held, count), o->held_begin, end);
    o->held_begin = end;
    o->held_len -= count;
    memmove(o->held, o->held + count, o->held_len);
    memmove(o->held_end, o->held_end + count, o->held_len * sizeof *o->held_end);
}

void output_shape_border(struct output *o)
{
    show_held(o, o->held_len);
    for (uint32_t i = 0; i < o->o.stops_count; i++)
        o->stops[i].matched = 0;
}

/* Everything that no stop string can begin with. */
static void show_free(struct output *o)
{
    uint32_t keep = 0;
    for (uint32_t i = 0; i < o->o.stops_count; i++)
        keep = o->stops[i].matched > keep ? o->stops[i].matched : keep;
    show_held(o, o->held_len - keep);
}

/* One byte of content. True when it completes a stop string. */
static bool push(struct output *o, char byte)
{
    size_t best = 0;
    must(o->held_len < o->held_max);
    o->held[o->held_len] = byte;
    o->held_end[o->held_len++] = o->bytes_at;
    for (uint32_t i = 0; i < o->o.stops_count; i++) {
        struct output_stop *s = &o->stops[i];
        s->matched = step(s, byte);
        if (s->matched == s->text.len && s->text.len > best) {
            best = s->text.len;
            o->stop = i;
            o->is_stopped = o->has_stop = true;
        }
    }
    if (o->has_stop) {
        show_held(o, o->o.keep_stop ? o->held_len : o->held_len - (uint32_t)best);
        o->held_len = 0;
    }
    return o->has_stop;
}

/* ---- Undecided text ---- */

str output_shape_rest(const struct output *o)
{
    return str_from(buf_view(&o->text), o->at);
}

static uint16_t raw_at(const struct output *o, size_t i)
{
    uint16_t raw;
    memcpy(&raw, o->text_raw.p + i * sizeof raw, sizeof raw);
    return raw;
}

static void consume(struct output *o, size_t count)
{
    must(count <= o->text.len - o->at);
    for (size_t end = o->at + count; o->at < end; o->at++)
        o->bytes_at += raw_at(o, o->at);
}

void output_shape_drop(struct output *o, size_t count) { consume(o, count); }

void output_shape_show(struct output *o, size_t count)
{
    if (count)
        o->has_shown = true;
    if (o->o.stops_count == 0) {
        uint64_t begin = o->bytes_at;
        str text = str_sub(output_shape_rest(o), 0, count);
        consume(o, count);
        say(o, API_EVENT_CONTENT, text, begin, o->bytes_at);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        char byte = o->text.p[o->at];
        if (((uint8_t)byte & 0xc0) != 0x80)
            show_free(o); /* only in front of a character: shown text never ends inside one */
        if (o->held_len == 0)
            o->held_begin = o->bytes_at;
        consume(o, 1);
        if (push(o, byte))
            return;
    }
    show_free(o);
}

void output_shape_think(struct output *o, size_t count)
{
    str text = str_sub(output_shape_rest(o), 0, count);
    uint64_t begin = o->bytes_at;
    if (count)
        output_shape_border(o);
    consume(o, count);
    say(o, API_EVENT_REASONING, text, begin, o->bytes_at);
}

/* ---- Markers ---- */

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

size_t output_shape_blanks(str text)
{
    size_t n = 0;
    while (n < text.len && is_blank(text.p[n]))
        n++;
    return n;
}

size_t output_shape_blanks_last(str text)
{
    size_t n = 0;
    while (n < text.len && is_blank(text.p[text.len - 1 - n]))
        n++;
    return n;
}

enum output_shape_match output_shape_is(str text, str marker, size_t *len)
{
    size_t i = 0, k = 0;
    while (k < marker.len) {
        bool gap = is_blank(marker.p[k]);
        if (gap || (k && marker.p[k] == '<' && marker.p[k - 1] == '>'))
            i += output_shape_blanks(str_from(text, i));
        if (gap) {
            k++;
            continue;
        }
        if (i == text.len)
            return OUTPUT_SHAPE_PARTLY;
        if (text.p[i++] != marker.p[k++])
            return OUTPUT_SHAPE_NO;
    }
    *len = i;
    return OUTPUT_SHAPE_YES;
}

enum output_shape_match output_shape_find(str text, const str *markers, uint32_t count, size_t *at,
                                          size_t *len)
{
    for (*at = 0; *at < text.len; ++*at) {
        bool partly = false;
        for (uint32_t i = 0; i < count; i++) {
            if (text.p[*at] != markers[i].p[0])
                continue;
            enum output_shape_match m = output_shape_is(str_from(text, *at), markers[i], len);
            if (m == OUTPUT_SHAPE_YES)
                return m;
            partly = partly || m == OUTPUT_SHAPE_PARTLY;
        }
        if (partly)
            return OUTPUT_SHAPE_PARTLY;
    }
    return OUTPUT_SHAPE_NO;
}

static bool holds(str marker, str token) { return str_find(marker, token) != STR_NONE; }

bool output_is_marker(const struct output_format *f, str token)
{
    static const char *const headers[] = {"<|start|>", "<|channel|>", "<|message|>",
                                          "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"};
    const struct output_row *r = f->calls;
    if (token.len == 0)
        return false;
    if (f->think && (holds(f->think->open, token) || holds(f->think->close, token)))
        return true;
    for (size_t i = 0; r && r->shape == OUTPUT_SHAPE_CHANNEL && i < countof(headers); i++)
        if (str_eq_z(token, headers[i]))
            return true;
    if (r == NULL)
        return false;
    const str all[] = {r->section_open, r->section_close, r->call_open, r->call_close,
                       r->name_open, r->name_close, r->args_close, r->key_open, r->key_text,
                       r->key_json, r->value_close, r->also[0], r->also[1], r->also_close};
    for (size_t i = 0; i < countof(all); i++)
        if (holds(all[i], token))
            return true;
    return false;
}

/* ---- Phases ---- */

/* What may begin behind prose: openers, and behind a call the closers that it left. */
static uint32_t body_markers(const struct output *o, str *markers, uint32_t *openers)
{
    const struct output_row *r = o->o.format.calls;
    uint32_t n = 0;
    for (uint32_t i = 0; i < OUTPUT_TABLE_OPENERS; i++) {
        str s = output_table_begin(r, i);
        if (s.len)
            markers[n++] = s;
    }
    *openers = n;
    const str closes[] = {r->section_close, r->call_close, r->also_close};
    for (size_t i = 0; o->calls_begun && i < countof(closes); i++) {
        str s = output_call_closer(closes[i]);
        if (s.len > 1) /* one letter is no marker */
            markers[n++] = s;
    }
    return n;
}

/* Blanks in front of a call are not shown, so the last ones wait. */
static void show_body(struct output *o, size_t count, bool is_whole)
{
    str text = str_sub(output_shape_rest(o), 0, count);
    if (o->drops_blanks) {
        size_t blanks = output_shape_blanks(text);
        output_shape_drop(o, blanks);
        count -= blanks;
        text = str_from(text, blanks);
        o->drops_blanks = count == 0;
    }
    if (!is_whole)
        count -= output_shape_blanks_last(text);
    output_shape_show(o, count);
}

enum output_shape_match output_shape_bare(const struct output_row *r, str text, size_t *len)
{
    static const str fences[] = {STR_INIT("```json {"), STR_INIT("``` {")};
    size_t blanks = output_shape_blanks(text);
    enum output_shape_match best = OUTPUT_SHAPE_NO;
    *len = blanks;
    if (!r->is_bare && !r->reads_bare)
        return OUTPUT_SHAPE_NO;
    if (blanks == text.len)
        return OUTPUT_SHAPE_PARTLY;
    if (text.p[blanks] == '{')
        return OUTPUT_SHAPE_YES;
    for (size_t i = 0; i < countof(fences) && r->reads_bare; i++) {
        size_t used = 0;
        enum output_shape_match m = output_shape_is(str_from(text, blanks), fences[i], &used);
        if (m == OUTPUT_SHAPE_YES)
            *len = blanks + used - 1;
        best = m > best ? m : best;
    }
    return best;
}

/* An answer in a format is not looked into: it may quote markers, and calls are its alternative. */
static bool is_answer(const struct output *o, str text)
{
    str markers[OUTPUT_TABLE_OPENERS + 3];
    uint32_t openers = 0;
    size_t len = 0, blanks = output_shape_blanks(text);
    const struct output_row *row = o->o.format.calls;
    if (row == NULL || o->o.tools == NULL)
        return true;
    if (!o->o.has_format || o->calls_begun)
        return false;
    if (o->has_shown)
        return true;
    (void)body_markers(o, markers, &openers);
    bool may_call = blanks == text.len || (row->is_bare && text.p[blanks] == '{');
    for (uint32_t i = 0; i < openers && !may_call; i++)
        may_call = output_shape_is(str_from(text, blanks), markers[i], &len) != OUTPUT_SHAPE_NO;
    return !may_call;
}

static bool body_step(struct output *o, enum output_shape_end end)
{
    str text = output_shape_rest(o), markers[OUTPUT_TABLE_OPENERS + 3];
    uint32_t openers = 0;
    size_t at = 0, len = 0;
    if (text.len == 0)
        return false;
    if (is_answer(o, text)) {
        show_body(o, text.len, true);
        return false;
    }
    enum output_shape_match bare = OUTPUT_SHAPE_NO;
    if (!o->has_shown && (!o->o.has_format || o->o.format.calls->is_bare))
        bare = output_shape_bare(o->o.format.calls, text, &len);
    if (bare == OUTPUT_SHAPE_PARTLY && end == OUTPUT_SHAPE_GOES_ON)
        return false;
    if (bare == OUTPUT_SHAPE_YES) {
        output_call_start_bare(o, len);
        return true;
    }
    uint32_t count = body_markers(o, markers, &openers);
    enum output_shape_match m = output_shape_find(text, markers, count, &at, &len);
    if (m == OUTPUT_SHAPE_NO) {
        show_body(o, text.len, end != OUTPUT_SHAPE_GOES_ON);
        return false;
    }
    if (m == OUTPUT_SHAPE_PARTLY && end != OUTPUT_SHAPE_GOES_ON) {
        show_body(o, end == OUTPUT_SHAPE_IS_CUT ? at : text.len, true);
        return false;
    }
    show_body(o, at, false);
    if (m == OUTPUT_SHAPE_PARTLY || o->is_stopped)
        return false;
    text = output_shape_rest(o);
    at = output_shape_blanks(text);
    for (uint32_t i = 0; i < openers; i++)
        if (output_shape_is(str_from(text, at), markers[i], &len) == OUTPUT_SHAPE_YES) {
            output_call_start(o, false);
            return true;
        }
    output_shape_drop(o, at + len); /* a closer that nothing opened */
    o->drops_blanks = true;
    return true;
}

static void run(struct output *o, enum output_shape_end end)
{
    bool more = true;
    while (more && !o->is_stopped && !o->events.full && !o->shown.full && !o->args.full)
        switch (o->phase) {
        case OUTPUT_PHASE_START: case OUTPUT_PHASE_THINK:
            more = output_think_step(o, end);
            break;
        case OUTPUT_PHASE_BODY:
            more = body_step(o, end);
            break;
        case OUTPUT_PHASE_CALL:
            more = output_call_step(o, end);
            break;
        case OUTPUT_PHASE_AFTER:
            more = output_call_after(o, end);
            break;
        case OUTPUT_PHASE_HEADER: case OUTPUT_PHASE_MESSAGE:
            more = output_channel_step(o, end);
            break;
        }
    if (o->at == 0)
        return;
    buf_drop(&o->text, o->at);
    buf_drop(&o->text_raw, o->at * sizeof(uint16_t));
    o->at = 0;
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

/* A whole character; replaced: how many bytes it stands for, 0: its own. */
static void character(struct output *o, const char *bytes, uint32_t len, uint16_t replaced)
{
    buf_add_bytes(&o->text, bytes, len);
    for (uint32_t i = 0; i < len; i++) {
        uint16_t raw = replaced == 0 ? 1 : i + 1 == len ? replaced : 0;
        buf_add_bytes(&o->text_raw, &raw, sizeof raw);
    }
}

#define REPLACEMENT "\xef\xbf\xbd"

static void give_up(struct output *o, uint16_t raw)
{
    o->begun_len = 0;
    character(o, REPLACEMENT, 3, raw);
}

static void add_byte(struct output *o, uint8_t byte)
{
    if (o->begun_len && !fits(o, byte))
        give_up(o, o->begun_len); /* this byte is looked at on its own */
    o->bytes_in++;
    if (o->begun_len == 0 && length_of(byte) == 0) {
        give_up(o, 1);
        return;
    }
    o->begun[o->begun_len++] = (char)byte;
    if (o->begun_len == length_of((uint8_t)o->begun[0])) {
        uint32_t len = o->begun_len;
        o->begun_len = 0;
        character(o, o->begun, len, 0);
    }
}

static bool has_room(const struct output *o)
{
    return !o->text.full && !o->text_raw.full && !o->shown.full && !o->events.full &&
           !o->args.full;
}

bool output_add(struct output *o, str bytes)
{
    if (o->is_stopped)
        return true;
    for (size_t i = 0; i < bytes.len; i++)
        add_byte(o, (uint8_t)bytes.p[i]);
    if (bytes.len)
        run(o, OUTPUT_SHAPE_GOES_ON);
    return has_room(o);
}

bool output_end(struct output *o, bool is_cut)
{
    if (o->is_stopped)
        return true;
    /* Half a character that may be a marker's next one is hidden with what came of the marker. */
    bool hides = is_cut && (output_shape_rest(o).len || o->phase == OUTPUT_PHASE_CALL);
    if (hides)
        o->begun_len = 0;
    if (o->begun_len)
        give_up(o, o->begun_len);
    run(o, is_cut ? OUTPUT_SHAPE_IS_CUT : OUTPUT_SHAPE_ENDS);
    if (!o->has_stop)
        output_shape_border(o);
    o->is_stopped = true;
    return has_room(o);
}

/* ---- Questions ---- */

bool output_is_thinking(const struct output *o)
{
    return o->phase == OUTPUT_PHASE_THINK ||
           (o->phase == OUTPUT_PHASE_MESSAGE && o->message == API_EVENT_REASONING);
}

bool output_has_calls(const struct output *o)
{
    return o->calls_done > 0 && o->calls_done == o->calls_begun && !o->has_broken_call;
}
