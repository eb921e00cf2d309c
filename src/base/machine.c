#include "base/machine.h"

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define MACHINE_PATH_MAX 4096
#define MACHINE_TEXT_MAX 65536
#define MACHINE_CGROUP_DEPTH 64 /* parents looked at */
#define MACHINE_NO_LIMIT ((uint64_t)1 << 60) /* cgroup v1 says "none" by a huge number */

/* --- CPU level --- */

#if defined(__x86_64__)

#define MACHINE_ARCH_REQ_XCOMP_PERM 0x1023 /* arch_prctl, Linux 5.16 */
#define MACHINE_XFEATURE_XTILEDATA 18

static bool machine_has(uint32_t reg, unsigned bit) { return reg >> bit & 1u; }

/* Which register states the operating system saves (Intel SDM volume 1, 13.3). */
static uint64_t machine_xcr0(void)
{
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

enum cpu_level machine_level(bool *has_bf16)
{
    uint32_t a, b, c, d, b7, c7, d7, a71 = 0;
    *has_bf16 = false;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !machine_has(c, 27)) /* OSXSAVE */
        return CPU_LEVEL_REF;
    uint64_t saved = machine_xcr0();
    bool has_fma_f16c = machine_has(c, 12) && machine_has(c, 29);
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7))
        return CPU_LEVEL_REF;
    /* ymm saved; AVX2, BMI1, BMI2 */
    if ((saved & 0x6) != 0x6 || !has_fma_f16c || !machine_has(b7, 5) || !machine_has(b7, 3) ||
        !machine_has(b7, 8))
        return CPU_LEVEL_REF;
    /* opmask and zmm saved; F, DQ, BW, VL */
    if ((saved & 0xe0) != 0xe0 || !machine_has(b7, 16) || !machine_has(b7, 17) ||
        !machine_has(b7, 30) || !machine_has(b7, 31))
        return CPU_LEVEL_AVX2;
    if (!machine_has(c7, 1) || !machine_has(c7, 11)) /* VBMI, VNNI */
        return CPU_LEVEL_AVX512;
    if (a >= 1 && __get_cpuid_count(7, 1, &a71, &b, &c, &d))
        *has_bf16 = machine_has(a71, 5);
    /* tile configuration and data saved; AMX-BF16, AMX-TILE, AMX-INT8 */
    if ((saved & 0x60000) != 0x60000 || !machine_has(d7, 22) || !machine_has(d7, 24) ||
        !machine_has(d7, 25))
        return CPU_LEVEL_VNNI;
    /* Linux gives a process tile registers only after it asked once. */
    return syscall(SYS_arch_prctl, MACHINE_ARCH_REQ_XCOMP_PERM, MACHINE_XFEATURE_XTILEDATA) == 0
             ? CPU_LEVEL_AMX
             : CPU_LEVEL_VNNI;
}

/* The brand string of cpuid 0x80000002..4, without blanks around it. */
static void machine_read_model(char out[64])
{
    uint32_t r[12], highest = __get_cpuid_max(0x80000000u, NULL);
    if (highest < 0x80000004u)
        return;
    for (uint32_t i = 0; i < 3; i++)
        __get_cpuid(0x80000002u + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3]);
    char text[sizeof r + 1] = {0};
    memcpy(text, r, sizeof r);
    str s = str_trim(str_of(text));
    memcpy(out, s.p, s.len);
    out[s.len] = 0;
}

#else

enum cpu_level machine_level(bool *has_bf16)
{
    *has_bf16 = false;
    return CPU_LEVEL_REF;
}

static void machine_read_model(char out[64]) { out[0] = 0; }

#endif

static const char *const machine_levels[CPU_LEVEL_COUNT] = {"ref", "avx2", "avx512", "vnni", "amx"};

const char *machine_level_name(enum cpu_level level)
{
    must((unsigned)level < CPU_LEVEL_COUNT);
    return machine_levels[level];
}

bool machine_level_parse(str name, enum cpu_level *out)
{
    for (unsigned i = 0; i < CPU_LEVEL_COUNT; i++)
        if (str_eq_z(name, machine_levels[i])) {
            *out = (enum cpu_level)i;
            return true;
        }
    return false;
}

