#include "api/api_frame.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are little endian");

enum api_frame_length { API_FRAME_LENGTH_SHORT, API_FRAME_LENGTH_LONG };
enum { API_FRAME_SIDE_C = API_FRAME_TO_CHILD, API_FRAME_SIDE_E = API_FRAME_TO_ENDPOINT,
       API_FRAME_SIDE_CE = API_FRAME_TO_CHILD | API_FRAME_TO_ENDPOINT };

static const struct { const char *name; int sides; enum api_frame_length length; }
api_frame_rows[API_FRAME_COUNT_] = {
    [API_FRAME_NONE_] = {"none", 0, API_FRAME_LENGTH_SHORT},
#define X(name, direction, length) \
    [API_FRAME_##name] = {#name, API_FRAME_SIDE_##direction, API_FRAME_LENGTH_##length},
    API_FRAMES(X)
#undef X
};

const char *api_frame_name(enum api_frame_kind kind)
{
    must((unsigned)kind < API_FRAME_COUNT_);
    return api_frame_rows[kind].name;
}

bool api_frame_is_long(enum api_frame_kind kind)
{
    must((unsigned)kind < API_FRAME_COUNT_);
    return api_frame_rows[kind].length == API_FRAME_LENGTH_LONG;
}

/* --- messages ------------------------------------------------------------------------------ */

void api_frame_put_header(char out[API_FRAME_HEADER_SIZE], size_t size, enum api_frame_kind kind,
                          uint64_t id)
{
    uint32_t n = (uint32_t)size;
    memset(out, 0, API_FRAME_HEADER_SIZE);
    memcpy(out, &n, sizeof n);
    out[4] = (char)kind;
    memcpy(out + 8, &id, sizeof id);
}

/* The body lies in out behind room for one header and the total. Frames after the first need a
 * header between two pieces: pieces move up, the last one first. */
static bool api_frame_cut(struct buf *out, size_t start, const struct api_frame *f)
{
    size_t first = start + API_FRAME_HEADER_SIZE, size = out->len - first; /* with the total */
    size_t extra = size > API_FRAME_PIECE_MAX ? (size - 1) / API_FRAME_PIECE_MAX : 0;
    if (!buf_reserve(out, extra * API_FRAME_HEADER_SIZE))
        return false;
    for (size_t i = extra; i > 0; i--) {
        size_t from = i * API_FRAME_PIECE_MAX, len = base_min(size - from, API_FRAME_PIECE_MAX);
        char *to = out->p + first + from + i * API_FRAME_HEADER_SIZE;
        memmove(to, out->p + first + from, len);
        api_frame_put_header(to - API_FRAME_HEADER_SIZE, len, API_FRAME_MORE, f->id);
    }
    api_frame_put_header(out->p + start, base_min(size, API_FRAME_PIECE_MAX), f->kind, f->id);
    out->len += extra * API_FRAME_HEADER_SIZE;
    out->p[out->len] = 0;
    return true;
}

const uint32_t api_step_bounds_ms[API_STEP_BUCKETS] = {1,  2,   5,   10,  20,   50,
                                                       100, 200, 500, 1000, 5000, 30000};

bool api_frame_write(struct buf *out, const struct api_frame *f, struct err *e)
{
    must(f->kind > API_FRAME_NONE_ && f->kind < API_FRAME_COUNT_ && f->kind != API_FRAME_MORE);
    static const char zeros[API_FRAME_HEADER_SIZE + 4];
    bool is_long = api_frame_is_long(f->kind);
    size_t start = out->len, head = API_FRAME_HEADER_SIZE + (is_long ? 4u : 0u);
    buf_add_bytes(out, zeros, head);
    api_frame_put_body(out, f);
    bool fits = !out->full && out->len - start - head <= UINT32_MAX &&
                (is_long || out->len - start - head <= API_FRAME_SHORT_MAX);
    if (fits) {
        uint32_t total = (uint32_t)(out->len - start - head);
        if (is_long)
            memcpy(out->p + start + API_FRAME_HEADER_SIZE, &total, sizeof total);
        fits = api_frame_cut(out, start, f);
    }
    if (fits)
        return true;
    out->full = false;
    out->len = start;
    return err_set(e, ERR_LIMIT, "frame %s: longer than %zu bytes", api_frame_name(f->kind),
                   is_long ? out->size_max - start : (size_t)API_FRAME_SHORT_MAX);
}

size_t api_frame_first(str bytes)
{
    uint32_t size;
    if (bytes.len < API_FRAME_HEADER_SIZE)
        return 0;
    memcpy(&size, bytes.p, sizeof size);
    must(size <= API_FRAME_PIECE_MAX);
    return bytes.len >= API_FRAME_HEADER_SIZE + size ? API_FRAME_HEADER_SIZE + size : 0;
}

bool api_frame_read(struct api_frame *out, struct api_message_bytes *m, struct err *e)
{
    must(!m->is_dropped);
    memset(out, 0, sizeof *out);
    out->kind = m->kind;
    out->id = m->id;
    if (!api_frame_take_body(out, m->body, &m->arena, e))
        return false;
    if (m->kind == API_FRAME_BATCH)
        out->batch.request_id = m->id;
    if (m->kind == API_FRAME_SUBMIT) {
        struct api_error why;
        out->submit.id = m->id;
        if (!api_request_check(&out->submit, &why)) {
            *e = why.err;
            return false;
        }
    }
    return true;
}

/* --- reader -------------------------------------------------------------------------------- */

void api_frame_reader_init(struct api_frame_reader *r, enum api_frame_side side, size_t message_max)
{
    *r = (struct api_frame_reader){.side = side, .message_max = message_max};
}

void api_frame_reader_deinit(struct api_frame_reader *r)
{
    arena_deinit(&r->long_.arena);
    *r = (struct api_frame_reader){.is_broken = true};
}

static size_t api_frame_arena_max(size_t size) { return size * 6 + ((size_t)1 << 20); }

static bool api_frame_take_header(struct api_frame_reader *r, struct err *e)
{
    uint32_t size;
    memcpy(&size, r->header, sizeof size);
    memcpy(&r->id, r->header + 8, sizeof r->id);
    unsigned kind = r->header[4];
    if (kind == API_FRAME_NONE_ || kind >= API_FRAME_COUNT_ ||
        !(api_frame_rows[kind].sides & (int)r->side))
        return err_set(e, ERR_FORMAT, "frame: kind %u is not one of this direction", kind);
    if (r->header[5] || r->header[6] || r->header[7])
        return err_set(e, ERR_FORMAT, "frame %s: reserved bytes are not zero",
                       api_frame_rows[kind].name);
    r->kind = (enum api_frame_kind)kind;
    bool is_short = !api_frame_is_long(r->kind);
    size_t max = is_short && kind != API_FRAME_MORE ? API_FRAME_SHORT_MAX : API_FRAME_PIECE_MAX;
    if (size > max)
        return err_set(e, ERR_FORMAT, "frame %s: %u bytes, at most %zu", api_frame_rows[kind].name,
                       size, max);
    bool is_joining = r->long_.kind != API_FRAME_NONE_;
    if (kind == API_FRAME_MORE) {
        size_t want = base_min(r->long_total - r->long_len, API_FRAME_PIECE_MAX);
        if (!is_joining || r->id != r->long_.id || (size && size != want))
            return err_set(e, ERR_FORMAT, "frame MORE: %u bytes do not continue a message", size);
    } else if (!is_short && (is_joining || size < 4)) {
        return err_set(e, ERR_FORMAT, "frame %s: %s", api_frame_rows[kind].name,
                       is_joining ? "begins inside another message" : "shorter than its head");
    }
    r->piece_left = size;
    r->short_len = 0;
    r->total_len = is_short ? sizeof r->total : 0;
    return true;
}

/* The first four bytes of a long message are there. */
static bool api_frame_begin_long(struct api_frame_reader *r, struct err *e)
{
    uint32_t total;
    memcpy(&total, r->total, sizeof total);
    if (total > r->message_max)
        return err_set(e, ERR_FORMAT, "frame %s: message of %u bytes, at most %zu",
                       api_frame_name(r->kind), total, r->message_max);
    if (base_min((size_t)total + 4, API_FRAME_PIECE_MAX) != (size_t)r->piece_left + 4)
        return err_set(e, ERR_FORMAT, "frame %s: piece of %u bytes for a message of %u",
                       api_frame_name(r->kind), r->piece_left, total);
    r->long_ = (struct api_message_bytes){.kind = r->kind, .id = r->id};
    arena_init(&r->long_.arena, api_frame_arena_max(total));
    char *body = arena_alloc(&r->long_.arena, total);
    r->long_.is_dropped = !body;
    r->long_.body = (str){body, 0};
    r->long_len = 0;
    r->long_total = total;
    return true;
}

/* The message being joined is not meant any more. */
static void api_frame_forget(struct api_frame_reader *r)
{
    arena_deinit(&r->long_.arena);
    r->long_ = (struct api_message_bytes){.kind = API_FRAME_NONE_};
    r->long_len = r->long_total = 0;
}

static void api_frame_take_piece(struct api_frame_reader *r, str piece)
{
    bool is_short = r->kind != API_FRAME_MORE && !api_frame_is_long(r->kind);
    if (is_short) {
        memcpy(r->short_body + r->short_len, piece.p, piece.len);
        r->short_len += (uint32_t)piece.len;
    } else {
        if (!r->long_.is_dropped)
            memcpy((char *)r->long_.body.p + r->long_len, piece.p, piece.len);
        r->long_len += piece.len;
    }
    r->piece_left -= (uint32_t)piece.len;
}

/* A frame is complete: is a message, too? */
static bool api_frame_finish(struct api_frame_reader *r, struct api_message_bytes *out)
{
    bool is_short = r->kind != API_FRAME_MORE && !api_frame_is_long(r->kind);
    uint32_t size;
    memcpy(&size, r->header, sizeof size);
    r->header_len = 0;
    if (is_short) {
        *out = (struct api_message_bytes){.kind = r->kind, .id = r->id};
        arena_init(&out->arena, api_frame_arena_max(r->short_len));
        out->body = arena_copy(&out->arena, str_view(r->short_body, r->short_len));
        out->is_dropped = !out->body.p;
        return true;
    }
    if (r->kind == API_FRAME_MORE && size == 0)
        api_frame_forget(r);
    if (r->long_.kind == API_FRAME_NONE_ || r->long_len < r->long_total)
        return false;
    *out = r->long_;
    if (!out->is_dropped)
        out->body.len = r->long_total;
    r->long_ = (struct api_message_bytes){.kind = API_FRAME_NONE_};
    return true;
}

static str api_frame_take(str *in, size_t max)
{
    str head = str_sub(*in, 0, max);
    *in = str_from(*in, head.len);
    return head;
}

enum api_frame_got api_frame_reader_next(struct api_frame_reader *r, str *in,
                                         struct api_message_bytes *out, struct err *e)
{
    if (r->is_broken) {
        err_set(e, ERR_FORMAT, "frame: the stream was broken before");
        return API_FRAME_GOT_BROKEN;
    }
    while (in->len) {
        bool ok = true;
        if (r->header_len < API_FRAME_HEADER_SIZE) {
            str piece = api_frame_take(in, API_FRAME_HEADER_SIZE - r->header_len);
            memcpy(r->header + r->header_len, piece.p, piece.len);
            r->header_len += (uint32_t)piece.len;
            if (r->header_len < API_FRAME_HEADER_SIZE)
                continue;
            ok = api_frame_take_header(r, e);
        } else if (r->total_len < sizeof r->total) {
            str piece = api_frame_take(in, sizeof r->total - r->total_len);
            memcpy(r->total + r->total_len, piece.p, piece.len);
            r->total_len += (uint32_t)piece.len;
            r->piece_left -= (uint32_t)piece.len;
            if (r->total_len == sizeof r->total)
                ok = api_frame_begin_long(r, e);
        } else {
            api_frame_take_piece(r, api_frame_take(in, r->piece_left));
        }
        if (!ok) {
            r->is_broken = true;
            return API_FRAME_GOT_BROKEN;
        }
        bool is_whole = r->header_len == API_FRAME_HEADER_SIZE && r->piece_left == 0 &&
                        r->total_len == sizeof r->total;
        if (is_whole && api_frame_finish(r, out))
            return API_FRAME_GOT_MESSAGE;
    }
    return API_FRAME_GOT_NOTHING;
}
