#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "unit/fmt/image.c" /* GGUF files byte by byte */
#include "unit/text/small.h"

static void expect_refusal(struct small *s, enum err_code code, const char *part)
{
    struct vocab *v = NULL;
    struct err e = {0};
    assert_false(vocab_new(&v, &s->source, &e));
    assert_int_equal(e.code, code);
    if (!strstr(e.text, part))
        fail_msg("'%s' does not say '%s'", e.text, part);
    small_deinit(s);
}

static void test_what_is_not_known_is_refused_by_name(void **state)
{
    (void)state;
    struct small s;
    small_init(&s, "rwkv", "");
    small_add(&s, "a", VOCAB_TYPE_NORMAL, 0);
    expect_refusal(&s, ERR_UNSUPPORTED, "tokenizer.ggml.model 'rwkv'");
    small_init(&s, "gpt2", "qwen99");
    small_add(&s, "a", VOCAB_TYPE_NORMAL, 0);
    expect_refusal(&s, ERR_UNSUPPORTED, "tokenizer.ggml.pre 'qwen99'");
}

static void test_impossible_tokens_are_refused_with_their_number(void **state)
{
    (void)state;
    static char text[VOCAB_TEXT_MAX + 2];
    memset(text, 'a', sizeof text - 1);
    struct small s;
    small_init(&s, "gpt2", "qwen2");
    small_add(&s, "a", VOCAB_TYPE_NORMAL, 0);
    small_add(&s, text, VOCAB_TYPE_NORMAL, 0);
    expect_refusal(&s, ERR_LIMIT, "token 1 has 1025 bytes");
    small_init(&s, "gpt2", "qwen2");
    small_add(&s, "a", (enum vocab_type)7, 0);
    expect_refusal(&s, ERR_FORMAT, "token 0 has type 7");
    small_init(&s, "llama", "");
    small_add(&s, "a", VOCAB_TYPE_NORMAL, base_float_of(0x7fc00000));
    expect_refusal(&s, ERR_FORMAT, "scores: element 0");
    small_init(&s, "gpt2", "qwen2");
    expect_refusal(&s, ERR_LIMIT, "0 tokens");
}

static void test_bytes_of_a_token_follow_the_form_of_the_file(void **state)
{
    (void)state;
    struct small s;
    struct vocab *v = NULL;
    struct err e = {0};
    small_init(&s, "gpt2", "gpt-2");
    int32_t hello = small_add(&s, "\u0120Hello\u010a", VOCAB_TYPE_NORMAL, 0);
    int32_t ff = small_add(&s, "\u00ff", VOCAB_TYPE_NORMAL, 0);
    int32_t end = small_add(&s, "<|\u0120|>", VOCAB_TYPE_CONTROL, 0);
    assert_true(vocab_new(&v, &s.source, &e));
    assert_true(str_eq_z(vocab_bytes(v, hello), " Hello\n"));
    assert_true(str_eq_z(vocab_bytes(v, ff), "\xff"));
    assert_true(str_eq_z(vocab_bytes(v, end), "<|\u0120|>"));
    assert_int_equal(vocab_find(v, STR("\u0120Hello\u010a")), hello);
    assert_int_equal(vocab_find(v, STR(" Hello\n")), VOCAB_NONE);
    assert_int_equal(vocab_find_bytes(v, STR(" Hello\n")), hello);
    assert_int_equal(vocab_byte(v, 0xff), ff);
    assert_int_equal(vocab_byte(v, 'H'), VOCAB_NONE);
    assert_int_equal(vocab_find(v, STR("<|\u0120|>")), end);
    vocab_free(v);
    small_deinit(&s);

    small_init(&s, "llama", "");
    int32_t spaced = small_add(&s, "\u2581Hello", VOCAB_TYPE_NORMAL, -1);
    int32_t newline = small_add(&s, "<0x0A>", VOCAB_TYPE_BYTE, 0);
    assert_true(vocab_new(&v, &s.source, &e));
    assert_true(str_eq_z(vocab_bytes(v, spaced), " Hello"));
    assert_true(str_eq_z(vocab_bytes(v, newline), "\n"));
    assert_int_equal(vocab_byte(v, '\n'), newline);
    assert_int_equal(vocab_find(v, STR("<0x0A>")), newline);
    assert_int_equal(vocab_find_bytes(v, STR("\n")), VOCAB_NONE); /* never merged into */
    vocab_free(v);
    small_deinit(&s);
}

