#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "serve/workers.h"

struct job {
    pthread_t ran_on;
    int runs, dones;
};

static struct loop *loop;
static struct workers *workers;

static void run(void *ctx)
{
    struct job *j = ctx;
    j->ran_on = pthread_self();
    j->runs++;
}

static void done(void *ctx)
{
    struct job *j = ctx;
    assert_int_equal(j->runs, 1);
    j->dones++;
}

static int begin(void **state)
{
    struct err e;
    (void)state;
    return loop_open(&loop, &e) && workers_open(&workers, loop, 2, 3, &e) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    workers_close(workers);
    loop_close(loop);
    return 0;
}

static void test_a_job_runs_elsewhere_and_is_done_on_the_loop(void **state)
{
    (void)state;
    struct job jobs[3] = {0};
    for (int i = 0; i < 3; i++)
        assert_true(workers_run(workers, &(struct workers_job){run, done, &jobs[i]}));
    for (int i = 0; i < 1000 && !(jobs[0].dones && jobs[1].dones && jobs[2].dones); i++)
        loop_step(loop, 10);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(jobs[i].dones, 1);
        assert_false(pthread_equal(jobs[i].ran_on, pthread_self()));
    }
}

static void test_more_jobs_than_may_are_refused_until_one_is_done(void **state)
{
    (void)state;
    struct job jobs[4] = {0};
    for (int i = 0; i < 3; i++)
        assert_true(workers_run(workers, &(struct workers_job){run, done, &jobs[i]}));
    assert_false(workers_run(workers, &(struct workers_job){run, done, &jobs[3]}));
    for (int i = 0; i < 1000 && !jobs[0].dones; i++)
        loop_step(loop, 10);
    assert_true(workers_run(workers, &(struct workers_job){run, done, &jobs[3]}));
    workers_close(workers); /* what runs is waited for and told */
    workers = NULL;
    for (int i = 0; i < 4; i++)
        assert_int_equal(jobs[i].dones, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_job_runs_elsewhere_and_is_done_on_the_loop, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_more_jobs_than_may_are_refused_until_one_is_done,
                                        begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
