/* What our own engine answered before: greedy continuations of 20 prompts per real model, as
 * tests/golden/greedy holds them. A change of one bit somewhere shows here first. Not a truth about
 * the models: that is logits_test. Integer products, row ops and attention have the same bits at
 * every level of the CPU, so the ids hold on every machine.
 *
 * All prompts run side by side, two halves of ten. The first 24 ids are compared; with TEST_TIER
 * long all 128. `greedy_test record` writes the files anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/model_run.h"
#include "text/tok.h"

#define PROMPTS 20u
#define SIDE_BY_SIDE 10u
#define TOKENS 128u
#define TOKENS_SHORT 24u
#define PROMPT_TOKENS_MAX 64u

struct prompt {
    int32_t ids[PROMPT_TOKENS_MAX], reply[TOKENS];
    uint32_t count;
};

/* A line without its end, "\n" in it as a line end. */
static void unescape(char *line)
{
    char *to = line;
    for (const char *p = line; *p && *p != '\n'; p++) {
        bool is_end = p[0] == '\\' && p[1] == 'n';
        *to++ = is_end ? '\n' : *p;
        p += is_end;
    }
    *to = 0;
}

static void read_prompts(struct prompt *prompts, const struct model_file *file)
{
    struct err e;
    struct tok *tok;
    struct tok_ids ids;
    char line[512];
    FILE *f = fopen("tests/golden/greedy/prompts.txt", "r");
    assert_non_null(f);
    if (!tok_open(&tok, file, &e))
        fail_msg("%s", e.text);
    tok_ids_init(&ids, PROMPT_TOKENS_MAX);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        assert_non_null(fgets(line, sizeof line, f));
        unescape(line);
        tok_ids_clear(&ids);
        if (!tok_encode_str(tok, str_of(line), false, true, &ids, &e))
            fail_msg("prompt %u: %s", i, e.text);
        prompts[i].count = (uint32_t)tok_ids_count(&ids);
        memcpy(prompts[i].ids, tok_ids_data(&ids), prompts[i].count * sizeof(int32_t));
    }
    assert_null(fgets(line, sizeof line, f));
    fclose(f);
    tok_ids_deinit(&ids);
    tok_close(tok);
}

/* Step 0 brings the prompts, each later one the id before. */
static void run_prompts(struct model_run *m, struct prompt *prompts, uint32_t tokens)
{
    const struct sample_row greedy = {.typical_p = 1, .top_p = 1};
    for (uint32_t s = 0; s < SIDE_BY_SIDE; s++)
        model_run_clear(m, s);
    for (uint32_t t = 0; t < tokens; t++) {
        struct model_run_piece pieces[SIDE_BY_SIDE];
        for (uint32_t s = 0; s < SIDE_BY_SIDE; s++) {
            struct prompt *p = &prompts[s];
            pieces[s] = (struct model_run_piece){.seq = s, .count = t ? 1 : p->count, .outs = 1,
                                                 .ids = t ? p->reply + t - 1 : p->ids,
                                                 .pick = &greedy, .picked = p->reply + t};
        }
        model_run_step(m, pieces, SIDE_BY_SIDE);
    }
}

static bool is_recording;

static void compare(const char *name, const struct prompt *prompts, uint32_t tokens)
{
    char path[128];
    snprintf(path, sizeof path, "tests/golden/greedy/greedy-%s.txt", name);
    FILE *f = fopen(path, is_recording ? "w" : "r");
    if (!f)
        fail_msg("cannot open %s", path);
    for (uint32_t i = 0; i < PROMPTS; i++)
        for (uint32_t t = 0; t < TOKENS; t++) {
            int want = 0;
            if (is_recording) {
                fprintf(f, "%d%c", prompts[i].reply[t], t + 1 < TOKENS ? ' ' : '\n');
                continue;
            }
            assert_int_equal(fscanf(f, "%d", &want), 1);
            if (t < tokens && want != prompts[i].reply[t])
                fail_msg("%s, prompt %u: id %u of the reply is %d, it was %d", name, i, t,
                         prompts[i].reply[t], want);
        }
    assert_int_equal(fclose(f), 0);
}

static void check(const char *file, const char *name)
{
    const char *tier = getenv("TEST_TIER");
    bool is_whole = is_recording || (tier && strcmp(tier, "long") == 0);
    uint32_t tokens = is_whole ? TOKENS : TOKENS_SHORT;
    struct prompt *prompts = calloc(PROMPTS, sizeof *prompts);
    struct model_run m;
    char path[256];
    snprintf(path, sizeof path, "build/models/%s", file);
    model_run_open(&m, path, &(struct model_run_options){.act = ACT_AUTO, .threads = 2});
    read_prompts(prompts, m.file);
    for (uint32_t i = 0; i < PROMPTS; i += SIDE_BY_SIDE)
        run_prompts(&m, prompts + i, tokens);
    compare(name, prompts, tokens);
    model_run_close(&m);
    free(prompts);
}

static void test_smollm2_continues_twenty_prompts_as_before(void **state)
{
    (void)state;
    check("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2");
}

static void test_gemma3_continues_twenty_prompts_as_before(void **state)
{
    (void)state;
    check("gemma-3-270m-q4_k_m.gguf", "gemma3");
}

static void test_qwen2_continues_twenty_prompts_as_before(void **state)
{
    (void)state;
    check("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "qwen2");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smollm2_continues_twenty_prompts_as_before),
        cmocka_unit_test(test_gemma3_continues_twenty_prompts_as_before),
        cmocka_unit_test(test_qwen2_continues_twenty_prompts_as_before),
    };
    is_recording = argc > 1 && strcmp(argv[1], "record") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