static void test_an_absent_role_is_none_and_no_ordinary_token(void **state)
{
    (void)state;
    struct small s;
    struct vocab *v = NULL;
    struct err e = {0};
    small_init(&s, "gpt2", "qwen2"); /* one that other runtimes give id 11 as bos */
    small_add_byte_level(&s);
    assert_true(vocab_new(&v, &s.source, &e));
    for (int r = 0; r < VOCAB_ROLE_COUNT; r++)
        assert_int_equal(vocab_role(v, (enum vocab_role)r), VOCAB_NONE);
    assert_false(vocab_add_bos(v));
    vocab_free(v);
    small_deinit(&s);

    small_init(&s, "llama", "");
    small_add(&s, "<unk>", VOCAB_TYPE_UNKNOWN, 0);
    small_add(&s, "<s>", VOCAB_TYPE_NORMAL, 0);
    small_add(&s, "</s>", VOCAB_TYPE_CONTROL, 0);
    assert_true(vocab_new(&v, &s.source, &e));
    assert_int_equal(vocab_role(v, VOCAB_ROLE_UNK), 0);
    assert_int_equal(vocab_role(v, VOCAB_ROLE_BOS), VOCAB_NONE);
    assert_int_equal(vocab_role(v, VOCAB_ROLE_EOS), 2);
    assert_false(vocab_add_bos(v));
    assert_non_null(strstr(vocab_corrected(v).p, "add_bos_token without such a token"));
    vocab_free(v);
    small_deinit(&s);
}

static void test_ends_of_a_reply_have_the_exceptions_of_their_families(void **state)
{
    (void)state;
    static const struct {
        const char *tokens[6];
        enum vocab_type type;
        const char *ends; /* one '1' or '0' per token */
    } cases[] = {
        {{"<|im_end|>", "<|endoftext|>", "<|im_start|>"}, VOCAB_TYPE_CONTROL, "110"},
        {{"<|return|>", "<|call|>", "<|end|>"}, VOCAB_TYPE_CONTROL, "110"},
        {{"<|calls|>", "<|flush|>", "<|end|>"}, VOCAB_TYPE_CONTROL, "110"},
        {{"<|end|>", "</s>"}, VOCAB_TYPE_CONTROL, "11"},
        {{"<|tool_response>", "</s>", "<turn|>"}, VOCAB_TYPE_CONTROL, "101"},
        {{"<end_of_turn>", "</s>"}, VOCAB_TYPE_USER_DEFINED, "10"},
        {{"<|im_end|>", "</s>"}, VOCAB_TYPE_NORMAL, "11"}, /* nothing is marked in this file */
    };
    for (size_t i = 0; i < countof(cases); i++) {
        struct small s;
        struct vocab *v = NULL;
        struct err e = {0};
        small_init(&s, "gpt2", "qwen2");
        for (size_t k = 0; cases[i].tokens[k]; k++)
            small_add(&s, cases[i].tokens[k], cases[i].type, 0);
        assert_true(vocab_new(&v, &s.source, &e));
        for (int32_t k = 0; k < (int32_t)vocab_count(v); k++)
            if (vocab_is_eog(v, k) != (cases[i].ends[k] == '1'))
                fail_msg("case %zu: %s", i, cases[i].tokens[k]);
        uint32_t count;
        const int32_t *eog = vocab_eog(v, &count);
        for (uint32_t k = 0; k < count; k++)
            assert_true(vocab_is_eog(v, eog[k]) && (k == 0 || eog[k] > eog[k - 1]));
        vocab_free(v);
        small_deinit(&s);
    }
}

