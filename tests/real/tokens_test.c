/* Token ids of the real vocabularies against tests/golden/tokens: every string, content and trusted
 * text, whole and as decoded again; and that hostile megabytes take less than a second. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "text/split.h"
#include "text/tok.h"
#include "text/unicode.h"

struct golden {
    const char *name, *model;
    struct tok *tok;
};

/* The last ones: vocabularies of packages, by tests/golden/tokens/make_vocab.py. */
static struct golden goldens[] = {
    {"smollm2", "build/models/SmolLM2-135M-Instruct.Q4_1.gguf", NULL},
    {"qwen2.5", "build/models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", NULL},
    {"gemma3", "build/models/gemma-3-270m-q4_k_m.gguf", NULL},
    {"deepseek-v3", "build/models/vocab/deepseek-v3.gguf", NULL},
    {"qwen3.5", "build/models/vocab/qwen3.5.gguf", NULL},
    {"deepseek-llm", "build/models/vocab/deepseek-llm.gguf", NULL},
    {"deepseek-coder", "build/models/vocab/deepseek-coder.gguf", NULL},
    {"llama3", "build/models/vocab/llama3.gguf", NULL},
    {"glm4", "build/models/vocab/glm4.gguf", NULL},
    {"minimax", "build/models/vocab/minimax.gguf", NULL},
    {"tekken", "build/models/vocab/tekken.gguf", NULL},
    {"mistral-v1", "build/models/vocab/mistral-v1.gguf", NULL},
    {"mistral-v3", "build/models/vocab/mistral-v3.gguf", NULL},
    {"minilm", "build/models/vocab/minilm.gguf", NULL},
};

static struct arena arena;
static str strings; /* fixtures/strings.bin */

static uint32_t u32_at(str s, size_t at)
{
    uint32_t v;
    assert_true(at + sizeof v <= s.len);
    memcpy(&v, s.p + at, sizeof v);
    return v;
}

/* Of this thread: other work on the machine does not count. */
static int64_t cpu_ms(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static str read_file(const char *path)
{
    struct err e = {0};
    str s;
    if (!file_read(&s, path, (size_t)8 << 20, &arena, &e))
        fail_msg("%s", e.text);
    return s;
}

static int open_all(void **state)
{
    (void)state;
    struct err e = {0};
    arena_init(&arena, (size_t)32 << 20);
    strings = read_file("tests/golden/tokens/fixtures/strings.bin");
    for (size_t i = 0; i < countof(goldens); i++) {
        struct model_file *f;
        int64_t start = cpu_ms();
        if (!model_file_open(&f, goldens[i].model, &e)) {
            print_error("%s (make models)\n", e.text);
            return -1;
        }
        bool ok = tok_open(&goldens[i].tok, f, &e);
        model_file_close(f);
        int64_t ms = cpu_ms() - start;
        if (!ok || ms >= 1000) {
            print_error("%s: opened in %lld ms %s\n", goldens[i].name, (long long)ms, e.text);
            return -1;
        }
    }
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < countof(goldens); i++)
        tok_close(goldens[i].tok);
    arena_deinit(&arena);
    return 0;
}

static uint32_t hash_ids(const struct tok_ids *ids)
{
    uint32_t h = 0x811c9dc5;
    for (size_t i = 0; i < ids->bytes.len; i++)
        h = (h ^ (uint8_t)ids->bytes.p[i]) * 0x01000193u;
    return h;
}

static void encode(struct golden *g, str text, bool special, struct tok_ids *ids)
{
    struct err e = {0};
    tok_ids_clear(ids);
    if (!tok_encode_str(g->tok, text, special, false, ids, &e))
        fail_msg("%s: %s", g->name, e.text);
}

/* string(at) and the place of the next one */
static str next_string(size_t *at)
{
    uint16_t len;
    memcpy(&len, strings.p + *at, sizeof len);
    str s = str_sub(strings, *at + sizeof len, len);
    *at += sizeof len + len;
    return s;
}

