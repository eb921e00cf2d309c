#include "wire/pipe.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"

#define PIPE_READ_SIZE 65536
#define PIPE_KEPT ((size_t)1 << 20) /* memory of an empty queue */
#define PIPE_READS_MAX 16 /* per wake-up: other descriptors get their turn */
#define PIPE_TURN_MAX ((size_t)256 << 10)

/* Frames as {u32 length, bytes}; length 0: a source, as {u32 0, struct pipe_source}. */
struct pipe_queue {
    struct buf bytes;
    size_t at; /* of the first byte that is not written yet */
};

struct pipe {
    struct pipe_handlers h;
    struct loop_watch watch;
    struct loop_later flush; /* frames of one turn of the loop leave together */
    int fd;
    struct pipe_queue queues[2];
    struct pipe_queue *begun; /* whose frame is being written, or NULL */
    uint32_t begun_left;
    struct pipe_source source; /* of the data queue, whose turn it is; next NULL: none */
    str piece;                 /* the rest of its frame that is being written */
    unsigned depth; /* of callbacks: pipe_close inside one frees later */
    bool is_closed, has_ended, is_waiting;
};

static void pipe_free(struct pipe *p)
{
    buf_deinit(&p->queues[PIPE_CONTROL].bytes);
    buf_deinit(&p->queues[PIPE_DATA].bytes);
    free(p);
}

static bool pipe_is_empty(const struct pipe_queue *q) { return q->at == q->bytes.len; }

static void pipe_end(struct pipe *p, const struct err *why)
{
    if (p->has_ended)
        return;
    p->has_ended = true;
    loop_later_close(&p->flush);
    loop_watch_close(&p->watch);
    p->h.on_end(p->h.ctx, why);
}

static void pipe_read(struct pipe *p)
{
    static _Thread_local char bytes[PIPE_READ_SIZE];
    for (int i = 0; i < PIPE_READS_MAX && !p->is_closed && !p->has_ended; i++) {
        ssize_t n = read(p->fd, bytes, sizeof bytes);
        if (n > 0) {
            p->h.on_bytes(p->h.ctx, str_view(bytes, (size_t)n));
            if (n < PIPE_READ_SIZE) /* was all: asking again would be a system call a frame */
                return;
        } else if (n == 0) {
            pipe_end(p, NULL);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            struct err why;
            err_set_errno(&why, errno, "pipe: reading");
            pipe_end(p, &why);
        }
    }
}

static void pipe_end_source(struct pipe *p)
{
    struct pipe_source source = p->source;
    p->source = (struct pipe_source){0};
    p->piece = STR("");
    if (source.next)
        source.done(source.ctx);
}

/* Nothing is written any more: who has lent something hears of it. */
static void pipe_drop_sources(struct pipe *p)
{
    struct pipe_queue *q = &p->queues[PIPE_DATA];
    pipe_end_source(p);
    if (p->begun == q)
        q->at += p->begun_left;
    p->begun = NULL;
    while (!pipe_is_empty(q)) {
        uint32_t len;
        memcpy(&len, q->bytes.p + q->at, sizeof len);
        q->at += sizeof len;
        if (len == 0) {
            memcpy(&p->source, q->bytes.p + q->at, sizeof p->source);
            q->at += sizeof p->source;
            pipe_end_source(p);
        }
        q->at += len;
    }
}

/* The next frame of a queue; of the data queue it may be a source's turn instead. */
static bool pipe_begin_queue(struct pipe *p, enum pipe_class class)
{
    struct pipe_queue *q = &p->queues[class];
    if (pipe_is_empty(q))
        return false;
    memcpy(&p->begun_left, q->bytes.p + q->at, sizeof p->begun_left);
    q->at += sizeof p->begun_left;
    if (p->begun_left) {
        p->begun = q;
    } else {
        memcpy(&p->source, q->bytes.p + q->at, sizeof p->source);
        q->at += sizeof p->source;
    }
    return true;
}

/* Picks the next frame when none is begun: control first, also between those of a source. */
static bool pipe_begin(struct pipe *p)
{
    while (!p->begun && p->piece.len == 0) {
        if (pipe_begin_queue(p, PIPE_CONTROL))
            return true;
        if (!p->source.next && !pipe_begin_queue(p, PIPE_DATA))
            return false;
        if (p->source.next)
            p->piece = p->source.next(p->source.ctx);
        if (p->source.next && p->piece.len == 0)
            pipe_end_source(p);
    }
    return true;
}

/* Of the begun frame; what was written is off. */
static ssize_t pipe_write_some(struct pipe *p)
{
    struct pipe_queue *q = p->begun;
    const char *from = q ? q->bytes.p + q->at : p->piece.p;
    /* MSG_NOSIGNAL: a dead child must not cost the endpoint a SIGPIPE. */
    ssize_t n = send(p->fd, from, q ? p->begun_left : p->piece.len, MSG_NOSIGNAL);
    if (n < 0)
        return n;
    if (!q) {
        p->piece = str_from(p->piece, (size_t)n);
        return n;
    }
    q->at += (size_t)n;
    p->begun_left -= (uint32_t)n;
    if (p->begun_left == 0)
        p->begun = NULL;
    if (pipe_is_empty(q)) {
        buf_shrink(&q->bytes, PIPE_KEPT);
        q->at = 0;
    }
    return n;
}

