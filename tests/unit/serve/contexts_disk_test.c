/* Files of saved contexts: a disk that does not keep up costs a file, not memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#define CONTEXTS_DISK_WAITING_MAX 1000u
#include "serve/contexts_disk.c"

static char dir[] = "/tmp/shoal_contexts_XXXXXX";

static void put(struct contexts_disk *d, const char *id)
{
    const struct context_file f = {.scope = STR("k"), .id = str_of(id), .model = STR("m"),
                                   .content = STR("{\"model\":\"m\"}"), .expires_s = 1};
    contexts_disk_put(d, &f, NULL, NULL);
}

static bool count(void *ctx, const struct context_file *f)
{
    (void)f;
    (*(int *)ctx)++;
    return true;
}

static void test_orders_of_more_bytes_than_may_wait_are_refused_until_there_is_room(void **state)
{
    struct loop *loop;
    struct contexts_disk *d;
    struct err e;
    int files = 0;
    (void)state;
    assert_true(loop_open(&loop, &e));
    assert_true(contexts_disk_open(&d, loop, dir, &e));
    const char *const ids[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    for (size_t i = 0; i < countof(ids); i++) /* about 250 bytes each; the loop stands still */
        put(d, ids[i]);
    size_t taken = d->waiting;
    assert_in_range(taken, 1, CONTEXTS_DISK_WAITING_MAX);
    contexts_disk_remove(d, STR("k"), STR("h")); /* has no bytes: always taken */
    for (int i = 0; i < 1000 && d->waiting; i++)
        loop_step(loop, 10);
    assert_int_equal(d->waiting, 0);
    put(d, "h");
    for (int i = 0; i < 1000 && d->waiting; i++)
        loop_step(loop, 10);
    contexts_disk_load(d, 100, count, &files);
    assert_in_range(files, 2, countof(ids) - 1); /* some of the first ones, and the last */
    contexts_disk_close(d);
    loop_close(loop);
}

static int end(void **state)
{
    uint64_t bytes;
    struct err e;
    char path[64];
    (void)state;
    bool ok = contexts_disk_clean(dir, &bytes, &e);
    snprintf(path, sizeof path, "%s/contexts/lock", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/contexts", dir);
    rmdir(path);
    return ok && rmdir(dir) == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders_of_more_bytes_than_may_wait_are_refused_until_there_is_room)};
    if (!mkdtemp(dir))
        return 1;
    return cmocka_run_group_tests_name("contexts_disk", tests, NULL, end);
}
