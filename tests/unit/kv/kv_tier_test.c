/* The tier over real files in a directory of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "kv/kv_tier.h"
#include "kv/tier_parts.h"

#define PAGE 6000u
#define WINDOW_PAGE 2000u
#define SMALL_LIMIT (40 * (8192 + 4096 + 2 * TIER_FORMAT_RECORD_SIZE)) /* files of a few slots */

static char dir[64];
static struct kv_layout layout;
static uint64_t floor_bytes;    /* of what is opened next */
static struct chrono_fake fake; /* ... its clock, if has_fake */
static bool has_fake;

struct world {
    struct mem mem;
    struct tier_disk disk;
    struct kv_tier *tier;
};

/* Stands between the tier and its disk: a short queue, writes that fail, what was ordered. */
static struct {
    struct tier_disk real;
    uint32_t under_way, under_way_max;
    bool writes_fail;
    uint32_t orders[TIER_ORDER_VOID + 1], file_last;
} between;

static bool between_start(void *self, const struct tier_order *o)
{
    if (between.under_way == between.under_way_max || !between.real.start(self, o))
        return false;
    between.under_way++;
    between.orders[o->kind]++;
    if (o->file > between.file_last)
        between.file_last = o->file;
    return true;
}

static bool between_next(void *self, struct tier_order *out)
{
    if (!between.real.next(self, out))
        return false;
    between.under_way--;
    if (between.writes_fail && out->kind == TIER_ORDER_WRITE)
        out->error = EIO;
    return true;
}

static void put_between(struct world *w)
{
    memset(&between, 0, sizeof between);
    between.real = w->disk;
    between.under_way_max = TIER_DISK_ORDERS_MAX;
    w->disk.start = between_start;
    w->disk.next = between_next;
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/shoal-tier-XXXXXX");
    layout = (struct kv_layout){.groups_count = 2, .window = {0, 64},
                                .page_size = {PAGE, WINDOW_PAGE}};
    floor_bytes = 0;
    has_fake = false;
    fake = (struct chrono_fake){.unix_ms_at_zero = 1000000};
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    uint64_t bytes;
    struct err e;
    char path[96];
    (void)state;
    bool ok = tier_parts_clean(dir, "*", &bytes, &e);
    snprintf(path, sizeof path, "%s/lock", dir);
    unlink(path);
    return ok && rmdir(dir) == 0 ? 0 : -1;
}

static void open_sized(struct world *w, uint64_t owner, uint64_t disk_bytes, bool keeps_ram)
{
    struct err e;
    struct tier_disk_options d = {.dir = dir, .owner = {{owner, 0}}};
    mem_init(&w->mem, SIZE_MAX);
    if (!tier_disk_open(&w->disk, &d, &e))
        fail_msg("%s", e.text);
    struct kv_tier_options o = {.layout = &layout, .ram_bytes = 16 * (PAGE + WINDOW_PAGE),
                                .keeps_ram = keeps_ram, .disk = &w->disk,
                                .disk_bytes = disk_bytes, .owner = d.owner, .build = "b",
                                .model = "m", .mem = &w->mem, .floor_bytes = floor_bytes,
                                .clock = has_fake ? chrono_fake_clock(&fake) : chrono_real};
    put_between(w);
    if (!kv_tier_init(&w->tier, &o, &e))
        fail_msg("%s", e.text);
}

static void open_world(struct world *w, uint64_t owner)
{
    open_sized(w, owner, 4u << 20, false);
}

static void close_world(struct world *w)
{
    kv_tier_flush(w->tier, 5000);
    assert_int_equal(between.under_way, 0);
    tier_disk_close(&w->disk);
    kv_tier_free(w->tier);
    mem_deinit(&w->mem);
}

/* Page number n of a prefix that begins with `first`. */
static struct kv_tier_page page_of(int32_t first, uint32_t n, uint32_t group, str scope)
{
    struct kv_tier_page p = {.group = group};
    int32_t tokens[KV_PAGE_TOKENS];
    for (uint32_t i = 0; i <= n; i++) {
        for (uint32_t k = 0; k < KV_PAGE_TOKENS; k++)
            tokens[k] = first + (int32_t)(i * 100 + k);
        p.parent = p.key;
        kv_tier_key(&p.key, i ? &p.parent : NULL, scope, tokens);
        p.depth++;
    }
    return p;
}