/* Is told by the system when it takes more: only while it is full. */
static void pipe_wait(struct pipe *p, bool on)
{
    if (p->is_waiting == on || p->has_ended)
        return;
    p->is_waiting = on;
    loop_watch_set(&p->watch, LOOP_READY_WRITE, on);
}

static void pipe_write(struct pipe *p)
{
    bool was_waiting = pipe_waiting(p) > 0;
    for (size_t written = 0; pipe_begin(p);) {
        if (written >= PIPE_TURN_MAX) {
            pipe_wait(p, true);
            return;
        }
        ssize_t n = pipe_write_some(p);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) { /* what else it is than full the reader finds out, after the last bytes */
            pipe_wait(p, errno == EAGAIN);
            return;
        }
        written += (size_t)n;
    }
    pipe_wait(p, false);
    if (was_waiting && p->h.on_drain)
        p->h.on_drain(p->h.ctx);
}

static void pipe_on_ready(void *ctx, enum loop_ready ready)
{
    struct pipe *p = ctx;
    p->depth++;
    if (ready == LOOP_READY_READ)
        pipe_read(p);
    else
        pipe_write(p);
    p->depth--;
    if (p->is_closed && p->depth == 0)
        pipe_free(p);
}

static void pipe_on_flush(void *ctx)
{
    const struct pipe *p = ctx;
    if (!p->is_waiting)
        pipe_on_ready(ctx, LOOP_READY_WRITE);
}

bool pipe_open(struct pipe **out, struct loop *l, int fd, const struct pipe_handlers *h,
               size_t queue_max, struct err *e)
{
    struct pipe *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(e, ERR_MEMORY, "pipe: no memory");
    p->h = *h;
    p->fd = fd;
    buf_init(&p->queues[PIPE_CONTROL].bytes, queue_max);
    buf_init(&p->queues[PIPE_DATA].bytes, queue_max);
    if (!loop_later_open(&p->flush, l, pipe_on_flush, p, e) ||
        !loop_watch_open(&p->watch, l, fd, pipe_on_ready, p, e)) {
        loop_later_close(&p->flush);
        pipe_free(p);
        return false;
    }
    loop_watch_set(&p->watch, LOOP_READY_READ, true);
    *out = p;
    return true;
}

void pipe_close(struct pipe *p)
{
    if (!p || p->is_closed)
        return;
    loop_later_close(&p->flush);
    loop_watch_close(&p->watch);
    pipe_drop_sources(p);
    p->is_closed = true;
    if (p->depth == 0)
        pipe_free(p);
}

static bool pipe_add(struct pipe *p, enum pipe_class class, uint32_t len, str bytes)
{
    struct pipe_queue *q = &p->queues[class];
    if (p->has_ended || p->is_closed)
        return false;
    if (q->at > q->bytes.len / 2) { /* what is written makes room before the buffer grows */
        buf_drop(&q->bytes, q->at);
        q->at = 0;
    }
    if (!buf_reserve(&q->bytes, sizeof len + bytes.len)) {
        q->bytes.full = false;
        return false;
    }
    buf_add_bytes(&q->bytes, &len, sizeof len);
    buf_add(&q->bytes, bytes);
    loop_later_set(&p->flush);
    return true;
}

bool pipe_send(struct pipe *p, enum pipe_class class, str frame)
{
    must(frame.len > 0 && frame.len <= UINT32_MAX);
    return pipe_add(p, class, (uint32_t)frame.len, frame);
}

bool pipe_send_from(struct pipe *p, const struct pipe_source *source)
{
    return pipe_add(p, PIPE_DATA, 0, str_view((const char *)source, sizeof *source));
}

bool pipe_flush(struct pipe *p, int64_t timeout_ms)
{
    int64_t end_ms = loop_ms() + timeout_ms;
    while (!p->is_closed && !p->has_ended && pipe_waiting(p)) {
        pipe_write(p);
        int64_t left_ms = end_ms - loop_ms();
        struct pollfd fd = {.fd = p->fd, .events = POLLOUT};
        if (!pipe_waiting(p))
            break;
        if (left_ms <= 0 || (poll(&fd, 1, (int)left_ms) < 0 && errno != EINTR) ||
            fd.revents & (POLLERR | POLLHUP))
            return false;
    }
    return pipe_waiting(p) == 0;
}

size_t pipe_waiting(const struct pipe *p)
{
    size_t queued = p->queues[0].bytes.len - p->queues[0].at;
    queued += p->queues[1].bytes.len - p->queues[1].at;
    return queued + p->piece.len + (p->source.next ? 1 : 0);
}
