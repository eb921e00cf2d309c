/* Bytes from a broken or hostile peer. First byte: the direction. Whatever decodes must encode to
 * the bytes it came from (the codec is canonical), made whole or frame by frame. */
#include <stdlib.h>
#include <string.h>

#include "api/api_frame_writer.h"

static void by_frames(const struct api_frame *f, str whole)
{
    static struct api_frame_writer w;
    struct err e;
    if (!api_frame_writer_init(&w, f, 8u << 20, &e))
        abort();
    for (str frame; (frame = api_frame_writer_next(&w)).len; whole = str_from(whole, frame.len))
        if (!str_starts(whole, frame))
            abort();
    if (whole.len)
        abort();
    api_frame_writer_deinit(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct api_frame_reader r;
    struct api_message_bytes m;
    struct api_frame f;
    struct buf out;
    struct err e;
    api_frame_reader_init(&r, data[0] & 1 ? API_FRAME_TO_CHILD : API_FRAME_TO_ENDPOINT, 1u << 20);
    buf_init(&out, 8u << 20);
    for (str in = str_view(data + 1, size - 1); in.len;) {
        if (api_frame_reader_next(&r, &in, &m, &e) != API_FRAME_GOT_MESSAGE)
            break;
        if (!m.is_dropped && api_frame_read(&f, &m, &e)) {
            size_t head = API_FRAME_HEADER_SIZE + (api_frame_is_long(m.kind) ? 4 : 0);
            buf_clear(&out);
            if (!api_frame_write(&out, &f, &e))
                abort();
            if (m.body.len + head <= API_FRAME_SIZE_MAX &&
                (out.len != m.body.len + head || memcmp(out.p + head, m.body.p, m.body.len)))
                abort();
            if (api_frame_is_long(m.kind))
                by_frames(&f, buf_view(&out));
        }
        arena_deinit(&m.arena);
    }
    buf_deinit(&out);
    api_frame_reader_deinit(&r);
    return 0;
}
