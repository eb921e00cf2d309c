#include "api/api_frame_writer.h"

#include <string.h>

#define API_FRAME_WRITER_TOTAL 4u /* bytes of the total, in front of the first piece */

bool api_frame_writer_init(struct api_frame_writer *w, const struct api_frame *f, size_t size_max,
                           struct err *e)
{
    must(api_frame_is_long(f->kind));
    w->kind = f->kind; /* one by one: the frame's 64 KiB need no zeros */
    w->id = f->id;
    w->done = w->fields_at = w->lent_at = w->text_at = 0;
    w->is_begun = w->is_over = w->is_taken_back = false;
    buf_init(&w->fields, size_max);
    buf_init(&w->lent, size_max);
    api_frame_lend_body(&w->fields, &w->lent, f);
    w->total = w->fields.len;
    const struct api_frame_lent *lent = (const void *)w->lent.p;
    for (size_t i = 0; i < w->lent.len / sizeof *lent; i++)
        w->total += lent[i].text.len;
    if (!w->fields.full && !w->lent.full && w->total <= base_min(size_max, UINT32_MAX))
        return true;
    api_frame_writer_deinit(w);
    return err_set(e, ERR_LIMIT, "frame %s: longer than %zu bytes", api_frame_name(f->kind),
                   size_max);
}

void api_frame_writer_deinit(struct api_frame_writer *w)
{
    buf_deinit(&w->fields);
    buf_deinit(&w->lent);
    w->is_over = true;
}

/* The next count bytes of the body: fields up to the next text that is lent, that text, .. */
static void api_frame_writer_fill(struct api_frame_writer *w, char *to, size_t count)
{
    while (count) {
        const struct api_frame_lent *lent = (const struct api_frame_lent *)(const void *)w->lent.p;
        bool is_last = w->lent_at == w->lent.len / sizeof *lent;
        size_t end = is_last ? w->fields.len : lent[w->lent_at].at, n;
        if (w->fields_at < end) {
            n = base_min(count, end - w->fields_at);
            memcpy(to, w->fields.p + w->fields_at, n);
            w->fields_at += n;
        } else {
            must(!is_last);
            str rest = str_from(lent[w->lent_at].text, w->text_at);
            n = base_min(count, rest.len);
            memcpy(to, rest.p, n);
            w->text_at += n;
            if (n == rest.len) {
                w->lent_at++;
                w->text_at = 0;
            }
        }
        to += n;
        count -= n;
    }
}

str api_frame_writer_next(struct api_frame_writer *w)
{
    if (w->is_over)
        return STR("");
    char *to = w->frame + API_FRAME_HEADER_SIZE;
    size_t room = API_FRAME_PIECE_MAX;
    if (!w->is_begun) {
        uint32_t total = (uint32_t)w->total;
        memcpy(to, &total, sizeof total);
        to += API_FRAME_WRITER_TOTAL;
        room -= API_FRAME_WRITER_TOTAL;
    }
    size_t count = w->is_taken_back ? 0 : base_min(w->total - w->done, room);
    api_frame_writer_fill(w, to, count);
    w->done += count;
    w->is_over = w->is_taken_back || w->done == w->total;
    size_t size = API_FRAME_PIECE_MAX - room + count;
    api_frame_put_header(w->frame, size, w->is_begun ? API_FRAME_MORE : w->kind, w->id);
    w->is_begun = true;
    return str_view(w->frame, API_FRAME_HEADER_SIZE + size);
}

void api_frame_writer_take_back(struct api_frame_writer *w)
{
    w->is_taken_back = true;
    if (!w->is_begun)
        w->is_over = true;
}