static void fill(uint8_t *bytes, const struct kv_tier_page *p)
{
    for (size_t i = 0; i < layout.page_size[p->group]; i++)
        bytes[i] = (uint8_t)(p->key.bytes[i % 32] + i);
}

static bool put(struct world *w, const struct kv_tier_page *p)
{
    void *bytes = kv_tier_put(w->tier, p);
    if (!bytes)
        return false;
    fill(bytes, p);
    kv_tier_put_end(w->tier, true);
    return true;
}

/* 1: there and right; 0: lost or not there; -1: other bytes. */
static int get(struct world *w, const struct kv_tier_page *p)
{
    static uint8_t want[PAGE];
    struct kv_tier_got got;
    uint32_t number = kv_tier_get(w->tier, &p->key, p->group);
    if (number == KV_TIER_NONE)
        return 0;
    while (!kv_tier_next(w->tier, &got))
        w->disk.wait(w->disk.self, 1000);
    assert_int_equal(got.number, number);
    fill(want, p);
    int r = !got.bytes ? 0 : memcmp(got.bytes, want, layout.page_size[p->group]) ? -1 : 1;
    kv_tier_got_end(w->tier, number);
    return r;
}

static void file_path(char *out, size_t size, uint64_t owner, uint32_t number)
{
    char part[TIER_PARTS_NAME_SIZE], name[TIER_PARTS_FILE_SIZE];
    tier_parts_name(part, &(struct tier_owner){{owner, 0}});
    tier_parts_file_name(name, number);
    snprintf(out, size, "%s/%s/%s", dir, part, name);
}

static uint32_t slots_of(const char *path)
{
    char head[TIER_FORMAT_BLOCK];
    struct tier_header h;
    struct err e;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(head, 1, sizeof head, f), sizeof head);
    fclose(f);
    assert_true(tier_format_read_header(&h, str_view(head, sizeof head), &e));
    return h.slots;
}

static void damage(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    int c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ 0x10, f);
    assert_int_equal(fclose(f), 0);
}

static void test_pages_come_back_after_a_restart(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, 1);
    for (uint32_t n = 0; n < 10; n++)
        for (uint32_t g = 0; g < 2; g++) {
            struct kv_tier_page p = page_of(5, n, g, STR("a"));
            assert_true(put(&w, &p));
            assert_false(put(&w, &p)); /* it is there */
            assert_true(kv_tier_has(w.tier, &p.key, g));
        }
    close_world(&w);
    open_world(&w, 1);
    for (uint32_t n = 0; n < 10; n++)
        for (uint32_t g = 0; g < 2; g++) {
            struct kv_tier_page p = page_of(5, n, g, STR("a"));
            assert_int_equal(get(&w, &p), 1);
        }
    close_world(&w);
}

static void test_a_key_depends_on_scope_and_on_every_token_before(void **state)
{
    (void)state;
    struct kv_tier_page a = page_of(5, 3, 0, STR("a")), b = page_of(5, 3, 0, STR("b"));
    struct kv_tier_page c = page_of(6, 3, 0, STR("a")), d = page_of(5, 2, 0, STR("a"));
    struct kv_tier_page public = page_of(5, 3, 0, STR(""));
    const struct kv_tier_page *const all[] = {&a, &b, &c, &d, &public};
    for (size_t i = 0; i < countof(all); i++)
        for (size_t k = 0; k < i; k++)
            assert_memory_not_equal(&all[i]->key, &all[k]->key, sizeof a.key);
    assert_memory_equal(&a.parent, &d.key, sizeof a.parent);
}

static void test_another_owner_sees_nothing_of_it(void **state)
{
    (void)state;
    struct world w;
    struct kv_tier_page p = page_of(5, 0, 0, STR(""));
    open_world(&w, 1);
    put(&w, &p);
    close_world(&w);
    open_world(&w, 2);
    assert_false(kv_tier_has(w.tier, &p.key, 0));
    assert_int_equal(get(&w, &p), 0);
    close_world(&w);
}

