/* Any bytes as a journal of a download, and as the record of what was pulled: what is read back
 * from what was read is the same, and no mark lies outside the file. */
#include <stdlib.h>
#include <string.h>

#include "store/pull_record.h"
#include "store/pull_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct pull_state *s)
{
    for (uint32_t i = 0; i < s->pieces; i++)
        if (s->marks[i].got > pull_state_piece_bytes(s, i))
            abort();
    if (pull_state_received(s) > s->size)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct pull_state s, again;
    struct pull_record r;
    struct buf b;
    struct err e;
    size_t end;
    str text = str_view(data, size);
    arena_init(&a, 64u << 20);
    buf_init(&b, 64u << 20);
    pull_record_parse(&r, text, &a);
    if (pull_state_read(&s, text, &end, &a, &e)) {
        if (end > size)
            abort();
        check(&s);
        pull_state_add_head(&b, &s);
        for (uint32_t i = 0; i < s.pieces; i++)
            if (s.marks[i].is_done)
                pull_state_add_done(&b, i, s.marks[i].hash);
        if (!pull_state_read(&again, buf_view(&b), &end, &a, &e) || end != b.len ||
            again.size != s.size || again.pieces != s.pieces || !str_eq(again.path, s.path))
            abort();
        for (uint32_t i = 0; i < s.pieces; i++)
            if (again.marks[i].is_done != s.marks[i].is_done)
                abort();
    }
    buf_deinit(&b);
    arena_deinit(&a);
    return 0;
}
