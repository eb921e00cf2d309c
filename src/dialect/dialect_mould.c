#include "dialect/dialect_mould.h"

#include <string.h>

void dialect_mould_init(struct dialect_mould *m)
{
    *m = (struct dialect_mould){.head = 0};
    buf_init(&m->form, DIALECT_MOULD_MAX);
}

void dialect_mould_deinit(struct dialect_mould *m) { buf_deinit(&m->form); }
void dialect_mould_clear(struct dialect_mould *m) { m->head = 0; }

static bool stands_in(str text, str line)
{
    return text.p > line.p && text.p + text.len < line.p + line.len;
}

bool dialect_mould_set(struct dialect_mould *m, str line, str text)
{
    m->head = 0;
    buf_clear(&m->form);
    if (!stands_in(text, line) || text.p[-1] != '"' || text.p[text.len] != '"')
        return false;
    size_t head = (size_t)(text.p - line.p);
    if (!buf_add(&m->form, str_sub(line, 0, head)) ||
        !buf_add(&m->form, str_from(line, head + text.len)))
        return false;
    m->head = head;
    return true;
}

/* Nothing in it ends the string, is escaped or is not allowed there. */
static bool is_inside(str text)
{
    bool is_ascii = true;
    for (size_t i = 0; i < text.len; i++) {
        uint8_t b = (uint8_t)text.p[i];
        if (b < 0x20 || b == '"' || b == '\\')
            return false;
        is_ascii = is_ascii && b < 0x80;
    }
    return is_ascii || str_utf8_valid(text) == text.len;
}

bool dialect_mould_fits(const struct dialect_mould *m, str line, str *text)
{
    size_t tail = m->form.len - m->head;
    if (m->head == 0 || line.len <= m->form.len || memcmp(line.p, m->form.p, m->head) != 0 ||
        memcmp(line.p + line.len - tail, m->form.p + m->head, tail) != 0)
        return false;
    *text = str_sub(line, m->head, line.len - m->form.len);
    return is_inside(*text);
}

void dialect_mould_pour(const struct dialect_mould *m, str text, struct buf *out)
{
    buf_add(out, str_sub(buf_view(&m->form), 0, m->head));
    buf_add(out, text);
    buf_add(out, str_from(buf_view(&m->form), m->head));
}