static void test_a_damaged_page_is_lost_and_counted_never_returned(void **state)
{
    (void)state;
    struct world w;
    struct kv_tier_stats s;
    char path[160];
    struct kv_tier_page p = page_of(5, 0, 0, STR("")), q = page_of(5, 1, 0, STR(""));
    open_world(&w, 1);
    put(&w, &p);
    put(&w, &q);
    close_world(&w);
    file_path(path, sizeof path, 1, 0);
    struct tier_header h = {.slots = slots_of(path), .page_size = PAGE};
    damage(path, (long)tier_format_slot_offset(&h, 0) + 4321);
    open_world(&w, 1);
    assert_int_equal(get(&w, &p), 0);
    assert_int_equal(get(&w, &q), 1);
    assert_false(kv_tier_has(w.tier, &p.key, 0));
    kv_tier_stats(w.tier, &s);
    assert_int_equal(s.bad_sums, 1);
    assert_false(s.is_off);
    assert_true(put(&w, &p)); /* it can be kept again */
    close_world(&w);
}

static void test_a_cut_file_loses_what_was_cut(void **state)
{
    (void)state;
    struct world w;
    char path[160];
    struct stat st;
    open_world(&w, 1);
    for (uint32_t n = 0; n < 4; n++) {
        struct kv_tier_page p = page_of(5, n, 0, STR(""));
        put(&w, &p);
    }
    close_world(&w);
    file_path(path, sizeof path, 1, 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 10), 0);
    open_world(&w, 1);
    int there = 0;
    for (uint32_t n = 0; n < 4; n++) {
        struct kv_tier_page p = page_of(5, n, 0, STR(""));
        there += get(&w, &p);
    }
    assert_int_equal(there, 3);
    close_world(&w);
}

/* Where a byte means anything, and some of the pages. */
static size_t attacked_byte(size_t i, size_t size)
{
    size_t record = TIER_FORMAT_BLOCK + 2 * TIER_FORMAT_RECORD_SIZE;
    if (i < 256)
        return i; /* the header: its fields, its sum, its texts */
    if (i < 256 + 2 * TIER_FORMAT_RECORD_SIZE)
        return record - 2 * TIER_FORMAT_RECORD_SIZE + i - 256; /* the records of both pages */
    return size - (i - 256 - 2 * TIER_FORMAT_RECORD_SIZE) * 509 - 1;
}

static void test_a_page_is_right_or_lost_whatever_byte_was_flipped(void **state)
{
    (void)state;
    struct world w;
    struct err e;
    struct arena a;
    char path[160];
    uint32_t lost = 0;
    str whole;
    struct kv_tier_page p[2] = {page_of(5, 0, 0, STR("a")), page_of(5, 1, 0, STR("a"))};
    open_world(&w, 1);
    for (int n = 0; n < 2; n++)
        assert_true(put(&w, &p[n]));
    close_world(&w);
    arena_init(&a, 8u << 20);
    file_path(path, sizeof path, 1, 0);
    assert_true(file_read(&whole, path, 4u << 20, &a, &e));
    char *bytes = arena_alloc_text(&a, whole.len);
    for (size_t i = 0; i < 256 + 2 * TIER_FORMAT_RECORD_SIZE + 24; i++) {
        memcpy(bytes, whole.p, whole.len);
        bytes[attacked_byte(i, whole.len)] ^= (char)(1u << (i % 8));
        assert_true(file_write(path, str_view(bytes, whole.len), 0600, &e));
        open_world(&w, 1);
        for (int n = 0; n < 2; n++) {
            int got = get(&w, &p[n]);
            assert_int_not_equal(got, -1);
            lost += got == 0;
        }
        close_world(&w);
    }
    assert_true(lost > 256);
    assert_true(file_write(path, whole, 0600, &e)); /* and nothing was wrong with it */
    open_world(&w, 1);
    assert_int_equal(get(&w, &p[0]), 1);
    assert_int_equal(get(&w, &p[1]), 1);
    close_world(&w);
    arena_deinit(&a);
}

static void test_files_that_are_not_ours_cost_nothing_and_damaged_ones_go(void **state)
{
    (void)state;
    struct world w;
    struct kv_tier_stats s;
    char path[160];
    struct kv_tier_page p = page_of(5, 0, 0, STR(""));
    open_world(&w, 1);
    put(&w, &p);
    close_world(&w);
    static const struct { uint32_t number; const char *from; bool stays; } rows[] = {
        {7, "tests/fuzz/corpus/tier_format/future", true},
        {8, "tests/fuzz/corpus/tier_format/whole", false}, /* of another owner */
        {9, "tests/fuzz/corpus/tier_format/foreign", false},
        {10, "tests/fuzz/corpus/tier_format/empty", false}};
    for (size_t i = 0; i < countof(rows); i++) {
        struct err e;
        struct arena a;
        str bytes;
        arena_init(&a, 1u << 20);
        file_path(path, sizeof path, 1, rows[i].number);
        assert_true(file_read(&bytes, rows[i].from, 1u << 20, &a, &e));
        assert_true(file_write(path, bytes, 0600, &e));
        arena_deinit(&a);
    }
    open_world(&w, 1);
    assert_int_equal(get(&w, &p), 1);
    kv_tier_stats(w.tier, &s);
    assert_int_equal(s.bad_files, 4);
    close_world(&w);
    for (size_t i = 0; i < countof(rows); i++) {
        file_path(path, sizeof path, 1, rows[i].number);
        assert_int_equal(access(path, F_OK) == 0, rows[i].stays);
        unlink(path);
    }
}

