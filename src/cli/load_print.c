#include <math.h>
#include <stdio.h>

#include "base/version.h"
#include "cli/load.h"

#define LOAD_PRINT_NAME 24
#define LOAD_PRINT_CELL 28

/* One line of the table: a number of each target, "-" where there is none. */
struct load_print_row {
    const char *name;
    double (*value)(struct load *l, struct load_target *t);
    int digits;
};

static double load_print_first50(struct load *l, struct load_target *t)
{
    (void)l;
    return load_run_quantile(&t->first, 0.5);
}
static double load_print_first95(struct load *l, struct load_target *t)
{
    (void)l;
    return load_run_quantile(&t->first, 0.95);
}
static double load_print_again50(struct load *l, struct load_target *t)
{
    (void)l;
    return load_run_quantile(&t->again, 0.5);
}
static double load_print_again95(struct load *l, struct load_target *t)
{
    (void)l;
    return load_run_quantile(&t->again, 0.95);
}
static double load_print_gap50(struct load *l, struct load_target *t)
{
    (void)l;
    return load_run_quantile(&t->gaps, 0.5);
}
static double load_print_gap95(struct load *l, struct load_target *t)
{
    (void)l;
    return load_run_quantile(&t->gaps, 0.95);
}
static double load_print_gap99(struct load *l, struct load_target *t)
{
    (void)l;
    return load_run_quantile(&t->gaps, 0.99);
}
static double load_print_last_start(struct load *l, struct load_target *t)
{
    return load_run_median(t->last_start_s, l->options.rounds);
}
static double load_print_wall(struct load *l, struct load_target *t)
{
    return load_run_median(t->wall_s, l->options.rounds);
}
static double load_print_rate(struct load *l, struct load_target *t)
{
    return t->has_usage ? load_run_median(t->tokens_s, l->options.rounds) : NAN;
}
static double load_print_turns(struct load *l, struct load_target *t)
{
    return load_run_median(t->turns_min, l->options.rounds);
}
static double load_print_prompt(struct load *l, struct load_target *t)
{
    (void)l;
    uint64_t good = t->requests - t->failed;
    return t->has_usage && good ? (double)t->prompt_tokens / (double)good : NAN;
}
static double load_print_output(struct load *l, struct load_target *t)
{
    (void)l;
    uint64_t good = t->requests - t->failed;
    return t->has_usage && good ? (double)t->output_tokens / (double)good : NAN;
}
static double load_print_cached(struct load *l, struct load_target *t)
{
    (void)l;
    return t->has_cached && t->prompt_tokens
               ? (double)t->cached_tokens / (double)t->prompt_tokens * 100 : NAN;
}
static double load_print_json_share(struct load *l, struct load_target *t)
{
    bool is_asked = l->options.scenario == LOAD_SCENARIO_JSON && t->requests;
    return is_asked ? (double)t->valid_json / (double)t->requests * 100 : NAN;
}

static const struct load_print_row load_print_rows[] = {
    {"first token p50, ms", load_print_first50, 1},
    {"first token p95, ms", load_print_first95, 1},
    {"later turns p50, ms", load_print_again50, 1},
    {"later turns p95, ms", load_print_again95, 1},
    {"between events p50, ms", load_print_gap50, 2},
    {"between events p95, ms", load_print_gap95, 2},
    {"between events p99, ms", load_print_gap99, 2},
    {"last agent start, s", load_print_last_start, 2},
    {"all finished, s", load_print_wall, 2},
    {"tokens/s", load_print_rate, 1},
    {"turns/min", load_print_turns, 1},
    {"prompt tokens", load_print_prompt, 1},
    {"tokens of a reply", load_print_output, 1},
    {"cached, %", load_print_cached, 1},
    {"valid JSON, %", load_print_json_share, 1},
};
static const char *const load_print_keys[countof(load_print_rows)] = {
    "first_token_p50_ms", "first_token_p95_ms", "later_token_p50_ms", "later_token_p95_ms",
    "gap_p50_ms", "gap_p95_ms", "gap_p99_ms", "last_start_s", "wall_s", "tokens_per_s",
    "turns_per_min", "prompt_tokens", "reply_tokens", "cached_percent", "valid_json_percent"};

/* --- table ------------------------------------------------------------------------------------ */

static void load_print_cell(struct buf *out, str text)
{
    struct buf cell;
    buf_init(&cell, 4096);
    buf_add_printable(&cell, str_sub(text, 0, LOAD_PRINT_CELL - 2));
    buf_printf(out, "%*.*s", LOAD_PRINT_CELL, STR_ARG(buf_view(&cell)));
    buf_deinit(&cell);
}

