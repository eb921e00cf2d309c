/* Any bytes as a model: its family found, its numbers read, its plan built, its tensors bound. What
 * is taken must be a plan whose parts fit together. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arch/arch.h"
#include "tensor/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_plan(const struct plan *p)
{
    for (uint32_t i = 0; i < p->ops_count; i++)
        for (uint32_t k = 0; k < OP_IN_MAX; k++) {
            struct view v = p->ops[i].in[k];
            if (!op_is_none(v) && (v.value >= p->values_count ||
                                   v.first + (uint64_t)v.stride * (v.count - 1) + v.width >
                                       p->values[v.value].width))
                abort();
        }
    for (uint32_t i = 0; i < p->values_count; i++)
        if (p->values[i].slot >= p->slots_count ||
            p->slots[p->values[i].slot].width < p->values[i].width)
            abort();
}

static void build(const struct model_file *f, struct hparams *hp, struct kv_layout *layout)
{
    struct err e;
    struct arena a;
    struct plan p;
    struct weights w;
    const struct op_set plain = {OP_BIT(OP_ADD_RMS_NORM) - 1};
    arena_init(&a, 32u << 20);
    plan_init(&p, &a, PLAN_KIND_MAIN);
    if (hp->arch->build(&p, PLAN_KIND_MAIN, hp, &e) && plan_expand(&p, &plain, &e) &&
        plan_finish(&p, &e)) {
        check_plan(&p);
        if (plan_kv_layout(&p, KV_TYPE_F16, layout, &e) && layout->layers_count != hp->n_layer)
            abort();
        if (weights_bind(&w, &p, f, hp->arch->ignored, &a, &e) && w.count != p.weights_count)
            abort();
    }
    arena_deinit(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static struct hparams hp;
    static struct kv_layout layout;
    char path[64];
    struct err e;
    struct model_file *f;
    if (fd < 0)
        fd = memfd_create("arch_fuzz", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!model_file_open(&f, path, &e))
        return 0;
    if (arch_read(&hp, f, &e))
        build(f, &hp, &layout);
    model_file_close(f);
    return 0;
}