static void add_bytes(void *ctx, const struct tier_part *p)
{
    *(uint64_t *)ctx += p->bytes;
}

static void test_past_the_limit_the_page_used_longest_ago_goes(void **state)
{
    (void)state;
    struct world w;
    struct kv_tier_stats s;
    const uint64_t limit = SMALL_LIMIT;
    struct kv_tier_page kept = page_of(1, 0, 0, STR(""));
    open_sized(&w, 1, limit, false);
    put(&w, &kept);
    for (int32_t n = 0; n < 200; n++) {
        struct kv_tier_page p = page_of(1000 * (n + 1), 0, 0, STR(""));
        while (!put(&w, &p)) { /* all buffers are on their way */
            struct kv_tier_got got;
            w.disk.wait(w.disk.self, 1000);
            assert_false(kv_tier_next(w.tier, &got));
        }
        kv_tier_touch(w.tier, &kept.key, 0);
    }
    kv_tier_flush(w.tier, 5000);
    kv_tier_stats(w.tier, &s);
    assert_in_range(s.entries, 10, 40);
    assert_true(s.disk_bytes <= limit && s.disk_bytes <= s.disk_limit);
    assert_int_equal(s.evictions, 201 - s.entries);
    struct part_sum { uint64_t bytes; } sum = {0};
    struct err e;
    assert_true(tier_parts_list(dir, add_bytes, &sum, &e));
    assert_true(sum.bytes <= limit + (64u << 10)); /* blocks of the file system */
    assert_true(kv_tier_has(w.tier, &kept.key, 0));
    struct kv_tier_page last = page_of(200000, 0, 0, STR("")), first = page_of(1000, 0, 0, STR(""));
    assert_int_equal(get(&w, &last), 1);
    assert_int_equal(get(&w, &first), 0);
    close_world(&w);
}

static void test_buffers_that_are_a_tier_answer_without_the_disk(void **state)
{
    (void)state;
    struct world w;
    struct kv_tier_stats s;
    struct kv_tier_page p = page_of(5, 0, 0, STR(""));
    open_sized(&w, 1, 4u << 20, true);
    put(&w, &p);
    kv_tier_flush(w.tier, 5000);
    for (int i = 0; i < 3; i++)
        assert_int_equal(get(&w, &p), 1);
    kv_tier_stats(w.tier, &s);
    assert_int_equal(s.reads, 0);
    assert_int_equal(s.ram_bytes, PAGE);
    for (int32_t n = 0; n < 40; n++) { /* others need the buffers */
        struct kv_tier_page other = page_of(1000 * (n + 1), 0, 0, STR(""));
        put(&w, &other);
        kv_tier_flush(w.tier, 5000);
    }
    assert_int_equal(get(&w, &p), 1);
    kv_tier_stats(w.tier, &s);
    assert_int_equal(s.reads, 1);
    close_world(&w);
}

static void test_without_a_disk_pages_live_as_long_as_there_are_buffers(void **state)
{
    (void)state;
    struct world w = {.tier = NULL};
    struct err e;
    mem_init(&w.mem, SIZE_MAX);
    struct kv_tier_options o = {.layout = &layout, .ram_bytes = 20 * (PAGE + WINDOW_PAGE),
                                .keeps_ram = true, .build = "b", .model = "m", .mem = &w.mem,
                                .clock = chrono_real};
    assert_true(kv_tier_init(&w.tier, &o, &e));
    for (int32_t n = 0; n < 50; n++) {
        struct kv_tier_page p = page_of(1000 * n, 0, 0, STR(""));
        assert_true(put(&w, &p));
        assert_int_equal(get(&w, &p), 1);
    }
    struct kv_tier_page first = page_of(0, 0, 0, STR(""));
    assert_false(kv_tier_has(w.tier, &first.key, 0));
    kv_tier_free(w.tier);
    mem_deinit(&w.mem);
}