static void load_print_errors(struct buf *out, const struct load *l)
{
    for (uint32_t i = 0; i < l->targets_count; i++) {
        const struct load_target *t = &l->targets[i];
        if (!t->failed)
            continue;
        buf_printf(out, "\n%.*s: %llu of %llu requests failed:", STR_ARG(t->url),
                   (unsigned long long)t->failed, (unsigned long long)t->requests);
        for (uint32_t k = 0; k < t->kinds_count; k++)
            buf_printf(out, "%s %s (%llu)", k ? "," : "", t->kinds[k].name,
                       (unsigned long long)t->kinds[k].count);
        buf_add_z(out, "; the first: ");
        buf_add_printable(out, str_of(t->why));
        buf_add_byte(out, '\n');
    }
}

void load_print_text(struct buf *out, struct load *l)
{
    const struct load_options *o = &l->options;
    buf_printf(out, "%s: %u agents, prompts of %u tokens, %u out, %u round%s, dialect %s\n\n%-*s",
               load_run_scenario_name(o->scenario), o->agents, o->prompt_tokens, o->out,
               o->rounds, o->rounds == 1 ? "" : "s", o->dialect->name, LOAD_PRINT_NAME, "TARGET");
    for (uint32_t i = 0; i < l->targets_count; i++)
        load_print_cell(out, l->targets[i].url);
    buf_printf(out, "\n%-*s", LOAD_PRINT_NAME, "model");
    for (uint32_t i = 0; i < l->targets_count; i++)
        load_print_cell(out, l->targets[i].model);
    for (size_t k = 0; k < countof(load_print_rows); k++) {
        const struct load_print_row *row = &load_print_rows[k];
        buf_printf(out, "\n%-*s", LOAD_PRINT_NAME, row->name);
        for (uint32_t i = 0; i < l->targets_count; i++) {
            double v = row->value(l, &l->targets[i]);
            if (isnan(v))
                buf_printf(out, "%*s", LOAD_PRINT_CELL, "-");
            else
                buf_printf(out, "%*.*f", LOAD_PRINT_CELL, row->digits, v);
        }
    }
    buf_printf(out, "\n%-*s", LOAD_PRINT_NAME, "failed requests");
    for (uint32_t i = 0; i < l->targets_count; i++)
        buf_printf(out, "%*llu", LOAD_PRINT_CELL, (unsigned long long)l->targets[i].failed);
    buf_add_byte(out, '\n');
    load_print_errors(out, l);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void load_print_put_rounds(struct json_writer *w, const char *key, const double *values,
                                  uint32_t count)
{
    json_key_z(w, key);
    json_open_array(w);
    for (uint32_t i = 0; i < count; i++)
        json_put_double(w, values[i]);
    json_close_array(w);
}

static void load_print_put_target(struct json_writer *w, struct load *l, struct load_target *t)
{
    uint32_t rounds = l->options.rounds;
    json_open_object(w);
    json_key_z(w, "url");
    json_put_text(w, t->url);
    json_key_z(w, "model");
    json_put_text(w, t->model);
    for (size_t k = 0; k < countof(load_print_rows); k++) {
        json_key_z(w, load_print_keys[k]);
        json_put_double(w, load_print_rows[k].value(l, t));
    }
    json_put_key_u64(w, "requests", t->requests);
    json_put_key_u64(w, "failed", t->failed);
    json_put_key_u64(w, "events", t->events);
    json_key_z(w, "errors");
    json_open_object(w);
    for (uint32_t k = 0; k < t->kinds_count; k++)
        json_put_key_u64(w, t->kinds[k].name, t->kinds[k].count);
    json_close_object(w);
    json_key_z(w, "first_error");
    json_put_text_z(w, t->why);
    json_key_z(w, "rounds");
    json_open_object(w);
    load_print_put_rounds(w, "wall_s", t->wall_s, rounds);
    load_print_put_rounds(w, "last_start_s", t->last_start_s, rounds);
    load_print_put_rounds(w, "tokens_per_s", t->tokens_s, rounds);
    json_close_object(w);
    json_close_object(w);
}

void load_print_json(struct buf *out, struct load *l)
{
    const struct load_options *o = &l->options;
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    json_key_z(&w, "build");
    json_put_text_z(&w, VERSION_TEXT " " VERSION_GIT);
    json_key_z(&w, "scenario");
    json_put_text_z(&w, load_run_scenario_name(o->scenario));
    json_key_z(&w, "dialect");
    json_put_text_z(&w, o->dialect->name);
    json_put_key_u64(&w, "agents", o->agents);
    json_put_key_u64(&w, "asked_prompt_tokens", o->prompt_tokens);
    json_put_key_u64(&w, "asked_out", o->out);
    json_put_key_u64(&w, "rounds", o->rounds);
    json_put_key_u64(&w, "seed", o->seed);
    json_key_z(&w, "targets");
    json_open_array(&w);
    for (uint32_t i = 0; i < l->targets_count; i++)
        load_print_put_target(&w, l, &l->targets[i]);
    json_close_array(&w);
    json_close_object(&w);
    buf_add_byte(out, '\n');
}
