#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/machine.h"

#define GIB (1ull << 30)

struct fake_file {
    const char *path, *text;
};

static char root[64];

static bool remove_file(void *ctx, const struct file_entry *entry)
{
    (void)ctx;
    unlink(entry->path);
    return true;
}

static bool remove_empty_dir(void *ctx, const struct file_entry *entry)
{
    rmdir(entry->path);
    ++*(int *)ctx;
    return true;
}

/* A root with these files, read, and removed again. */
static void read_fake(struct machine *m, const struct fake_file *files, size_t count)
{
    struct err e = {0};
    char path[256];
    strcpy(root, "/tmp/shoal_machine_XXXXXX");
    assert_non_null(mkdtemp(root));
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s%s", root, files[i].path);
        *strrchr(path, '/') = 0;
        assert_true(file_make_dirs(path, 0700, &e));
        snprintf(path, sizeof path, "%s%s", root, files[i].path);
        assert_true(file_write(path, str_of(files[i].text), 0600, &e));
    }
    machine_read_from(m, root);
    struct file_walk w = {.depth_max = 16, .entries_max = 1000, .on_entry = remove_file};
    assert_true(file_walk(root, &w, &e));
    for (int left = 1; left;) {
        left = 0;
        w.on_entry = remove_empty_dir;
        w.ctx = &left;
        assert_true(file_walk(root, &w, &e));
    }
    assert_int_equal(rmdir(root), 0);
}

#define MEMINFO                                                                              \
    {"/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\n"}

static void test_the_real_machine_can_be_read(void **state)
{
    (void)state;
    static struct machine m;
    machine_read(&m);
    assert_in_range(m.cpus, 1, m.cpus_allowed);
    assert_true(m.ram_total > 0 && m.ram_available <= m.ram_total);
    assert_int_equal(m.cpu_ids[0] < MACHINE_CPUS_MAX, 1);
    bool has_bf16;
    assert_int_equal(machine_level(&has_bf16), m.level);
    assert_int_equal(has_bf16, m.has_bf16);
    printf("%s, %s%s, %u of %u CPUs\n", m.model, machine_level_name(m.level),
           m.has_bf16 ? " + bf16" : "", m.cpus, m.cpus_online);
}

static void test_nothing_readable_means_unknown_not_a_guess(void **state)
{
    (void)state;
    static struct machine m;
    machine_read_from(&m, "/nowhere");
    assert_int_equal(m.ram_total, 0);
    assert_int_equal(m.ram_limit, 0);
    assert_int_equal(m.nodes, 0);
    assert_int_equal(machine_ram_free(&m), 0);
}

static void test_the_tightest_limit_above_us_counts_in_cgroup_v2(void **state)
{
    (void)state;
    static const struct fake_file files[] = {
        MEMINFO,
        {"/proc/self/mountinfo",
         "22 1 0:20 / /proc rw - proc proc rw\n"
         "30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"},
        {"/proc/self/cgroup", "0::/user.slice/app.scope\n"},
        {"/sys/fs/cgroup/user.slice/memory.max", "4294967296\n"},
        {"/sys/fs/cgroup/user.slice/memory.current", "2147483648\n"},
        {"/sys/fs/cgroup/user.slice/memory.stat",
         "anon 5\nfile 9\ninactive_file 536870912\nactive_file 536870912\n"},
        {"/sys/fs/cgroup/user.slice/app.scope/memory.max", "max\n"},
        {"/sys/fs/cgroup/user.slice/app.scope/cpu.max", "50000 100000\n"},
        {"/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n"},
    };
    static struct machine m;
    read_fake(&m, files, countof(files));
    assert_int_equal(m.ram_total, 16 * GIB);
    assert_int_equal(m.ram_limit, 4 * GIB);
    assert_int_equal(m.ram_limit_used, GIB);
    assert_int_equal(machine_ram_free(&m), 3 * GIB);
    assert_true(m.quota == 0.5);
    assert_int_equal(m.cpus, 1);
}

static void test_a_container_with_cgroup_v1_sees_its_own_limits(void **state)
{
    (void)state;
    static const struct fake_file files[] = {
        MEMINFO,
        {"/proc/self/mountinfo",
         "40 1 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
         "41 1 0:31 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"},
        {"/proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "12884901888\n"},
        {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n"},
        {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
        {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
    };
    static struct machine m;
    read_fake(&m, files, countof(files));
    assert_int_equal(m.ram_limit, 12 * GIB);
    assert_int_equal(machine_ram_free(&m), 8 * GIB); /* the machine itself has less */
    assert_true(m.quota <= 0);
    assert_int_equal(m.cpus, m.cpus_allowed);
}

static void test_no_limit_of_cgroup_v1_is_no_limit(void **state)
{
    (void)state;
    static const struct fake_file files[] = {
        MEMINFO,
        {"/proc/self/mountinfo", "40 1 0:30 / /cg rw - cgroup cgroup rw,memory\n"},
        {"/proc/self/cgroup", "5:memory:/a/b\n"},
        {"/cg/a/b/memory.limit_in_bytes", "9223372036854771712\n"},
        {"/sys/devices/system/node/node0/cpulist", "0-4095\n"},
        {"/sys/devices/system/node/node0/meminfo",
         "Node 0 MemTotal:       8388608 kB\nNode 0 MemFree:        1048576 kB\n"},
        {"/sys/devices/system/node/node2/cpulist", "\n"},
    };
    static struct machine m;
    read_fake(&m, files, countof(files));
    assert_int_equal(m.ram_limit, 0);
    assert_int_equal(machine_ram_free(&m), 8 * GIB);
    assert_int_equal(m.nodes, 2);
    assert_int_equal(m.node[0].cpus, m.cpus_allowed);
    assert_int_equal(m.node[0].ram_total, 8 * GIB);
    assert_int_equal(m.node[0].ram_free, GIB);
    assert_int_equal(m.node[1].id, 2);
    assert_int_equal(m.node[1].cpus, 0);
}

static void test_level_names_are_parsed_back(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CPU_LEVEL_COUNT; i++) {
        enum cpu_level level = CPU_LEVEL_COUNT;
        assert_true(machine_level_parse(str_of(machine_level_name((enum cpu_level)i)), &level));
        assert_int_equal(level, i);
    }
    enum cpu_level level;
    assert_false(machine_level_parse(STR("sse"), &level));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_real_machine_can_be_read),
        cmocka_unit_test(test_nothing_readable_means_unknown_not_a_guess),
        cmocka_unit_test(test_the_tightest_limit_above_us_counts_in_cgroup_v2),
        cmocka_unit_test(test_a_container_with_cgroup_v1_sees_its_own_limits),
        cmocka_unit_test(test_no_limit_of_cgroup_v1_is_no_limit),
        cmocka_unit_test(test_level_names_are_parsed_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