/* What the disk has done is taken; no page is waited for. */
static void settle(struct world *w)
{
    struct kv_tier_got got;
    while (between.under_way) {
        w->disk.wait(w->disk.self, 1000);
        assert_false(kv_tier_next(w->tier, &got));
    }
}

static void test_below_the_floor_its_own_slots_are_used_again(void **state)
{
    (void)state;
    struct world w;
    struct kv_tier_stats s;
    char path[160];
    open_sized(&w, 1, SMALL_LIMIT, false);
    struct kv_tier_page first = page_of(1000, 0, 0, STR(""));
    put(&w, &first);
    settle(&w);
    file_path(path, sizeof path, 1, 0);
    uint32_t slots = slots_of(path);
    for (uint32_t n = 1; n < slots; n++) {
        struct kv_tier_page p = page_of(1000 * (int32_t)(n + 1), 0, 0, STR(""));
        put(&w, &p);
        settle(&w);
    }
    close_world(&w);
    floor_bytes = UINT64_MAX / 2; /* more than any disk has free */
    has_fake = true;
    open_sized(&w, 1, SMALL_LIMIT, false);
    for (int32_t n = 0; n < 20; n++) {
        struct kv_tier_page p = page_of(900000 + 1000 * n, 0, 0, STR(""));
        assert_true(put(&w, &p)); /* the first one is written into a file that cannot be made */
        settle(&w);
        assert_int_equal(kv_tier_has(w.tier, &p.key, 0), n > 0);
    }
    assert_int_equal(between.orders[TIER_ORDER_MAKE], 1);
    kv_tier_stats(w.tier, &s);
    assert_int_equal(s.entries, slots);
    assert_int_equal(s.files, 1);
    assert_false(s.is_off);
    for (int32_t n = 0; n < 20; n++) { /* it asks again, and numbers of files do not run out */
        struct kv_tier_page p = page_of(2000000 + 1000 * n, 0, 0, STR(""));
        chrono_fake_add_ms(&fake, 31000);
        put(&w, &p);
        settle(&w);
    }
    assert_int_equal(between.orders[TIER_ORDER_MAKE], 21);
    assert_int_equal(between.file_last, 1);
    close_world(&w);
}

static void test_what_only_a_lost_disk_has_can_be_kept_in_ram_again(void **state)
{
    (void)state;
    struct world w;
    struct kv_tier_stats s;
    struct kv_tier_page p = page_of(5, 0, 0, STR(""));
    open_sized(&w, 1, 4u << 20, true);
    put(&w, &p);
    settle(&w);
    for (int32_t n = 0; n < 40; n++) { /* others take its buffer */
        struct kv_tier_page other = page_of(1000 * (n + 1), 0, 0, STR(""));
        between.writes_fail = n == 39;
        put(&w, &other);
        settle(&w);
    }
    kv_tier_stats(w.tier, &s);
    assert_true(s.is_off);
    assert_false(kv_tier_has(w.tier, &p.key, 0));
    assert_true(put(&w, &p));
    assert_int_equal(get(&w, &p), 1);
    close_world(&w);
}

static void test_a_flush_stores_every_use_though_the_queue_is_short(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, 1);
    for (int32_t n = 0; n < 30; n++) {
        struct kv_tier_page p = page_of(1000 * (n + 1), 0, 0, STR(""));
        assert_true(put(&w, &p));
        settle(&w);
    }
    for (int32_t n = 0; n < 30; n++) {
        struct kv_tier_page p = page_of(1000 * (n + 1), 0, 0, STR(""));
        kv_tier_touch(w.tier, &p.key, 0);
    }
    between.under_way_max = 4;
    kv_tier_flush(w.tier, 60000);
    assert_int_equal(between.orders[TIER_ORDER_TOUCH], 30);
    close_world(&w);
    assert_int_equal(between.orders[TIER_ORDER_TOUCH], 30); /* once */
}

static uint64_t forget(struct world *w, const struct kv_tier_page *p, bool ram, bool disk)
{
    return kv_tier_forget(w->tier, &p->key, p->group, ram, disk);
}

