#include <stdio.h>
#include <stdlib.h>

#include "cli/bench.h"

#define BENCH_OUT_MAX ((size_t)16 << 20)

static const struct cmd_flag cmd_bench_flags[] = {
    {.name = "p",
     .value = "N",
     .spec = {.type = CONFIG_TYPE_INT, .max = 1 << 20},
     .standard = "512",
     .help = "tokens of the prompt test; 0: none"},
    {.name = "n",
     .value = "N",
     .spec = {.type = CONFIG_TYPE_INT, .max = 1 << 20},
     .standard = "128",
     .help = "tokens of the generation test; 0: none"},
    {.name = "batch",
     .value = "LIST",
     .spec = {.type = CONFIG_TYPE_TEXT},
     .standard = "1,2,4,8",
     .help = "sequences that generate together"},
    {.name = "depth",
     .value = "LIST",
     .spec = {.type = CONFIG_TYPE_TEXT},
     .standard = "0",
     .help = "tokens already in the cache"},
    {.name = "reps",
     .value = "N",
     .spec = {.type = CONFIG_TYPE_INT, .min = 1, .max = BENCH_REPS_MAX},
     .standard = "5",
     .help = "repetitions"},
    {.name = "against", .value = "URL", .spec = {.type = CONFIG_TYPE_TEXT}, .is_later = true},
    {.name = "scenario", .value = "S", .spec = {.type = CONFIG_TYPE_TEXT}, .is_later = true},
    {.name = "agents", .value = "N", .spec = {.type = CONFIG_TYPE_INT}, .is_later = true},
    {.name = "prompt-tokens", .value = "N", .spec = {.type = CONFIG_TYPE_INT}, .is_later = true},
    {.name = "out", .value = "N", .spec = {.type = CONFIG_TYPE_INT}, .is_later = true},
    {.name = "rounds", .value = "N", .spec = {.type = CONFIG_TYPE_INT}, .is_later = true},
    {.name = "dialect", .value = "D", .spec = {.type = CONFIG_TYPE_TEXT}, .is_later = true},
};

/* "1,2,4" into list[BENCH_LIST_MAX]. */
static bool cmd_bench_list(const struct cmd_context *c, const char *flag, uint32_t max,
                           uint32_t *list, uint32_t *count, struct err *e)
{
    uint64_t min = max <= BENCH_BATCH_MAX ? 1 : 0, v;
    str rest = cmd_text(c, flag), item;
    while (str_split(&rest, ',', &item)) {
        if (!str_to_u64(item, &v) || v < min || v > max || *count == BENCH_LIST_MAX)
            return err_set(e, ERR_USAGE, "bench: -%s: at most %d integers %llu..%u divided by "
                           "commas expected, got \"%.*s\"", flag, BENCH_LIST_MAX,
                           (unsigned long long)min, max,
                           STR_ARG(str_sub(cmd_text(c, flag), 0, 40)));
        list[(*count)++] = (uint32_t)v;
    }
    return *count || err_set(e, ERR_USAGE, "bench: -%s: a list of integers expected", flag);
}

static bool cmd_bench_fill(struct bench *b, struct err *e)
{
    const struct cmd_context *c = b->c;
    b->prompt = (uint32_t)cmd_number(c, "p");
    b->generated = (uint32_t)cmd_number(c, "n");
    b->reps = (uint32_t)cmd_number(c, "reps");
    return cmd_bench_list(c, "batch", BENCH_BATCH_MAX, b->batches, &b->batches_count, e) &&
           cmd_bench_list(c, "depth", 1u << 20, b->depths, &b->depths_count, e) &&
           cmd_models_find(c, c->words[0], &b->model, e);
}

static bool cmd_bench_run(struct cmd_context *c, struct err *e)
{
    struct buf out;
    struct bench *b = calloc(1, sizeof *b);
    if (!b)
        return err_set(e, ERR_MEMORY, "bench: no memory");
    b->c = c;
    buf_init(&out, BENCH_OUT_MAX);
    bool ok = cmd_bench_fill(b, e) && bench_run_open(b, e) && bench_run_all(b, e);
    if (ok && cmd_bool(c, "json"))
        bench_print_json(&out, b);
    else if (ok)
        bench_print_text(&out, b);
    if (ok)
        fwrite(out.p, 1, out.len, stdout);
    buf_deinit(&out);
    bench_run_close(b);
    free(b);
    return ok;
}

const struct cmd cmd_bench = {
    .name = "bench",
    .words = "MODEL",
    .words_min = 1,
    .words_max = 1,
    .summary = "How fast a model reads a prompt and generates, beside the memory's bandwidth",
    .flags = cmd_bench_flags,
    .flags_count = countof(cmd_bench_flags),
    .has_json = true,
    .flags_anywhere = true,
    .run = cmd_bench_run,
};
