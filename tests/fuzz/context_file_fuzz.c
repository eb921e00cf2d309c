/* Any bytes as the file of a saved context, and as the JSON of one whose sums are right: nothing is
 * read past them, and what was read is written and read back the same. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/digest.h"
#include "serve/context_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct context_file *f, struct arena *a)
{
    struct context_file again;
    struct buf out;
    struct err e;
    buf_init(&out, f->content.len + 8 * (f->scope.len + f->id.len + f->model.len) + 4096);
    if (!context_file_write(&out, f) || !context_file_read(&again, buf_view(&out), a, &e) ||
        !str_eq(f->scope, again.scope) || !str_eq(f->id, again.id) ||
        !str_eq(f->model, again.model) || !str_eq(f->content, again.content) ||
        f->tokens != again.tokens || f->cached_tokens != again.cached_tokens ||
        f->created_s != again.created_s || f->used_s != again.used_s ||
        f->expires_s != again.expires_s || f->is_pinned != again.is_pinned)
        abort();
    buf_deinit(&out);
}

static void put(char *to, uint64_t n)
{
    for (int i = 0; i < 8; i++)
        to[i] = (char)(uint8_t)(n >> (8 * i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct context_file f;
    struct arena a;
    struct buf whole;
    struct err e;
    char head[CONTEXT_FILE_HEADER] = "shoalctx\1";
    str json = str_view(data, size);
    arena_init(&a, 64u << 20);
    if (context_file_read(&f, json, &a, &e))
        check(&f, &a);
    put(head + 16, size);
    put(head + 24, digest_xxh3(json, CONTEXT_FILE_VERSION));
    put(head + 32, digest_xxh3(str_view(head, 32), CONTEXT_FILE_VERSION));
    buf_init(&whole, size + sizeof head);
    buf_add(&whole, str_view(head, sizeof head));
    buf_add(&whole, json);
    if (context_file_read(&f, buf_view(&whole), &a, &e))
        check(&f, &a);
    buf_deinit(&whole);
    arena_deinit(&a);
    return 0;
}
