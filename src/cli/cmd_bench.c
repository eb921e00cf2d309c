#include <stdio.h>
#include <stdlib.h>

#include "base/machine.h"
#include "cli/bench.h"
#include "cli/config_keys.h"
#include "cli/load.h"

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
    {.name = "isa",
     .value = "LEVEL",
     .spec = {.type = CONFIG_TYPE_TEXT},
     .standard = "auto",
     .help = "kernels of a CPU with less: ref, avx2, avx512, vnni or amx"},
    {.name = "against",
     .value = "URL[,URL]",
     .spec = {.type = CONFIG_TYPE_TEXT},
     .help = "instead: the same load on each of these servers, in turns; see -scenario"},
    {.name = "scenario",
     .value = "S",
     .spec = {.type = CONFIG_TYPE_TEXT},
     .standard = "together",
     .help = "together, random, returning, forked, turns or json"},
    {.name = "agents",
     .value = "N",
     .spec = {.type = CONFIG_TYPE_INT, .min = 1, .max = LOAD_AGENTS_MAX},
     .standard = "16",
     .help = "clients at once"},
    {.name = "prompt-tokens",
     .value = "N",
     .spec = {.type = CONFIG_TYPE_INT, .min = 1, .max = 1 << 20},
     .standard = "8192",
     .help = "of an agent's first prompt; of the shared one (forked)"},
    {.name = "out",
     .value = "N",
     .spec = {.type = CONFIG_TYPE_INT, .min = 1, .max = 1 << 16},
     .standard = "256",
     .help = "tokens of a reply"},
    {.name = "rounds",
     .value = "N",
     .spec = {.type = CONFIG_TYPE_INT, .min = 1, .max = LOAD_ROUNDS_MAX},
     .standard = "3",
     .help = "of the whole load, each with new texts"},
    {.name = "dialect",
     .value = "D",
     .spec = {.type = CONFIG_TYPE_TEXT},
     .standard = "chat",
     .help = "chat, completions, anthropic, responses or ollama"},
    {.name = "key-file",
     .value = "PATH",
     .spec = {.type = CONFIG_TYPE_PATH},
     .is_repeatable = true,
     .help = "a key, the n-th for the n-th server only; repeatable"},
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

/* Whether the machine has the level is said by the backend. */
static bool cmd_bench_level(struct bench *b, struct err *e)
{
    str name = cmd_text(b->c, "isa");
    enum cpu_level level;
    if (str_eq_z(name, "auto"))
        return true;
    if (!machine_level_parse(name, &level))
        return err_set(e, ERR_USAGE, "bench: -isa: auto, ref, avx2, avx512, vnni or amx expected, "
                       "got \"%.*s\"", STR_ARG(str_sub(name, 0, 40)));
    snprintf(b->level, sizeof b->level, "%s", machine_level_name(level));
    return true;
}

static bool cmd_bench_fill(struct bench *b, struct err *e)
{
    const struct cmd_context *c = b->c;
    b->prompt = (uint32_t)cmd_number(c, "p");
    b->generated = (uint32_t)cmd_number(c, "n");
    b->reps = (uint32_t)cmd_number(c, "reps");
    if (!cmd_bench_level(b, e))
        return false;
    return cmd_bench_list(c, "batch", BENCH_BATCH_MAX, b->batches, &b->batches_count, e) &&
           cmd_bench_list(c, "depth", 1u << 20, b->depths, &b->depths_count, e) &&
           cmd_models_find(c, c->words[0], &b->model, e);
}

/* --- -against ------------------------------------------------------------------------------ */

/* "http://host:port/v1/" is what SDKs call a base URL: our paths begin before the /v1. */
static bool cmd_bench_targets(const struct cmd_context *c, struct load *l, struct err *e)
{
    str rest = cmd_text(c, "against"), url;
    while (str_split(&rest, ',', &url)) {
        while (str_ends(url, STR("/")))
            url.len--;
        if (str_ends(url, STR("/v1")))
            url.len -= 3;
        if (!str_starts(url, STR("http://")) && !str_starts(url, STR("https://")))
            return err_set(e, ERR_USAGE, "bench: -against: URLs with http:// or https:// divided "
                           "by commas expected, got \"%.*s\"",
                           STR_ARG(str_sub(url, 0, 80)));
        if (l->targets_count == LOAD_TARGETS_MAX)
            return err_set(e, ERR_USAGE, "bench: -against: at most %d servers", LOAD_TARGETS_MAX);
        l->targets[l->targets_count++] = (struct load_target){
            .url = url, .model = c->words_count ? c->words[0] : STR("")};
    }
    return l->targets_count || err_set(e, ERR_USAGE, "bench: -against: an URL expected");
}