static void test_ids_equal_both_witnesses_on_ten_thousand_strings(void **state)
{
    (void)state;
    struct tok_ids ids;
    tok_ids_init(&ids, 1 << 20);
    for (size_t i = 0; i < countof(goldens); i++) {
        char path[128];
        snprintf(path, sizeof path, "tests/golden/tokens/%s.ids", goldens[i].name);
        str golden = read_file(path);
        uint32_t count = u32_at(strings, 0), wrong = 0, left_out = 0;
        assert_int_equal(u32_at(golden, 0), count);
        assert_true(count >= 10000);
        for (size_t n = 0, at = 4; n < count; n++) {
            str text = next_string(&at);
            for (size_t special = 0; special < 2; special++) {
                encode(&goldens[i], text, special, &ids);
                uint32_t want = u32_at(golden, 4 + 8 * n + 4 * special);
                left_out += want == 0;
                if (want == 0 || hash_ids(&ids) == want)
                    continue;
                print_error("%s: string %zu, special %zu: other ids "
                            "(tests/golden/tokens/make_tokens.py -show %zu)\n",
                            goldens[i].name, n, special, n);
                wrong++;
            }
        }
        assert_int_equal(wrong, 0);
        assert_true(left_out <= 2);
    }
    tok_ids_deinit(&ids);
}

/* SmolLM2 has no token for a few bytes, and so no way to write them. */
static bool can_write(const struct vocab *v, str text)
{
    if (vocab_form(v) == VOCAB_FORM_SPACE) /* and there this character is a space */
        return str_find(text, STR("\xe2\x96\x81")) == STR_NONE;
    for (size_t i = 0; i < text.len; i++)
        if (vocab_byte(v, (uint8_t)text.p[i]) == VOCAB_NONE)
            return false;
    return true;
}

/* What decoding gives: the repaired text, for Qwen in normal form C; checked in pieces as a
 * stream gets them. */
static void test_decoding_gives_the_text_back_one_token_at_a_time(void **state)
{
    (void)state;
    struct tok_ids ids;
    struct buf want, got, points;
    struct err e = {0};
    tok_ids_init(&ids, 1 << 20);
    buf_init(&want, 1 << 20);
    buf_init(&got, 1 << 20);
    buf_init(&points, 1 << 23);
    for (size_t i = 0; i < countof(goldens); i++) {
        const struct vocab *v = tok_vocab(goldens[i].tok);
        size_t compared = 0;
        if (vocab_form(v) == VOCAB_FORM_WORD)
            continue; /* folds what it reads */
        for (size_t n = 0, at = 4; n < u32_at(strings, 0); n++) {
            str text = next_string(&at);
            encode(&goldens[i], text, false, &ids);
            buf_clear(&want);
            buf_clear(&got);
            assert_true(unicode_repair(text, &want));
            if (!can_write(v, buf_view(&want)))
                continue;
            compared++;
            const struct split_row *row = split_row_find(vocab_pre(v));
            if (row && row->nfc) {
                struct buf nfc;
                buf_init(&nfc, 1 << 20);
                assert_true(unicode_nfc(buf_view(&want), &points, &nfc));
                buf_clear(&want);
                assert_true(buf_add(&want, buf_view(&nfc)));
                buf_deinit(&nfc);
            }
            struct tok_decoder d;
            tok_decoder_init(&d, v, TOK_DECODE_START);
            for (size_t k = 0; k < tok_ids_count(&ids); k++) {
                assert_true(tok_decoder_add(&d, tok_ids_data(&ids)[k], &got, &e));
                assert_int_equal(str_utf8_valid(buf_view(&got)), got.len);
            }
            assert_true(tok_decoder_end(&d, &got, &e));
            if (!str_eq(buf_view(&want), buf_view(&got)))
                fail_msg("%s: string %zu comes back as other text", goldens[i].name, n);
        }
        assert_true(compared >= 10000);
    }
    buf_deinit(&want);
    buf_deinit(&got);
    buf_deinit(&points);
    tok_ids_deinit(&ids);
}