static void test_content_cannot_write_what_ends_a_reply_or_frames_an_infill(void **state)
{
    (void)state;
    struct small s;
    small_init(&s, "gpt2", "qwen2");
    small_add_byte_level(&s);
    int32_t fim = small_add(&s, "<|fim_prefix|>", VOCAB_TYPE_USER_DEFINED, 0);
    int32_t end = small_add(&s, "<end_of_turn>", VOCAB_TYPE_USER_DEFINED, 0);
    int32_t tool = small_add(&s, "<tool>", VOCAB_TYPE_USER_DEFINED, 0);
    struct tok *t = small_open(&s);
    assert_true(vocab_is_control(tok_vocab(t), fim) && vocab_is_control(tok_vocab(t), end));
    assert_false(vocab_is_control(tok_vocab(t), tool));
    const int32_t *ids = small_ids(t, "<|fim_prefix|><end_of_turn>", false, false);
    for (; *ids >= 0; ids++)
        assert_true(*ids < 256);
    ids = small_ids(t, "<|fim_prefix|><end_of_turn>", true, false);
    assert_true(ids[0] == fim && ids[1] == end && ids[2] == -1);
    tok_close(t);
    small_deinit(&s);

    /* a file without types: the marker is one all the same, an ordinary word as eos stays one */
    small_init(&s, "gpt2", "qwen2");
    small_add_byte_level(&s);
    s.source.types = NULL;
    end = small_add(&s, "<|im_end|>", VOCAB_TYPE_NORMAL, 0);
    s.source.roles[VOCAB_ROLE_EOS] = 'x';
    t = small_open(&s);
    assert_true(vocab_is_control(tok_vocab(t), end) && vocab_is_eog(tok_vocab(t), 'x'));
    assert_false(vocab_is_control(tok_vocab(t), 'x'));
    tok_close(t);
    small_deinit(&s);
}

static void test_known_families_are_corrected_and_say_so(void **state)
{
    (void)state;
    struct small s;
    struct vocab *v = NULL;
    struct err e = {0};
    small_init(&s, "gemma4", "");
    s.source.roles[VOCAB_ROLE_BOS] = small_add(&s, "<bos>", VOCAB_TYPE_CONTROL, 0);
    s.source.add_bos = VOCAB_FLAG_FALSE;
    assert_true(vocab_new(&v, &s.source, &e));
    assert_true(vocab_add_bos(v));
    assert_string_equal(vocab_corrected(v).p, "add_bos_token is false, but gemma4 needs it");
    vocab_free(v);
    small_deinit(&s);
}

/* ---- reading a file ---- */

static bool read_image(struct image *m, struct err *e)
{
    int fd;
    struct model_file *f = NULL;
    struct tok *t = NULL;
    bool ok = model_file_open(&f, image_path(m, &fd), e);
    if (!ok)
        fail_msg("%s", e->text);
    ok = tok_open(&t, f, e);
    model_file_close(f);
    image_drop(fd);
    tok_close(t);
    image_deinit(m);
    return ok;
}

/* A file with two tokens and one further key, which add writes. */
static void image_vocab(struct image *m, void (*add)(struct image *m))
{
    image_init(m);
    image_head(m, 3, 0, 5);
    image_key_str(m, "general.architecture", "tiny");
    image_key_str(m, "tokenizer.ggml.model", "gpt2");
    image_key_str(m, "tokenizer.ggml.pre", "gpt-2");
    image_array(m, "tokenizer.ggml.tokens", MODEL_TYPE_STRING, 2);
    image_str(m, "a");
    image_str(m, "b");
    add(m);
    image_pad(m, 32);
}