static void test_a_forgotten_page_does_not_come_back_after_a_restart(void **state)
{
    (void)state;
    struct world w;
    struct kv_tier_page p[9];
    struct kv_tier_stats stats;
    uint64_t pages = 0;
    open_world(&w, 1);
    for (uint32_t n = 0; n < 9; n++) {
        p[n] = page_of(5, n, 0, STR("a"));
        assert_true(put(&w, &p[n]));
    }
    assert_int_equal(forget(&w, &p[8], true, true), PAGE); /* perhaps on its way: found no more */
    assert_false(kv_tier_has(w.tier, &p[8].key, 0));
    assert_int_equal(forget(&w, &p[8], true, true), 0);
    close_world(&w);
    open_world(&w, 1);
    between.under_way_max = 2; /* voided a few at a time */
    assert_false(kv_tier_has(w.tier, &p[8].key, 0));
    for (uint32_t n = 4; n < 8; n++)
        assert_int_equal(forget(&w, &p[n], true, true), PAGE);
    assert_false(kv_tier_has(w.tier, &p[4].key, 0));
    assert_int_equal(get(&w, &p[3]), 1);
    close_world(&w);
    open_world(&w, 1);
    for (uint32_t n = 0; n < 8; n++)
        assert_int_equal(get(&w, &p[n]), n < 4);
    assert_true(put(&w, &p[4])); /* its place can be used again */
    assert_int_equal(kv_tier_forget_all(w.tier, true, true, &pages), 5 * PAGE);
    assert_int_equal(pages, 5);
    kv_tier_flush(w.tier, 5000);
    kv_tier_stats(w.tier, &stats);
    assert_int_equal(stats.disk_bytes, 0);
    close_world(&w);
    open_world(&w, 1);
    kv_tier_stats(w.tier, &stats);
    assert_int_equal(stats.entries, 0);
    close_world(&w);
}

static void test_what_is_spared_stays_when_all_is_forgotten(void **state)
{
    (void)state;
    struct world w;
    struct kv_tier_page p[4];
    uint64_t pages = 0;
    open_world(&w, 1);
    for (uint32_t n = 0; n < 4; n++) {
        p[n] = page_of(5, n, 0, STR("a"));
        assert_true(put(&w, &p[n]));
    }
    kv_tier_flush(w.tier, 5000);
    kv_tier_spare(w.tier, &p[0].key, 0);
    kv_tier_spare(w.tier, &p[1].key, 0);
    kv_tier_spare(w.tier, &p[1].key, 1); /* not there */
    assert_int_equal(kv_tier_forget_all(w.tier, true, true, &pages), 2 * PAGE);
    close_world(&w);
    open_world(&w, 1);
    for (uint32_t n = 0; n < 4; n++)
        assert_int_equal(get(&w, &p[n]), n < 2);
    assert_int_equal(kv_tier_forget_all(w.tier, true, true, &pages), 2 * PAGE); /* once spared */
    assert_int_equal(pages, 4);
    close_world(&w);
}

static void test_a_page_that_is_read_while_it_is_forgotten_is_read_whole(void **state)
{
    (void)state;
    struct world w;
    struct kv_tier_page p = page_of(5, 0, 0, STR("a"));
    struct kv_tier_got got;
    static uint8_t want[PAGE];
    open_world(&w, 1);
    assert_true(put(&w, &p));
    close_world(&w);
    open_world(&w, 1);
    uint32_t number = kv_tier_get(w.tier, &p.key, 0);
    assert_int_not_equal(number, KV_TIER_NONE);
    assert_int_equal(forget(&w, &p, true, true), PAGE);
    assert_int_equal(kv_tier_get(w.tier, &p.key, 0), KV_TIER_NONE);
    assert_false(put(&w, &p)); /* not before it is gone */
    while (!kv_tier_next(w.tier, &got))
        w.disk.wait(w.disk.self, 1000);
    fill(want, &p);
    assert_memory_equal(got.bytes, want, PAGE);
    kv_tier_got_end(w.tier, number);
    assert_true(put(&w, &p));
    assert_int_equal(get(&w, &p), 1);
    close_world(&w);
}

