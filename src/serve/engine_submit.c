#include "serve/engine_submit.h"

#include <stdlib.h>

#include "api/api_frame_writer.h"

struct engine_submit {
    struct engine_submit **holder; /* NULL: it has left */
    struct api_frame_writer writer;
};

static void engine_submit_free(struct engine_submit *s)
{
    if (s->holder)
        *s->holder = NULL;
    api_frame_writer_deinit(&s->writer);
    free(s);
}

static str engine_submit_next(void *ctx)
{
    struct engine_submit *s = ctx;
    return api_frame_writer_next(&s->writer);
}

static void engine_submit_done(void *ctx) { engine_submit_free(ctx); }

/* One frame that waits behind others would keep 64 KiB for itself. */
static bool engine_submit_copy(struct engine_submit *s, struct pipe *p)
{
    bool ok = pipe_send(p, PIPE_DATA, api_frame_writer_next(&s->writer));
    engine_submit_free(s);
    return ok;
}

bool engine_submit_send(struct engine_submit **holder, struct pipe *p, const struct api_frame *f,
                        size_t size_max, struct err *e)
{
    struct engine_submit *s = malloc(sizeof *s);
    *holder = NULL;
    if (!s)
        return err_set(e, ERR_MEMORY, "engine: no memory for a request's frames");
    s->holder = holder;
    if (!api_frame_writer_init(&s->writer, f, size_max, e)) {
        free(s);
        return false;
    }
    const struct pipe_source source = {s, engine_submit_next, engine_submit_done};
    bool is_small = s->writer.total < ENGINE_SUBMIT_COPIED;
    if (is_small ? engine_submit_copy(s, p) : pipe_send_from(p, &source)) {
        if (!is_small)
            *holder = s;
        return true;
    }
    if (!is_small)
        engine_submit_free(s);
    return err_set(e, ERR_ENGINE, "engine: the child does not take its frames");
}

void engine_submit_leave(struct engine_submit *s)
{
    if (!s)
        return;
    *s->holder = NULL;
    s->holder = NULL;
    api_frame_writer_take_back(&s->writer);
}
