/* How fast text becomes ids: opening the vocabulary, then each file best of seven, in CPU time of
 * this thread. usage: tok_bench MODEL FILE...    (make bench-tok) */
#include <stdio.h>
#include <time.h>

#include "base/file.h"
#include "text/tok.h"

enum { RUNS = 7 };

static double cpu_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static bool bench_file(struct tok *t, const char *path, struct arena *a, struct err *e)
{
    str text;
    struct tok_ids ids;
    if (!file_read(&text, path, (size_t)64 << 20, a, e))
        return false;
    tok_ids_init(&ids, text.len + 16);
    double best = 1e9, first = 0;
    for (int run = 0; run < RUNS; run++) {
        tok_ids_clear(&ids);
        double start = cpu_ms();
        if (!tok_encode_str(t, text, true, false, &ids, e)) {
            tok_ids_deinit(&ids);
            return false;
        }
        double ms = cpu_ms() - start;
        first = run ? first : ms;
        best = ms < best ? ms : best;
    }
    printf("  %-28s %8zu bytes %7zu ids  first %6.1f ms  best %6.1f ms  %6.1f MB/s\n", path,
           text.len, tok_ids_count(&ids), first, best, (double)text.len / best / 1e3);
    tok_ids_deinit(&ids);
    return true;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct model_file *f = NULL;
    struct tok *t = NULL;
    struct arena a;
    int failed = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: tok_bench MODEL FILE...\n");
        return 2;
    }
    arena_init(&a, (size_t)256 << 20);
    double start = cpu_ms();
    bool ok = model_file_open(&f, argv[1], &e);
    double opened = cpu_ms();
    ok = ok && tok_open(&t, f, &e);
    double ready = cpu_ms();
    model_file_close(f);
    if (ok)
        printf("%s: file %.1f ms, tokenizer %.1f ms, %u tokens\n", argv[1], opened - start,
               ready - opened, vocab_count(tok_vocab(t)));
    for (int i = 2; ok && i < argc; i++)
        ok = bench_file(t, argv[i], &a, &e);
    if (!ok) {
        fprintf(stderr, "tok_bench: %s\n", e.text);
        failed = 1;
    }
    tok_close(t);
    arena_deinit(&a);
    return failed;
}
