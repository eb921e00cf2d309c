#include "wire/sse.h"

#include <string.h>

#define SSE_NAME_MAX 256

void sse_init(struct sse *s, enum sse_form form, size_t size_max)
{
    *s = (struct sse){.form = form};
    buf_init(&s->line, size_max);
    buf_init(&s->data, size_max);
    buf_init(&s->name, SSE_NAME_MAX);
}

void sse_deinit(struct sse *s)
{
    buf_deinit(&s->line);
    buf_deinit(&s->data);
    buf_deinit(&s->name);
}

static void sse_dispatch(struct sse *s)
{
    if (s->has_data && s->data.len)
        s->on_event(s->ctx, buf_view(&s->name), buf_view(&s->data));
    buf_clear(&s->data);
    buf_clear(&s->name);
    s->has_data = false;
}

static bool sse_field(struct sse *s, str line)
{
    size_t colon = str_find_byte(line, ':');
    str field = colon == STR_NONE ? line : str_sub(line, 0, colon);
    str value = colon == STR_NONE ? STR("") : str_from(line, colon + 1);
    if (str_starts(value, STR(" ")))
        value = str_from(value, 1);
    if (str_eq(field, STR("event"))) {
        buf_clear(&s->name);
        return buf_add(&s->name, value);
    }
    if (!str_eq(field, STR("data")))
        return true;
    bool ok = !s->has_data || buf_add_byte(&s->data, '\n');
    s->has_data = true;
    return ok && buf_add(&s->data, value);
}

static bool sse_line(struct sse *s, str line)
{
    bool ok = true;
    if (!s->is_begun && str_starts(line, STR("\xef\xbb\xbf")))
        line = str_from(line, 3);
    s->is_begun = true;
    if (s->form == SSE_FORM_LINES) {
        if (str_trim(line).len)
            s->on_event(s->ctx, STR(""), line);
    } else if (line.len == 0) {
        sse_dispatch(s);
    } else if (line.p[0] != ':') {
        ok = sse_field(s, line);
    } else if (s->on_comment) {
        s->on_comment(s->ctx, str_from(line, 1));
    }
    buf_clear(&s->line);
    return ok;
}

static size_t sse_line_end(str bytes)
{
    for (size_t i = 0; i < bytes.len; i++)
        if (bytes.p[i] == '\n' || bytes.p[i] == '\r')
            return i;
    return STR_NONE;
}

bool sse_feed(struct sse *s, str bytes, struct err *e)
{
    while (bytes.len && !s->is_broken) {
        if (s->is_after_cr && bytes.p[0] == '\n')
            bytes = str_from(bytes, 1);
        s->is_after_cr = false;
        size_t end = sse_line_end(bytes);
        if (end == STR_NONE) {
            s->is_broken = !buf_add(&s->line, bytes);
            break;
        }
        s->is_after_cr = bytes.p[end] == '\r';
        /* A line that lies in one piece is not copied. */
        str line = str_sub(bytes, 0, end);
        bytes = str_from(bytes, end + 1);
        bool ok = s->line.len == 0 || buf_add(&s->line, line);
        s->is_broken = !ok || line.len > s->line.size_max ||
                       !sse_line(s, s->line.len ? buf_view(&s->line) : line);
    }
    return !s->is_broken || err_set(e, ERR_LIMIT, "stream: an event or line above %zu bytes",
                                    s->line.size_max);
}