/* A key goes to the one server it was given for. */
static bool cmd_bench_keys(const struct cmd_context *c, struct load *l, struct err *e)
{
    const struct config_value *files = cmd_value(c, "key-file");
    uint32_t count = cmd_is_given(c, "key-file") ? files->items_count : 0;
    if (count > l->targets_count)
        return err_set(e, ERR_USAGE, "bench: -key-file: %u keys for %u servers", count,
                       l->targets_count);
    for (uint32_t i = 0; i < count; i++)
        if (!config_keys_read(&l->targets[i].key, files->items[i].p, c->arena, e))
            return err_wrap(e, "bench: -key-file");
    return true;
}

static bool cmd_bench_scenario(const struct cmd_context *c, struct load_options *o, struct err *e)
{
    str name = cmd_text(c, "scenario"), dialect = cmd_text(c, "dialect");
    int s = 0;
    while (s < LOAD_SCENARIO_COUNT &&
           !str_eq_z(name, load_run_scenario_name((enum load_scenario)s)))
        s++;
    if (s == LOAD_SCENARIO_COUNT)
        return err_set(e, ERR_USAGE, "bench: -scenario: together, random, returning, forked, "
                       "turns or json expected, got \"%.*s\"", STR_ARG(str_sub(name, 0, 40)));
    o->scenario = (enum load_scenario)s;
    o->dialect = load_dialect_find(dialect);
    if (!o->dialect)
        return err_set(e, ERR_USAGE, "bench: -dialect: chat, completions, anthropic, responses or "
                       "ollama expected, got \"%.*s\"", STR_ARG(str_sub(dialect, 0, 40)));
    if (o->scenario == LOAD_SCENARIO_JSON && !load_dialect_has_json(o->dialect))
        return err_set(e, ERR_USAGE, "bench: -scenario json: %s has no field for a schema; chat, "
                       "responses or ollama expected", o->dialect->name);
    return true;
}

static bool cmd_bench_load_fill(const struct cmd_context *c, struct load *l, struct err *e)
{
    struct load_options *o = &l->options;
    *o = (struct load_options){
        .agents = (uint32_t)cmd_number(c, "agents"), .out = (uint32_t)cmd_number(c, "out"),
        .prompt_tokens = (uint32_t)cmd_number(c, "prompt-tokens"),
        .rounds = (uint32_t)cmd_number(c, "rounds"),
        .seed = (uint64_t)chrono_unix_ms(&chrono_real)};
    uint64_t events = (uint64_t)o->agents * o->out * o->rounds * LOAD_TURNS_MAX;
    if (events > LOAD_SAMPLES_MAX)
        return err_set(e, ERR_USAGE, "bench: agents x out x rounds x %d turns are %llu events, at "
                       "most %u", LOAD_TURNS_MAX, (unsigned long long)events, LOAD_SAMPLES_MAX);
    return cmd_bench_scenario(c, o, e) && cmd_bench_targets(c, l, e) && cmd_bench_keys(c, l, e);
}

static bool cmd_bench_load(struct cmd_context *c, struct err *e)
{
    struct buf out;
    struct load *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(e, ERR_MEMORY, "bench: no memory");
    buf_init(&out, BENCH_OUT_MAX);
    bool ok = cmd_bench_load_fill(c, l, e) && load_run_all(l, c->arena, e);
    if (ok && cmd_bool(c, "json"))
        load_print_json(&out, l);
    else if (ok)
        load_print_text(&out, l);
    if (ok)
        fwrite(out.p, 1, out.len, stdout);
    for (uint32_t i = 0; ok && i < l->targets_count; i++)
        if (l->targets[i].failed)
            c->exit_code = CMD_EXIT_ERROR;
    load_run_deinit(l);
    buf_deinit(&out);
    free(l);
    return ok;
}

/* --- here ---------------------------------------------------------------------------------- */

static bool cmd_bench_local(struct cmd_context *c, struct err *e)
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

/* A flag of the other half would be ignored: it is refused. */
static bool cmd_bench_run(struct cmd_context *c, struct err *e)
{
    static const char *const local[] = {"p", "n", "batch", "depth", "reps", "isa"};
    static const char *const remote[] = {"scenario", "agents", "prompt-tokens", "out", "rounds",
                                         "dialect", "key-file"};
    bool is_remote = cmd_is_given(c, "against");
    size_t count = is_remote ? countof(local) : countof(remote);
    for (size_t i = 0; i < count; i++) {
        const char *name = is_remote ? local[i] : remote[i];
        if (cmd_is_given(c, name))
            return err_set(e, ERR_USAGE, "bench: -%s: only %s -against", name,
                           is_remote ? "without" : "with");
    }
    if (is_remote)
        return cmd_bench_load(c, e);
    if (!c->words_count)
        return err_set(e, ERR_USAGE, "bench: a MODEL or -against URL expected");
    return cmd_bench_local(c, e);
}

const struct cmd cmd_bench = {
    .name = "bench",
    .words = "[MODEL]",
    .words_max = 1,
    .summary = "How fast a model reads a prompt and generates, or how servers bear a fleet",
    .flags = cmd_bench_flags,
    .flags_count = countof(cmd_bench_flags),
    .has_json = true,
    .flags_anywhere = true,
    .run = cmd_bench_run,
};