static void test_buffers_and_files_are_forgotten_apart(void **state)
{
    (void)state;
    struct world w;
    struct kv_tier_page p = page_of(5, 0, 0, STR("a"));
    struct kv_tier_stats stats;
    open_sized(&w, 1, 4u << 20, true);
    assert_true(put(&w, &p));
    kv_tier_flush(w.tier, 5000);
    assert_int_equal(forget(&w, &p, true, false), PAGE);
    kv_tier_stats(w.tier, &stats);
    assert_int_equal(stats.ram_bytes, 0);
    assert_int_equal(get(&w, &p), 1); /* from its file, and in a buffer again */
    assert_int_equal(forget(&w, &p, false, true), PAGE);
    assert_int_equal(get(&w, &p), 1);
    assert_int_equal(forget(&w, &p, false, true), 0);
    assert_int_equal(forget(&w, &p, true, false), PAGE);
    assert_false(kv_tier_has(w.tier, &p.key, 0));
    close_world(&w);
}

static void test_a_second_process_is_refused_by_name(void **state)
{
    (void)state;
    struct world w;
    struct tier_disk second;
    struct tier_disk_options o = {.dir = dir, .owner = {{1, 0}}};
    struct err e;
    uint64_t bytes;
    open_world(&w, 1);
    assert_false(tier_disk_open(&second, &o, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_non_null(strstr(e.text, "another server"));
    assert_false(tier_parts_clean(dir, "*", &bytes, &e));
    assert_non_null(strstr(e.text, "a server is using it"));
    o.owner.id.low = 2; /* another model: its own part */
    assert_true(tier_disk_open(&second, &o, &e));
    tier_disk_close(&second);
    close_world(&w);
}

static void count_part(void *ctx, const struct tier_part *p)
{
    struct tier_part *sum = ctx;
    sum->files += p->files;
    sum->bytes += p->bytes;
    sum->is_locked = sum->is_locked || p->is_locked;
    sum->has_header = sum->has_header || p->has_header;
}

static void test_parts_are_listed_trimmed_and_cleaned(void **state)
{
    (void)state;
    struct world w;
    struct err e;
    uint64_t bytes;
    struct kv_tier_page p = page_of(5, 0, 0, STR(""));
    for (uint64_t owner = 1; owner <= 2; owner++) {
        open_world(&w, owner);
        put(&w, &p);
        close_world(&w);
    }
    struct tier_part sum = {.files = 0};
    assert_true(tier_parts_list(dir, count_part, &sum, &e));
    assert_int_equal(sum.files, 2);
    assert_true(sum.bytes >= 2 * PAGE && sum.has_header && !sum.is_locked);
    assert_int_equal(tier_parts_trim(dir, &(struct tier_owner){{1, 0}}, 1u << 30), sum.bytes / 2);
    assert_int_equal(tier_parts_trim(dir, &(struct tier_owner){{1, 0}}, 0), 0);
    open_world(&w, 1);
    assert_int_equal(get(&w, &p), 1); /* its own part stays */
    close_world(&w);
    assert_true(tier_parts_clean(dir, "*", &bytes, &e));
    assert_true(bytes >= PAGE);
    sum = (struct tier_part){.files = 0};
    assert_true(tier_parts_list(dir, count_part, &sum, &e));
    assert_int_equal(sum.files, 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_pages_come_back_after_a_restart),
        CASE(test_a_key_depends_on_scope_and_on_every_token_before),
        CASE(test_another_owner_sees_nothing_of_it),
        CASE(test_a_damaged_page_is_lost_and_counted_never_returned),
        CASE(test_a_cut_file_loses_what_was_cut),
        CASE(test_a_page_is_right_or_lost_whatever_byte_was_flipped),
        CASE(test_files_that_are_not_ours_cost_nothing_and_damaged_ones_go),
        CASE(test_past_the_limit_the_page_used_longest_ago_goes),
        CASE(test_buffers_that_are_a_tier_answer_without_the_disk),
        CASE(test_without_a_disk_pages_live_as_long_as_there_are_buffers),
        CASE(test_below_the_floor_its_own_slots_are_used_again),
        CASE(test_what_only_a_lost_disk_has_can_be_kept_in_ram_again),
        CASE(test_a_flush_stores_every_use_though_the_queue_is_short),
        CASE(test_a_forgotten_page_does_not_come_back_after_a_restart),
        CASE(test_what_is_spared_stays_when_all_is_forgotten),
        CASE(test_a_page_that_is_read_while_it_is_forgotten_is_read_whole),
        CASE(test_buffers_and_files_are_forgotten_apart),
        CASE(test_a_second_process_is_refused_by_name),
        CASE(test_parts_are_listed_trimmed_and_cleaned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
