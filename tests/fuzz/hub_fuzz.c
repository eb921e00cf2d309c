/* Any bytes where a hub answers or a user writes a reference. First byte: which. Whatever they say,
 * a chosen file's name here stays one visible name. */
#include <stdlib.h>
#include <string.h>

#include "store/hub_pick.h"
#include "store/hub_ref.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool supports(void *ctx, str type) { return ctx == NULL && type.len < 8; }

static void try_list(str body, struct arena *a)
{
    struct hub_repo repo;
    struct err e;
    static const str quants[] = {STR_INIT(""), STR_INIT("Q4"), STR_INIT("a.gguf")};
    if (!hub_table[0]->read_list(&repo, body, a, &e))
        return;
    for (size_t i = 0; i < 2 * countof(quants); i++) {
        struct hub_query q = {.repo = STR("o/r"), .quant = quants[i % countof(quants)],
                              .wants_projector = i >= countof(quants), .supports = supports};
        struct hub_pick pick;
        if (!hub_pick(&pick, &repo, &q, a, &e))
            continue;
        for (uint32_t k = 0; k < pick.count; k++) {
            str base;
            if (!hub_ref_base(&base, pick.files[k]->path, &e))
                continue;
            if (!base.len || base.len > HUB_REF_NAME_MAX || base.p[0] == '.' ||
                memchr(base.p, '/', base.len) || memchr(base.p, 0, base.len))
                abort();
        }
    }
}

static void try_reference(str text)
{
    struct hub_ref r;
    struct err e = {0};
    if (!hub_ref_parse(&r, text, &e)) {
        if (e.code != ERR_USAGE)
            abort();
        return;
    }
    if (str_find(r.repo, STR("..")) != STR_NONE || str_find(r.revision, STR("..")) != STR_NONE ||
        !hub_ref_is_revision(r.revision))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    const str *names;
    uint32_t count;
    struct err e;
    if (size == 0)
        return 0;
    str rest = str_view(data + 1, size - 1);
    arena_init(&a, 64u << 20);
    switch (data[0] % 3) {
    case 0:
        try_list(rest, &a);
        break;
    case 1:
        try_reference(rest);
        break;
    default:
        if (hub_table[0]->read_search(&names, &count, rest, &a, &e) && count > HUB_FOUND_MAX)
            abort();
    }
    arena_deinit(&a);
    return 0;
}