/* --- small files of /proc and /sys --- */

struct machine_source {
    const char *root;
    char text[MACHINE_TEXT_MAX];
};

/* The beginning of a file, without the blanks around it; empty when it cannot be read. The view
 * holds until the next call. */
static str machine_text(struct machine_source *s, const char *format, ...) BASE_PRINTF(2, 3);
static str machine_text(struct machine_source *s, const char *format, ...)
{
    char path[MACHINE_PATH_MAX];
    int len = snprintf(path, sizeof path, "%s", s->root);
    va_list args;
    va_start(args, format);
    int more = len < 0 || (size_t)len >= sizeof path
                 ? -1
                 : vsnprintf(path + len, sizeof path - (size_t)len, format, args);
    va_end(args);
    if (more < 0 || (size_t)(len + more) >= sizeof path)
        return (str){NULL, 0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return (str){NULL, 0};
    size_t used = 0;
    ssize_t n;
    while (used < sizeof s->text && (n = read(fd, s->text + used, sizeof s->text - used)) > 0)
        used += (size_t)n;
    close(fd);
    return str_trim(str_view(s->text, used));
}

/* The number behind "name" at the start of a line: "MemTotal:  24 kB", "active_file 4096". */
static uint64_t machine_field(str text, const char *name)
{
    str line, word, rest = text;
    while (str_split(&rest, '\n', &line)) {
        /* numa lines start with "Node 0 " */
        if (str_starts(line, STR("Node "))) {
            line = str_from(line, 5);
            if (!str_split(&line, ' ', &word))
                continue;
        }
        if (!str_starts(line, str_of(name)))
            continue;
        line = str_trim(str_from(line, strlen(name)));
        uint64_t v = 0;
        if (str_split(&line, ' ', &word) && str_to_u64(word, &v))
            return str_eq_z(str_trim(line), "kB") ? v * 1024 : v;
    }
    return 0;
}

/* --- CPUs --- */

static void machine_read_cpus(struct machine *m)
{
    /* The kernel may know more CPUs than a cpu_set_t of 1024 bits; then it answers EINVAL. */
    cpu_set_t *set = CPU_ALLOC(8192);
    size_t size = CPU_ALLOC_SIZE(8192);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    m->cpus_online = online > 0 ? (uint32_t)online : 0;
    if (!set)
        return;
    CPU_ZERO_S(size, set);
    if (sched_getaffinity(0, size, set) == 0)
        for (uint16_t i = 0; i < 8192 && m->cpus_allowed < MACHINE_CPUS_MAX; i++)
            if (CPU_ISSET_S(i, size, set))
                m->cpu_ids[m->cpus_allowed++] = i;
    CPU_FREE(set);
}

/* How many allowed CPUs a list like "0-3,8" names. */
static uint32_t machine_count_list(const struct machine *m, str list)
{
    uint32_t count = 0;
    str part;
    while (str_split(&list, ',', &part)) {
        str first_text;
        uint64_t first, last;
        if (!str_split(&part, '-', &first_text) || !str_to_u64(first_text, &first))
            continue;
        if (part.len == 0 || !str_to_u64(part, &last))
            last = first;
        for (uint32_t i = 0; i < m->cpus_allowed; i++)
            count += m->cpu_ids[i] >= first && m->cpu_ids[i] <= last;
    }
    return count;
}

static void machine_read_caches(struct machine *m, struct machine_source *s)
{
    uint32_t cpu = m->cpus_allowed ? m->cpu_ids[0] : 0;
    for (int i = 0; i < 8; i++) {
        static const char base[] = "/sys/devices/system/cpu/cpu%u/cache/index%d/%s";
        uint64_t level = 0, size = 0;
        if (!str_to_u64(machine_text(s, base, cpu, i, "level"), &level) ||
            !str_to_size(machine_text(s, base, cpu, i, "size"), &size))
            continue;
        if (level == 2)
            m->l2_size = size;
        if (level == 3)
            m->l3_size = size;
    }
}

static void machine_read_nodes(struct machine *m, struct machine_source *s)
{
    for (uint32_t id = 0; id < 4 * MACHINE_NODES_MAX && m->nodes < MACHINE_NODES_MAX; id++) {
        str list = machine_text(s, "/sys/devices/system/node/node%u/cpulist", id);
        if (!list.p)
            continue;
        struct machine_node n = {.id = id, .cpus = machine_count_list(m, list)};
        str info = machine_text(s, "/sys/devices/system/node/node%u/meminfo", id);
        n.ram_total = machine_field(info, "MemTotal:");
        n.ram_free = machine_field(info, "MemFree:");
        m->node[m->nodes++] = n;
    }
}

/* --- cgroups --- */

/* Where a controller's directories lie and which one is ours: mount + path. */
struct machine_cgroup {
    char mount[MACHINE_PATH_MAX], path[MACHINE_PATH_MAX];
    bool is_v2, found;
};

static bool machine_list_has(str list, const char *word)
{
    str part;
    while (str_split(&list, ',', &part))
        if (str_eq_z(part, word))
            return true;
    return false;
}

/* A line of /proc/self/mountinfo: id parent dev root mount options ... - type source options.
 * Returns root and mount if it is the controller's hierarchy. */
static bool machine_parse_mount(str line, const char *controller, bool v2, str *root, str *mount)
{
    str field[5] = {{0}}, type = {0}, word;
    for (int i = 0; i < 5; i++)
        if (!str_split(&line, ' ', &field[i]))
            return false;
    size_t dash = str_find(line, STR(" - "));
    if (dash == STR_NONE)
        return false;
    line = str_from(line, dash + 3);
    if (!str_split(&line, ' ', &type) || !str_split(&line, ' ', &word))
        return false;
    bool is_it = v2 ? str_eq_z(type, "cgroup2")
                    : str_eq_z(type, "cgroup") && machine_list_has(line, controller);
    *root = field[3];
    *mount = field[4];
    return is_it;
}

/* Our path in the controller's hierarchy, from /proc/self/cgroup ("4:memory:/a", "0::/a"). */
static bool machine_parse_path(str text, const char *controller, bool v2, str *path)
{
    str line, id, names;
    while (str_split(&text, '\n', &line)) {
        if (!str_split(&line, ':', &id))
            continue;
        size_t colon = str_find_byte(line, ':');
        if (colon == STR_NONE)
            continue;
        names = str_sub(line, 0, colon);
        *path = str_from(line, colon + 1);
        if (v2 ? str_eq_z(id, "0") && names.len == 0 : machine_list_has(names, controller))
            return true;
    }
    return false;
}

static bool machine_copy(char *out, str s)
{
    if (s.len >= MACHINE_PATH_MAX)
        return false;
    if (s.len)
        memcpy(out, s.p, s.len);
    out[s.len] = 0;
    return true;
}

/* In a container the paths often start with the part that the mount hides: cut the mount's root
 * off; a path that is not below it means that the mount itself is ours. */
static void machine_find_cgroup(struct machine_cgroup *g, struct machine_source *s,
                                const char *controller, bool v2)
{
    str line, root = {0}, mount = {0}, path = {0};
    char hidden[MACHINE_PATH_MAX];
    *g = (struct machine_cgroup){.is_v2 = v2};
    str text = machine_text(s, "/proc/self/mountinfo");
    bool found = false;
    while (!found && str_split(&text, '\n', &line))
        found = machine_parse_mount(line, controller, v2, &root, &mount);
    if (!found || !machine_copy(g->mount, mount) || !machine_copy(hidden, root))
        return;
    if (!machine_parse_path(machine_text(s, "/proc/self/cgroup"), controller, v2, &path))
        return;
    root = str_of(str_eq_z(str_of(hidden), "/") ? "" : hidden);
    if (!str_starts(path, root) || str_find(path, STR("/..")) != STR_NONE)
        path = root;
    path = str_from(path, root.len);
    g->found = machine_copy(g->path, str_eq_z(path, "/") ? (str){NULL, 0} : path);
}

/* To the parent's path; false at the root. */
static bool machine_cgroup_up(struct machine_cgroup *g)
{
    char *slash = strrchr(g->path, '/');
    if (!slash)
        return false;
    *slash = 0;
    return true;
}

static void machine_read_memory_limit(struct machine *m, struct machine_source *s, bool v2)
{
    struct machine_cgroup g;
    machine_find_cgroup(&g, s, "memory", v2);
    for (int i = 0; g.found && i < MACHINE_CGROUP_DEPTH; i++) {
        const char *limit_file = v2 ? "memory.max" : "memory.limit_in_bytes";
        const char *used_file = v2 ? "memory.current" : "memory.usage_in_bytes";
        uint64_t limit, used = 0;
        if (str_to_u64(machine_text(s, "%s%s/%s", g.mount, g.path, limit_file), &limit) &&
            limit < MACHINE_NO_LIMIT && (!m->ram_limit || limit < m->ram_limit)) {
            (void)str_to_u64(machine_text(s, "%s%s/%s", g.mount, g.path, used_file), &used);
            str stat = machine_text(s, "%s%s/memory.stat", g.mount, g.path);
            const char *active = v2 ? "active_file " : "total_active_file ";
            const char *inactive = v2 ? "inactive_file " : "total_inactive_file ";
            uint64_t cache = machine_field(stat, active) + machine_field(stat, inactive);
            m->ram_limit = limit;
            m->ram_limit_used = used > cache ? used - cache : 0;
        }
        if (!machine_cgroup_up(&g))
            break;
    }
}

/* "max 100000" or "150000 100000" (v2); two files, -1 for none (v1). 0: no quota. */
static double machine_cgroup_cpus(struct machine_source *s, const struct machine_cgroup *g)
{
    uint64_t quota = 0, period = 0;
    str word, text;
    if (g->is_v2) {
        text = machine_text(s, "%s%s/cpu.max", g->mount, g->path);
        if (!str_split(&text, ' ', &word) || !str_to_u64(word, &quota) ||
            !str_to_u64(text, &period))
            return 0;
    } else if (!str_to_u64(machine_text(s, "%s%s/cpu.cfs_quota_us", g->mount, g->path), &quota) ||
               !str_to_u64(machine_text(s, "%s%s/cpu.cfs_period_us", g->mount, g->path), &period))
        return 0;
    return period ? (double)quota / (double)period : 0;
}

static void machine_read_quota(struct machine *m, struct machine_source *s, bool v2)
{
    struct machine_cgroup g;
    machine_find_cgroup(&g, s, "cpu", v2);
    for (int i = 0; g.found && i < MACHINE_CGROUP_DEPTH; i++) {
        double cpus = machine_cgroup_cpus(s, &g);
        if (cpus > 0 && (m->quota <= 0 || cpus < m->quota))
            m->quota = cpus;
        if (!machine_cgroup_up(&g))
            break;
    }
}

/* --- all of it --- */

void machine_read_from(struct machine *m, const char *root)
{
    *m = (struct machine){0};
    m->level = machine_level(&m->has_bf16);
    machine_read_model(m->model);
    machine_read_cpus(m);
    struct machine_source *s = malloc(sizeof *s);
    if (s) {
        s->root = root;
        str info = machine_text(s, "/proc/meminfo");
        m->ram_total = machine_field(info, "MemTotal:");
        m->ram_available = machine_field(info, "MemAvailable:");
        for (int v2 = 0; v2 < 2; v2++) { /* a host may use both for different controllers */
            machine_read_memory_limit(m, s, v2);
            machine_read_quota(m, s, v2);
        }
        machine_read_nodes(m, s);
        machine_read_caches(m, s);
        free(s);
    }
    m->cpus = m->cpus_allowed;
    if (m->quota > 0 && ceil(m->quota) < m->cpus)
        m->cpus = (uint32_t)ceil(m->quota);
}

void machine_read(struct machine *m) { machine_read_from(m, ""); }

uint64_t machine_ram_free(const struct machine *m)
{
    if (!m->ram_limit)
        return m->ram_available;
    uint64_t left = m->ram_limit > m->ram_limit_used ? m->ram_limit - m->ram_limit_used : 0;
    return m->ram_available && m->ram_available < left ? m->ram_available : left;
}