static void add_good(struct image *m)
{
    image_array(m, "tokenizer.ggml.token_type", MODEL_TYPE_I32, 2);
    image_u32(m, 1);
    image_u32(m, 1);
}
static void add_u8_scores(struct image *m)
{
    image_array(m, "tokenizer.ggml.scores", MODEL_TYPE_BOOL, 2);
    image_u8(m, 1);
    image_u8(m, 0);
}
static void add_string_types(struct image *m)
{
    image_array(m, "tokenizer.ggml.token_type", MODEL_TYPE_STRING, 2);
    image_str(m, "1");
    image_str(m, "1");
}
static void add_short_types(struct image *m)
{
    image_array(m, "tokenizer.ggml.token_type", MODEL_TYPE_I32, 1);
    image_u32(m, 1);
}
static void add_far_bos(struct image *m) { image_key_u32(m, "tokenizer.ggml.bos_token_id", 2); }
static void add_no_pad(struct image *m)
{
    image_key_u32(m, "tokenizer.ggml.padding_token_id", UINT32_MAX);
}
static void add_number_merges(struct image *m)
{
    image_array(m, "tokenizer.ggml.merges", MODEL_TYPE_U32, 1);
    image_u32(m, 1);
}
static void add_bad_merge(struct image *m)
{
    image_array(m, "tokenizer.ggml.merges", MODEL_TYPE_STRING, 1);
    image_str(m, "ab");
}
static void add_merge_without_right(struct image *m)
{
    image_array(m, "tokenizer.ggml.merges", MODEL_TYPE_STRING, 1);
    image_str(m, "a ");
}
static void add_string_flag(struct image *m)
{
    image_key_str(m, "tokenizer.ggml.add_bos_token", "yes");
}
static void add_wide_charsmap(struct image *m)
{
    image_array(m, "tokenizer.ggml.precompiled_charsmap", MODEL_TYPE_U32, 1);
    image_u32(m, 1);
}

static void test_each_key_is_checked_for_type_count_and_range(void **state)
{
    (void)state;
    static const struct {
        void (*add)(struct image *m);
        const char *part; /* of the sentence; NULL: fine */
    } cases[] = {
        {add_good, NULL},
        {add_no_pad, NULL},
        {add_u8_scores, "tokenizer.ggml.scores"},
        {add_string_types, "tokenizer.ggml.token_type"},
        {add_short_types, "tokenizer.ggml.token_type has 1 elements, the vocabulary has 2 tokens"},
        {add_far_bos, "tokenizer.ggml.bos_token_id is 2, the vocabulary has 2 tokens"},
        {add_number_merges, "tokenizer.ggml.merges"},
        {add_bad_merge, "tokenizer.ggml.merges: element 0 (2 bytes) is not two pieces"},
        {add_merge_without_right, "tokenizer.ggml.merges: element 0"},
        {add_string_flag, "tokenizer.ggml.add_bos_token"},
        {add_wide_charsmap, "tokenizer.ggml.precompiled_charsmap is not an array of bytes"},
    };
    for (size_t i = 0; i < countof(cases); i++) {
        struct image m;
        struct err e = {0};
        image_vocab(&m, cases[i].add);
        bool ok = read_image(&m, &e);
        if (ok != !cases[i].part || (cases[i].part && !strstr(e.text, cases[i].part)))
            fail_msg("case %zu: '%s'", i, e.text);
    }
}

static void test_a_file_without_vocabulary_says_so(void **state)
{
    (void)state;
    struct image m;
    struct err e = {0};
    image_init(&m);
    image_head(&m, 3, 0, 2);
    image_key_str(&m, "general.architecture", "tiny");
    image_key_str(&m, "tokenizer.ggml.model", "gpt2");
    image_pad(&m, 32);
    assert_false(read_image(&m, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_non_null(strstr(e.text, "no vocabulary"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_not_known_is_refused_by_name),
        cmocka_unit_test(test_impossible_tokens_are_refused_with_their_number),
        cmocka_unit_test(test_bytes_of_a_token_follow_the_form_of_the_file),
        cmocka_unit_test(test_an_absent_role_is_none_and_no_ordinary_token),
        cmocka_unit_test(test_ends_of_a_reply_have_the_exceptions_of_their_families),
        cmocka_unit_test(test_content_cannot_write_what_ends_a_reply_or_frames_an_infill),
        cmocka_unit_test(test_known_families_are_corrected_and_say_so),
        cmocka_unit_test(test_each_key_is_checked_for_type_count_and_range),
        cmocka_unit_test(test_a_file_without_vocabulary_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
