#include "engine/engine_out.h"

#include <errno.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/thread.h"

#define OUT_SPARE_SIZE ((size_t)1 << 20) /* larger buffers are given back after use */
#define OUT_BEAT_BYTES 4096              /* as many wait at most: a socket that takes nothing */

bool engine_out_open(struct engine_out *o, struct err *e)
{
    buf_init(&o->control, ENGINE_OUT_CONTROL_MAX);
    return thread_queue_open(&o->items, sizeof(struct engine_out_item), ENGINE_OUT_QUEUE, e) &&
           thread_queue_open(&o->spare, sizeof(struct buf), ENGINE_OUT_BUFS, e);
}

void engine_out_close(struct engine_out *o)
{
    struct engine_out_item item;
    struct buf b;
    while (o->spare && thread_queue_pop(o->spare, &b))
        buf_deinit(&b);
    while (o->items && thread_queue_pop(o->items, &item))
        buf_deinit(&item.bytes);
    if (o->is_writing)
        buf_deinit(&o->now.bytes);
    buf_deinit(&o->control);
    thread_queue_close(o->spare);
    thread_queue_close(o->items);
}

bool engine_out_push(struct engine_out *o, struct engine_out_item *item)
{
    return thread_queue_push(o->items, item);
}

bool engine_out_is_full(const struct engine_out *o)
{
    return thread_queue_count(o->items) >= ENGINE_OUT_BUFS;
}

void engine_out_spare(struct engine_out *o, struct buf *out, size_t size_max)
{
    if (!thread_queue_pop(o->spare, out))
        buf_init(out, size_max);
    out->size_max = size_max; /* it may have been another's */
    buf_clear(out);
}

int engine_out_fd(const struct engine_out *o) { return thread_queue_fd(o->items); }

void engine_out_beat(struct engine_out *o, const struct api_beat *beat)
{
    struct api_frame f = {.kind = API_FRAME_BEAT, .beat = *beat};
    struct err e;
    if (o->control.len - o->control_at < OUT_BEAT_BYTES && !api_frame_write(&o->control, &f, &e))
        log_error("engine: %s", e.text);
}

static void put_away(struct engine_out *o)
{
    o->is_over = o->is_over || o->now.is_last;
    o->code = o->now.code;
    bool keep = !o->is_over && o->now.bytes.size <= OUT_SPARE_SIZE;
    if (!keep || !thread_queue_push(o->spare, &o->now.bytes))
        buf_deinit(&o->now.bytes);
}

/* Picks the next frame when none is begun: control first. False: nothing to write. */
static bool next_frame(struct engine_out *o)
{
    if (o->frame_left)
        return true;
    o->is_control = o->control_at < o->control.len;
    if (o->is_control) {
        o->frame_left = api_frame_first(str_from(buf_view(&o->control), o->control_at));
        return true;
    }
    while (!o->is_writing || o->now_at == o->now.bytes.len) {
        if (o->is_writing)
            put_away(o);
        o->is_writing = !o->is_over && thread_queue_pop(o->items, &o->now);
        o->now_at = 0;
        if (!o->is_writing)
            return false;
    }
    o->frame_left = api_frame_first(str_from(buf_view(&o->now.bytes), o->now_at));
    return true;
}

bool engine_out_write(struct engine_out *o, int fd, bool *wants, struct err *e)
{
    *wants = false;
    while (next_frame(o)) {
        const char *from = o->is_control ? o->control.p + o->control_at
                                         : o->now.bytes.p + o->now_at;
        ssize_t n = send(fd, from, o->frame_left, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            *wants = true;
            return true;
        }
        if (n < 0)
            return err_set_errno(e, errno, "engine: writing to the endpoint");
        o->frame_left -= (size_t)n;
        *(o->is_control ? &o->control_at : &o->now_at) += (size_t)n;
        if (o->control_at == o->control.len) {
            buf_clear(&o->control);
            o->control_at = 0;
        }
    }
    return true;
}
