#include "kern/kern.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    void (*run)(struct kern *t);
} parts[] = {
    {"matmul", kern_matmul}, {"forms", kern_forms},   {"rows", kern_rows},
    {"attn", kern_attn},     {"sample", kern_sample},
};

/* Every pointer of the table. */
static void check_table(struct kern *t)
{
    const struct cpu_kernels *k = t->k;
    for (unsigned type = 0; type < QTYPE_WEIGHT_COUNT; type++)
        for (unsigned act = ACT_F32; act < ACT_COUNT; act++) {
            const struct cpu_matmul *m = &k->mm[act][type];
            kern_case(t, m->packed_size && m->pack_weight && m->unpack_row && m->gemv && m->gemm,
                      "matmul %s: an entry is missing", quant_name((enum qtype)type));
        }
    /* The rest of the struct is pointers; a new one is looked at the moment it exists. */
    const uint8_t *first = (const uint8_t *)&k->rms_norm, *end = (const uint8_t *)(k + 1);
    for (size_t i = 0; i < (size_t)(end - first) / sizeof(void *); i++) {
        uintptr_t p;
        memcpy(&p, first + i * sizeof p, sizeof p);
        kern_case(t, p != 0, "entry %zu behind rms_norm is missing", i);
    }
}

static void run_level(struct kern *t, enum cpu_level level, const char *part)
{
    struct cpu_kernels k;
    cpu_kernels_init(&k, level, false);
    t->k = &k;
    t->level = machine_level_name(level);
    t->is_ref = level == CPU_LEVEL_REF;
    check_table(t);
    for (size_t i = 0; i < countof(parts); i++) {
        if (part && strcmp(part, parts[i].name) != 0)
            continue;
        kern_seed(i + 1);
        parts[i].run(t);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--bench") == 0)
        return kern_bench(argc > 2 && *argv[2] ? argv[2] : NULL,
                          argc > 3 && *argv[3] ? argv[3] : NULL,
                          argc > 4 && *argv[4] ? argv[4] : NULL);
    /* Blocks come and go by the hundred thousand: a quarter of the time went into pages. */
    mallopt(M_MMAP_THRESHOLD, 1 << 28);
    mallopt(M_TRIM_THRESHOLD, 1 << 28);
    struct cpu_kernels ref;
    const char *tier = getenv("TEST_TIER");
    struct kern t = {.ref = &ref, .is_long = tier && !strcmp(tier, "long")};
    t.is_full = t.is_long || (tier && !strcmp(tier, "full"));
    bool has_bf16;
    cpu_kernels_init(&ref, CPU_LEVEL_REF, false);
    enum cpu_level best = machine_level(&has_bf16), only = CPU_LEVEL_REF;
    bool has_only = argc > 1 && machine_level_parse(str_of(argv[1]), &only);
    if (argc > 1 && (!has_only || only > best)) {
        fprintf(stderr, "kern_test: level '%s' is not on this machine\n", argv[1]);
        return 2;
    }
    for (unsigned level = CPU_LEVEL_REF; level <= best; level++)
        if (!has_only || level == only)
            run_level(&t, (enum cpu_level)level, argc > 2 ? argv[2] : NULL);
    printf("%u passed, %u failed\n", t.passed, t.failed);
    return t.failed ? 1 : 0;
}