static void test_content_never_yields_a_control_token(void **state)
{
    (void)state;
    struct tok_ids ids;
    tok_ids_init(&ids, 1 << 20);
    for (size_t i = 0; i < countof(goldens); i++) {
        const struct vocab *v = tok_vocab(goldens[i].tok);
        int32_t unk = vocab_role(v, VOCAB_ROLE_UNK);
        for (int32_t id = 0; id < (int32_t)vocab_count(v); id++) {
            if (!vocab_is_control(v, id))
                continue;
            encode(&goldens[i], vocab_text(v, id), false, &ids);
            for (size_t k = 0; k < tok_ids_count(&ids); k++)
                assert_true(!vocab_is_control(v, tok_ids_data(&ids)[k]) ||
                            tok_ids_data(&ids)[k] == unk);
            encode(&goldens[i], vocab_text(v, id), true, &ids);
            assert_true(tok_ids_count(&ids) == 1 && tok_ids_data(&ids)[0] == id);
        }
    }
    tok_ids_deinit(&ids);
}

static void test_a_hostile_megabyte_takes_less_than_a_second(void **state)
{
    (void)state;
    static const char *const units[] = {
        "A", "us", " ", "\n", "\r\n", "\t", "\xcc\x81", "\xcc\x81\xcc\x96", "1", "\n ", "'", "!",
        "\xe4\xb8\xad", "\xf0\x9f\x99\x82", "\xf0\x9f\x91\xa9\xe2\x80\x8d", "<|im_", "<", "\xff",
        "\xe2\x96\x81", "a b", "\xe0\xb8\xb3", "=", "0x",
    };
    const size_t size = 1000000;
    char *text = malloc(size);
    assert_non_null(text);
    struct tok_ids ids;
    tok_ids_init(&ids, 4 * size);
    for (size_t i = 0; i < 4; i++) /* scan, scan, SentencePiece, patterns */
        for (size_t u = 0; u < countof(units); u++) {
            size_t len = strlen(units[u]), count = size / len;
            for (size_t k = 0; k < count; k++)
                memcpy(text + k * len, units[u], len);
            int64_t start = cpu_ms();
            encode(&goldens[i], str_view(text, count * len), true, &ids);
            int64_t ms = cpu_ms() - start;
            if (ms >= 1000)
                fail_msg("%s: a megabyte of unit %zu takes %lld ms", goldens[i].name, u,
                         (long long)ms);
        }
    free(text);
    tok_ids_deinit(&ids);
}

static void test_ends_of_a_reply_are_those_of_the_family(void **state)
{
    (void)state;
    static const struct {
        size_t golden;
        const char *text;
        bool ends;
    } cases[] = {
        {0, "<|im_end|>", true},   {0, "<|endoftext|>", true}, {0, "<|im_start|>", false},
        {1, "<|im_end|>", true},   {1, "<|endoftext|>", true}, {1, "</s>", false},
        {1, "<tool_call>", false}, {2, "<eos>", true},         {2, "<end_of_turn>", true},
        {2, "</s>", false},        {2, "<bos>", false},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        const struct vocab *v = tok_vocab(goldens[cases[i].golden].tok);
        int32_t id = vocab_find(v, str_of(cases[i].text));
        assert_true(id != VOCAB_NONE);
        if (vocab_is_eog(v, id) != cases[i].ends)
            fail_msg("%s: %s", goldens[cases[i].golden].name, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_equal_both_witnesses_on_ten_thousand_strings),
        cmocka_unit_test(test_decoding_gives_the_text_back_one_token_at_a_time),
        cmocka_unit_test(test_content_never_yields_a_control_token),
        cmocka_unit_test(test_a_hostile_megabyte_takes_less_than_a_second),
        cmocka_unit_test(test_ends_of_a_reply_are_those_of_the_family),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
