#include <stdio.h>

#include "base/json.h"
#include "base/version.h"
#include "cli/bench.h"

static double bench_print_bandwidth(const struct bench *b)
{
    return (b->before.gb_s + b->after.gb_s) / 2;
}

static double bench_print_gb_s(const struct bench_test *t)
{
    return t->step_bytes * t->mean / t->batch * 1e-9;
}

static double bench_print_tops(const struct bench_test *t)
{
    return t->token_ops * t->mean * 1e-12;
}

/* A load uses every thread, or waits for the file: GB/s of the file, for each of them. */
static double bench_print_load_gb_s(const struct bench *b)
{
    return (double)b->plan->weights.bytes / (double)b->weights_ns / b->info.threads;
}

static void bench_print_head(struct buf *out, const struct bench *b)
{
    buf_add_z(out, "model      ");
    buf_add_printable(out, b->model.name);
    buf_add_z(out, " (");
    buf_add_printable(out, model_file_arch(b->plan->file));
    buf_add_z(out, ", ");
    buf_add_size(out, b->plan->weights.bytes);
    buf_printf(out, "), loaded in %.2f s", (double)b->load_ns * 1e-9);
    if (b->info.threads)
        buf_printf(out, ", weights at %.2f GB/s per thread", bench_print_load_gb_s(b));
    buf_add_z(out, "\nmachine    ");
    buf_add_printable(out, str_of(b->machine));
    buf_printf(out, ", %s, %u thread%s\n", b->info.level, b->info.threads,
               b->info.threads == 1 ? "" : "s");
    buf_printf(out, "numerics   %s\n", b->info.numerics);
    if (b->info.memory_free) {
        buf_add_z(out, "bandwidth  not measured on a GPU\n\n");
        return;
    }
    buf_printf(out, "bandwidth  %.1f GB/s before, %.1f after (reading ", b->before.gb_s,
               b->after.gb_s);
    buf_add_size(out, b->before.size);
    buf_add_z(out, ")\n\n");
}

void bench_print_text(struct buf *out, const struct bench *b)
{
    bench_print_head(out, b);
    buf_printf(out, "%-10s %7s %6s %12s %9s %8s %6s %7s\n", "TEST", "DEPTH", "BATCH", "TOKENS/S",
               "+-", "GB/S", "SHARE", "TOP/S");
    for (uint32_t i = 0; i < b->tests_count; i++) {
        const struct bench_test *t = &b->tests[i];
        char name[24];
        snprintf(name, sizeof name, "%s%u", t->is_prompt ? "pp" : "tg", t->tokens);
        buf_printf(out, "%-10s %7u %6u %12.2f %9.2f ", name, t->depth, t->batch, t->mean, t->sd);
        if (t->is_prompt)
            buf_printf(out, "%8s %6s ", "-", "-");
        else if (b->info.memory_free)
            buf_printf(out, "%8.1f %6s ", bench_print_gb_s(t), "-");
        else
            buf_printf(out, "%8.1f %4.0f %% ", bench_print_gb_s(t),
                       100 * bench_print_gb_s(t) / bench_print_bandwidth(b));
        buf_printf(out, "%7.3f\n", bench_print_tops(t));
    }
}

static void bench_print_put_test(struct json_writer *w, const struct bench *b,
                                 const struct bench_test *t)
{
    json_open_object(w);
    json_key_z(w, "test");
    json_put_text_z(w, t->is_prompt ? "pp" : "tg");
    json_key_z(w, "tokens");
    json_put_u64(w, t->tokens);
    json_key_z(w, "depth");
    json_put_u64(w, t->depth);
    json_key_z(w, "batch");
    json_put_u64(w, t->batch);
    json_key_z(w, "tokens_per_s");
    json_put_double(w, t->mean);
    json_key_z(w, "sd");
    json_put_double(w, t->sd);
    json_key_z(w, "reps");
    json_open_array(w);
    for (uint32_t i = 0; i < t->reps; i++)
        json_put_double(w, t->rates[i]);
    json_close_array(w);
    json_key_z(w, "tops");
    json_put_double(w, bench_print_tops(t));
    json_key_z(w, "attend_ops");
    json_put_double(w, t->attend_ops);
    if (!t->is_prompt) {
        json_key_z(w, "step_bytes");
        json_put_double(w, t->step_bytes);
        json_key_z(w, "gb_per_s");
        json_put_double(w, bench_print_gb_s(t));
        json_key_z(w, "share");
        if (b->info.memory_free)
            json_put_null(w);
        else
            json_put_double(w, bench_print_gb_s(t) / bench_print_bandwidth(b));
    }
    json_close_object(w);
}

void bench_print_json(struct buf *out, const struct bench *b)
{
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    json_key_z(&w, "model");
    json_put_text(&w, b->model.name);
    json_key_z(&w, "architecture");
    json_put_text(&w, model_file_arch(b->plan->file));
    json_key_z(&w, "weight_bytes");
    json_put_u64(&w, b->plan->weights.bytes);
    json_key_z(&w, "load_s");
    json_put_double(&w, (double)b->load_ns * 1e-9);
    json_key_z(&w, "weights_s");
    json_put_double(&w, (double)b->weights_ns * 1e-9);
    json_key_z(&w, "build");
    json_put_text_z(&w, VERSION_TEXT " " VERSION_GIT);
    json_key_z(&w, "machine");
    json_put_text_z(&w, b->machine);
    json_key_z(&w, "isa");
    json_put_text_z(&w, b->info.level);
    json_key_z(&w, "numerics");
    json_put_text_z(&w, b->info.numerics);
    json_key_z(&w, "threads");
    json_put_u64(&w, b->info.threads);
    json_key_z(&w, "probe_bytes");
    json_put_u64(&w, b->before.size);
    json_key_z(&w, "gb_per_s_before");
    json_put_double(&w, b->before.gb_s);
    json_key_z(&w, "gb_per_s_after");
    json_put_double(&w, b->after.gb_s);
    json_key_z(&w, "tests");
    json_open_array(&w);
    for (uint32_t i = 0; i < b->tests_count; i++)
        bench_print_put_test(&w, b, &b->tests[i]);
    json_close_array(&w);
    json_close_object(&w);
    buf_add_byte(out, '\n');
}
