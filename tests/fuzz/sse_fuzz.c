/* Any bytes as a stream, in both forms: whole and byte by byte it gives the same events, or the
 * same refusal. */
#include <stdlib.h>
#include <string.h>

#include "wire/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SIZE_MAX_EVENT = 64 };

static void note(void *ctx, str name, str data)
{
    struct buf *out = ctx;
    buf_printf(out, "%zu:%.*s=%zu:", name.len, STR_ARG(name), data.len);
    buf_add(out, data);
    buf_add_byte(out, '\n');
}

static bool run(struct buf *out, enum sse_form form, str bytes, size_t piece)
{
    struct sse s;
    struct err e;
    bool ok = true;
    sse_init(&s, form, SIZE_MAX_EVENT);
    s.on_event = note;
    s.ctx = out;
    for (size_t i = 0; ok && i < bytes.len; i += piece)
        ok = sse_feed(&s, str_sub(bytes, i, piece), &e);
    sse_deinit(&s);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int form = SSE_FORM_EVENTS; form <= SSE_FORM_LINES; form++) {
        struct buf whole, parts;
        str bytes = str_view(data, size);
        buf_init(&whole, 1u << 24);
        buf_init(&parts, 1u << 24);
        bool a = run(&whole, (enum sse_form)form, bytes, size + 1);
        bool b = run(&parts, (enum sse_form)form, bytes, 1);
        if (a != b || !str_eq(buf_view(&whole), buf_view(&parts)))
            abort();
        buf_deinit(&whole);
        buf_deinit(&parts);
    }
    return 0;
}
