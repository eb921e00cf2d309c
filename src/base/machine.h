/* machine - what this computer can do for us: CPU level, usable CPUs, memory, NUMA nodes.
 *
 * Owns:      reading cpuid, xgetbv, affinity, cgroup v1 and v2, /proc/meminfo, sysfs.
 * Not:       which kernels exist (cpu/cpu_kernels), GPUs (cuda), what to do with it (budget, fit).
 * Invariant: what cannot be found is 0 ("unknown"), never a guess. The level counts an
 *            instruction set only when the operating system saves its registers too.
 * Thread:    any. machine_read looks at files, so once at start or for a report.
 * Limits:    MACHINE_CPUS_MAX CPUs, MACHINE_NODES_MAX nodes; more are left out.
 */
#ifndef SHOAL_BASE_MACHINE_H
#define SHOAL_BASE_MACHINE_H

#include "base/str.h"

#define MACHINE_CPUS_MAX 1024
#define MACHINE_NODES_MAX 64

/* Each level includes the ones before it. VNNI: AVX-512 with VNNI and VBMI on zmm registers. */
enum cpu_level {
    CPU_LEVEL_REF,
    CPU_LEVEL_AVX2, /* with FMA, F16C, BMI2 */
    CPU_LEVEL_AVX512, /* F, BW, DQ, VL */
    CPU_LEVEL_VNNI,
    CPU_LEVEL_AMX, /* tiles, INT8 and BF16, allowed to this process */
    CPU_LEVEL_COUNT,
};

struct machine_node {
    uint32_t id, cpus; /* cpus: usable ones */
    uint64_t ram_total, ram_free;
};

struct machine {
    enum cpu_level level;
    bool has_bf16;    /* AVX512_BF16: a property beside the level */
    char model[64];   /* "AMD EPYC 9B45" */
    uint32_t cpus;    /* CPUs we may run on: affinity, then the quota rounded up */
    uint32_t cpus_online;
    double quota;     /* cgroup CPUs, e.g. 1.5; 0: none */
    uint16_t cpu_ids[MACHINE_CPUS_MAX]; /* cpus_allowed of them, rising */
    uint32_t cpus_allowed; /* by affinity alone */
    uint64_t ram_total, ram_available; /* bytes; available: what the kernel thinks it can give */
    uint64_t ram_limit; /* smallest cgroup limit above us, 0: none */
    uint64_t ram_limit_used; /* bytes charged to that cgroup, page cache left out */
    uint32_t nodes;
    struct machine_node node[MACHINE_NODES_MAX];
    uint64_t l2_size, l3_size; /* bytes, of the first allowed CPU; 0: unknown */
};

/* Never fails: unknown fields stay 0. For AMX it asks the kernel for tile permission. */
void machine_read(struct machine *m);
/* The same with another root for /proc and /sys (tests); affinity and cpuid stay the real ones. */
void machine_read_from(struct machine *m, const char *root);
/* Only level and has_bf16; cheap. */
enum cpu_level machine_level(bool *has_bf16);
/* Bytes this process may still take: the smaller of available RAM and what the limit leaves;
 * 0: unknown. */
uint64_t machine_ram_free(const struct machine *m);

/* "ref" "avx2" "avx512" "vnni" "amx" */
const char *machine_level_name(enum cpu_level level);
bool machine_level_parse(str name, enum cpu_level *out);

#endif
