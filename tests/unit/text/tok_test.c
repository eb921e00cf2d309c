#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include <stdlib.h>

#include "base/chrono.h"
#include "unit/text/small.h"

/* ---- special tokens ---- */

/* Byte-level; "<|im_start|>" and "<|im_end|>" control, "<tool>" and "<tool_call>" user-defined. */
static struct tok *open_chat(struct small *s)
{
    small_init(s, "gpt2", "qwen2");
    small_add_byte_level(s);
    small_merge(s, "h e");
    small_merge(s, "l l");
    small_merge(s, "he ll");
    small_merge(s, "hell o");
    small_merge(s, "\u010a \u010a");
    small_add(s, "<|im_start|>", VOCAB_TYPE_CONTROL, 0);
    small_add(s, "<|im_end|>", VOCAB_TYPE_CONTROL, 0);
    small_add(s, "<tool>", VOCAB_TYPE_USER_DEFINED, 0);
    small_add(s, "<tool_call>", VOCAB_TYPE_USER_DEFINED, 0);
    return small_open(s);
}

static void expect_spans(struct tok *t, const char *text, const struct tok_span *spans,
                         size_t count, const char *want)
{
    struct tok_ids ids;
    struct err e = {0};
    struct buf b;
    tok_ids_init(&ids, 1000);
    buf_init(&b, 10000);
    struct tok_text in = {.text = str_of(text), .trusted = spans, .trusted_count = count};
    assert_true(tok_encode(t, &in, &ids, &e));
    for (size_t i = 0; i < tok_ids_count(&ids); i++) {
        assert_true(i == 0 || buf_add_byte(&b, '|'));
        assert_true(buf_add(&b, vocab_text(tok_vocab(t), tok_ids_data(&ids)[i])));
    }
    if (!str_eq_z(buf_view(&b), want))
        fail_msg("'%s' gives %.*s, not %s", text, STR_ARG(buf_view(&b)), want);
    buf_deinit(&b);
    tok_ids_deinit(&ids);
}

static void test_control_tokens_come_only_from_inside_a_trusted_span(void **state)
{
    (void)state;
    struct small s;
    struct tok *t = open_chat(&s);
    const char *text = "<|im_end|><|im_end|>hello";
    const char *plain = "<|||i|m|_|e|n|d|||>";
    char want[200];
    snprintf(want, sizeof want, "<|im_end|>|%s|hello", plain);
    expect_spans(t, text, (struct tok_span[]){{0, 10}}, 1, want);
    snprintf(want, sizeof want, "%s|<|im_end|>|hello", plain);
    expect_spans(t, text, (struct tok_span[]){{10, 20}}, 1, want);
    /* one byte of it is content: then all of it is */
    expect_spans(t, "<|im_end|>", (struct tok_span[]){{0, 9}}, 1, plain);
    expect_spans(t, "<|im_end|>", (struct tok_span[]){{1, 10}}, 1, plain);
    expect_spans(t, "<|im_end|>", (struct tok_span[]){{0, 4}, {5, 10}}, 2, plain);
    /* two spans that touch are one */
    expect_spans(t, "<|im_end|>", (struct tok_span[]){{0, 4}, {4, 10}}, 2, "<|im_end|>");
    expect_spans(t, "<|im_end|>", (struct tok_span[]){{0, 4}, {4, 4}, {4, 10}}, 3, "<|im_end|>");
    expect_spans(t, "<|im_end|>", NULL, 0, plain);
    tok_close(t);
    small_deinit(&s);
}

static void test_user_defined_tokens_match_anywhere_longest_first(void **state)
{
    (void)state;
    struct small s;
    struct tok *t = open_chat(&s);
    assert_string_equal(small_text(t, "a<tool_call>b<tool>", false, false),
                        "a|<tool_call>|b|<tool>");
    assert_string_equal(small_text(t, "<tool_call", false, false), "<|t|o|o|l|_|c|a|ll");
    expect_spans(t, "<tool_call>", (struct tok_span[]){{0, 3}}, 1, "<tool_call>");
    tok_close(t);
    small_deinit(&s);
}

static void test_borders_of_spans_are_no_borders_of_tokens(void **state)
{
    (void)state;
    struct small s;
    struct tok *t = open_chat(&s);
    const char *text = "hello\n\nhello";
    for (size_t a = 0; a <= strlen(text); a++)
        for (size_t b = a; b <= strlen(text); b++)
            expect_spans(t, text, (struct tok_span[]){{a, b}}, 1, "hello|\u010a\u010a|hello");
    tok_close(t);
    small_deinit(&s);
}

static void test_spans_follow_the_repair_of_broken_bytes(void **state)
{
    (void)state;
    struct small s;
    struct tok *t = open_chat(&s);
    expect_spans(t, "\xff<|im_end|>\xff\xff<|im_end|>\xff", (struct tok_span[]){{13, 23}}, 1,
                 "\u00ef|\u00bf|\u00bd|<|||i|m|_|e|n|d|||>|\u00ef|\u00bf|\u00bd|\u00ef|\u00bf|"
                 "\u00bd|<|im_end|>|\u00ef|\u00bf|\u00bd");
    tok_close(t);
    small_deinit(&s);
}

static void test_a_character_on_the_border_of_a_span_stays_whole(void **state)
{
    (void)state;
    struct small s;
    struct tok *t = open_chat(&s);
    for (size_t a = 0; a <= 4; a++) /* the text is broken elsewhere, so it is repaired */
        expect_spans(t, "x\u00e9<\xff", (struct tok_span[]){{0, a}, {a, 5}}, 2,
                     "x|\u00c3|\u00a9|<|\u00ef|\u00bf|\u00bd");
    tok_close(t);
    small_deinit(&s);
}

static void test_bos_is_added_once(void **state)
{
    (void)state;
    struct small s;
    small_init(&s, "llama", "");
    small_add_bytes(&s);
    s.source.roles[VOCAB_ROLE_BOS] = small_add(&s, "<s>", VOCAB_TYPE_CONTROL, 0);
    s.source.roles[VOCAB_ROLE_EOS] = small_add(&s, "</s>", VOCAB_TYPE_CONTROL, 0);
    s.source.add_eos = VOCAB_FLAG_TRUE;
    small_add(&s, "\u2581a", VOCAB_TYPE_NORMAL, -1);
    struct tok *t = small_open(&s);
    assert_string_equal(small_text(t, "a", true, true), "<s>|\u2581a|</s>");
    assert_string_equal(small_text(t, "<s>a", true, true), "<s>|\u2581a|</s>");
    assert_string_equal(small_text(t, "<s><s>a", true, true), "<s>|<s>|\u2581a|</s>");
    assert_string_equal(small_text(t, "a", true, false), "\u2581a");
    assert_string_equal(small_text(t, "", true, true), "<s>|</s>");
    assert_string_equal(small_text(t, "", false, false), "");
    /* as content it is no bos, so one is added */
    const int32_t *ids = small_ids(t, "<s>", false, true);
    assert_true(ids[0] == s.source.roles[VOCAB_ROLE_BOS] && ids[1] != ids[0]);
    tok_close(t);
    small_deinit(&s);
}

/* ---- byte-level BPE ---- */

static void test_merges_go_by_rank_then_from_the_left(void **state)
{
    (void)state;
    struct small s;
    small_init(&s, "gpt2", "gpt-2");
    small_add_byte_level(&s);
    small_merge(&s, "b c");
    small_merge(&s, "a b");
    small_merge(&s, "a a");
    small_merge(&s, "aa a");
    struct tok *t = small_open(&s);
    assert_string_equal(small_text(t, "abc", false, false), "a|bc");
    assert_string_equal(small_text(t, "abab", false, false), "ab|ab");
    assert_string_equal(small_text(t, "aaaaa", false, false), "aa|aaa");
    assert_string_equal(small_text(t, "aaa aaab", false, false), "aaa|\u0120|aa|ab");
    tok_close(t);
    small_deinit(&s);
}

static void test_merges_through_texts_without_a_token_work(void **state)
{
    (void)state;
    struct small s;
    small_init(&s, "gpt2", "gpt-2");
    small_add_byte_level(&s);
    small_merge(&s, "x y");
    s.tokens[s.source.count - 1] = STR("unreachable"); /* the merge stays, its token goes */
    small_merge(&s, "xy z");
    struct tok *t = small_open(&s);
    assert_string_equal(small_text(t, "xyz", false, false), "xyz");
    assert_string_equal(small_text(t, "xyy", false, false), "x|y|y");
    tok_close(t);
    small_deinit(&s);
}

static void test_a_whole_word_is_taken_as_token_where_the_family_says_so(void **state)
{
    (void)state;
    static const struct {
        const char *pre, *want;
    } cases[] = {{"llama-bpe", "cat"}, {"tekken", "cat"}, {"glm4", "cat"},
                 {"qwen2", "c|a|t"},   {"dbrx", "c|a|t"}};
    for (size_t i = 0; i < countof(cases); i++) {
        struct small s;
        small_init(&s, "gpt2", cases[i].pre);
        small_add_byte_level(&s);
        small_add(&s, "cat", VOCAB_TYPE_NORMAL, 0); /* no merges lead there */
        struct tok *t = small_open(&s);
        for (int twice = 0; twice < 2; twice++) /* the second time from the cache */
            assert_string_equal(small_text(t, "cat", false, false), cases[i].want);
        tok_close(t);
        small_deinit(&s);
    }
}

static void test_qwen_normalises_and_llama_does_not(void **state)
{
    (void)state;
    for (int nfc = 0; nfc < 2; nfc++) {
        struct small s;
        small_init(&s, "gpt2", nfc ? "qwen2" : "llama-bpe");
        small_add_byte_level(&s);
        struct tok *t = small_open(&s);
        assert_string_equal(small_text(t, "e\u0301", false, false),
                            nfc ? "\u00c3|\u00a9" : "e|\u00cc|\u0123");
        tok_close(t);
        small_deinit(&s);
    }
}

/* The definition, written as plainly as possible: while some pair has a merge, merge the best. */
struct plain {
    size_t from, len;
};

static size_t plain_merge(const struct small *s, const char *text, size_t len, struct plain *p)
{
    size_t count = len;
    for (size_t i = 0; i < len; i++)
        p[i] = (struct plain){i, 1};
    for (;;) {
        uint32_t best = UINT32_MAX;
        size_t at = 0;
        for (size_t i = 0; i + 1 < count; i++)
            for (uint32_t m = 0; m < s->source.merge_count && m < best; m++) {
                str merge = s->merges[m];
                size_t cut = str_find_byte(str_from(merge, 1), ' ') + 1;
                if (cut == p[i].len && merge.len - cut - 1 == p[i + 1].len &&
                    !memcmp(merge.p, text + p[i].from, cut) &&
                    !memcmp(merge.p + cut + 1, text + p[i + 1].from, p[i + 1].len)) {
                    best = m;
                    at = i;
                }
            }
        if (best == UINT32_MAX)
            return count;
        p[at].len += p[at + 1].len;
        memmove(p + at + 1, p + at + 2, (count - at - 2) * sizeof *p);
        count--;
    }
}

/* Random merges over three letters; some build on texts that were made later, so that a merge can
 * make a better one possible. Words are longer than what is merged by looking at all pairs. */
static void test_long_words_merge_as_the_definition_says(void **state)
{
    (void)state;
    enum { LEN = 150 };
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct small s;
        struct chrono_rng r;
        chrono_rng_init(&r, seed);
        small_init(&s, "gpt2", "gpt-2");
        small_add_byte_level(&s);
        const char *pieces[64] = {"a", "b", "c"};
        size_t count = 3;
        while (count < 24) {
            const char *l = pieces[chrono_rng_below(&r, count)];
            const char *q = pieces[chrono_rng_below(&r, count)];
            if (strlen(l) + strlen(q) > 12)
                continue;
            pieces[count++] = arena_printf(&s.arena, "%s%s", l, q).p;
            small_merge(&s, arena_printf(&s.arena, "%s %s", l, q).p);
        }
        for (uint32_t i = s.source.merge_count; i > 1; i--) { /* shuffled: ranks mean nothing */
            uint32_t j = (uint32_t)chrono_rng_below(&r, i);
            str swap = s.merges[i - 1];
            s.merges[i - 1] = s.merges[j];
            s.merges[j] = swap;
        }
        struct tok *t = small_open(&s);
        for (size_t len = 1; len < LEN; len += 1 + len / 8) {
            char text[LEN + 1] = {0};
            struct plain p[LEN];
            for (size_t i = 0; i < len; i++)
                text[i] = "abc"[chrono_rng_below(&r, 3)];
            size_t n = plain_merge(&s, text, len, p);
            const int32_t *ids = small_ids(t, text, false, false);
            for (size_t i = 0; i < n; i++) {
                str want = str_view(text + p[i].from, p[i].len);
                if (ids[i] < 0 || !str_eq(vocab_text(tok_vocab(t), ids[i]), want))
                    fail_msg("seed %d, '%s', piece %zu", (int)seed, text, i);
            }
            assert_int_equal(ids[n], -1);
        }
        tok_close(t);
        small_deinit(&s);
    }
}

static void test_gemma4_merges_plain_text_in_lines(void **state)
{
    (void)state;
    struct small s;
    small_init(&s, "gemma4", "");
    small_add_bytes(&s);
    s.source.roles[VOCAB_ROLE_BOS] = small_add(&s, "<bos>", VOCAB_TYPE_CONTROL, 0);
    small_add(&s, "\u2581", VOCAB_TYPE_NORMAL, 0);
    small_add(&s, "a", VOCAB_TYPE_NORMAL, 0);
    small_add(&s, "b", VOCAB_TYPE_NORMAL, 0);
    small_add(&s, "\n\n", VOCAB_TYPE_NORMAL, 0);
    small_merge(&s, "\u2581 a");
    small_merge(&s, "\u2581a b");
    struct tok *t = small_open(&s);
    assert_string_equal(small_text(t, "ab ab\n\n a", false, true),
                        "<bos>|a|b|\u2581ab|\n\n|\u2581a");
    assert_string_equal(small_text(t, "\n\n\n", false, false), "<0x0A>|<0x0A>|<0x0A>");
    assert_string_equal(small_text(t, "\u00e9", false, false), "<0xC3>|<0xA9>");
    tok_close(t);
    small_deinit(&s);
}

/* ---- SentencePiece ---- */

static struct tok *open_spm(struct small *s, bool bytes)
{
    small_init(s, "llama", "");
    s->source.roles[VOCAB_ROLE_UNK] = small_add(s, "<unk>", VOCAB_TYPE_UNKNOWN, 0);
    small_add(s, "<s>", VOCAB_TYPE_CONTROL, 0);
    small_add(s, "[INST]", VOCAB_TYPE_CONTROL, 0);
    small_add(s, "  ", VOCAB_TYPE_USER_DEFINED, 0);
    if (bytes)
        small_add_bytes(s);
    static const char *const pieces[] = {"\u2581", "a", "b", "c", "\u2581a", "ab", "\u2581ab", "bc",
                                         "abc", "\u00e9", "c\u2581"};
    for (size_t i = 0; i < countof(pieces); i++)
        small_add(s, pieces[i], VOCAB_TYPE_NORMAL, -(float)i);
    return small_open(s);
}

static void test_sentencepiece_puts_a_blank_first_and_behind_special_tokens(void **state)
{
    (void)state;
    struct small s;
    struct tok *t = open_spm(&s, true);
    assert_string_equal(small_text(t, "ab", true, false), "\u2581ab");
    assert_string_equal(small_text(t, " ab", true, false), "\u2581|\u2581ab");
    assert_string_equal(small_text(t, "[INST]ab[INST]b", true, false),
                        "[INST]|\u2581ab|[INST]|\u2581|b");
    assert_string_equal(small_text(t, "b  b", true, false), "\u2581|b|  |\u2581|b");
    tok_close(t);
    s.source.add_space_prefix = VOCAB_FLAG_FALSE;
    t = small_open(&s);
    assert_string_equal(small_text(t, "ab[INST]b", true, false), "ab|[INST]|b");
    tok_close(t);
    small_deinit(&s);
}

static void test_sentencepiece_merges_by_score_across_blanks_too(void **state)
{
    (void)state;
    struct small s;
    struct tok *t = open_spm(&s, true);
    assert_string_equal(small_text(t, "abc", true, false), "\u2581ab|c");
    assert_string_equal(small_text(t, "bc b", true, false), "\u2581|bc|\u2581|b");
    assert_string_equal(small_text(t, "c b", true, false), "\u2581|c\u2581|b");
    tok_close(t);
    small_deinit(&s);
}

static void test_sentencepiece_writes_unknown_characters_in_bytes(void **state)
{
    (void)state;
    struct small s;
    struct tok *t = open_spm(&s, true);
    assert_string_equal(small_text(t, "a\u20aca\u00e9\n", true, false),
                        "\u2581a|<0xE2>|<0x82>|<0xAC>|a|\u00e9|<0x0A>");
    assert_string_equal(small_text(t, "\u2581a", true, false), "\u2581|\u2581a"); /* a space too */
    tok_close(t);
    small_deinit(&s);
    t = open_spm(&s, false); /* without byte tokens a run is one unknown */
    assert_string_equal(small_text(t, "a\u20ac\u20ac\u20aca", true, false), "\u2581a|<unk>|a");
    tok_close(t);
    small_deinit(&s);
}

/* ---- WordPiece ---- */

static void test_wordpiece_folds_cuts_and_covers_words(void **state)
{
    (void)state;
    struct small s;
    small_init(&s, "bert", "");
    small_add(&s, "[UNK]", VOCAB_TYPE_UNKNOWN, 0);
    small_add(&s, "[CLS]", VOCAB_TYPE_CONTROL, 0);
    small_add(&s, "[SEP]", VOCAB_TYPE_CONTROL, 0);
    static const char *const pieces[] = {"\u2581cafe", "\u2581un", "aff", "able", "\u2581a", "a",
                                         "\u2581!", "\u2581\u4e2d", "\u2581\u6587"};
    for (size_t i = 0; i < countof(pieces); i++)
        small_add(&s, pieces[i], VOCAB_TYPE_NORMAL, 0);
    struct tok *t = small_open(&s);
    assert_string_equal(small_text(t, "Caf\u00e9! CAFE\u0301", false, true),
                        "[CLS]|\u2581cafe|\u2581!|\u2581cafe|[SEP]");
    assert_string_equal(small_text(t, "unaffable\u4e2d\u6587", false, false),
                        "\u2581un|aff|able|\u2581\u4e2d|\u2581\u6587");
    assert_string_equal(small_text(t, "unaffablex a\x01\u200b", false, false), "[UNK]|\u2581a");
    assert_string_equal(small_text(t, "", false, true), "[CLS]|[SEP]");
    char many[102];
    memset(many, 'a', 101);
    many[101] = 0;
    assert_string_equal(small_text(t, many, false, false), "[UNK]"); /* 101 characters */
    assert_int_equal(small_ids(t, many + 1, false, false)[100], -1); /* 100: a token each */
    tok_close(t);
    s.source.normalisers[VOCAB_NORMALISER_LOWERCASE] = VOCAB_FLAG_FALSE;
    t = small_open(&s);
    assert_string_equal(small_text(t, "Cafe cafe caf\u00e9", false, false),
                        "[UNK]|\u2581cafe|[UNK]");
    tok_close(t);
    small_deinit(&s);
}

/* ---- decoding ---- */

static void test_a_stream_never_shows_half_a_character(void **state)
{
    (void)state;
    struct small s;
    small_init(&s, "gpt2", "gpt-2");
    small_add_byte_level(&s);
    struct tok *t = small_open(&s);
    const char *text = "a\u00e9\u20ac\U0001f642z";
    const int32_t *ids = small_ids(t, text, false, false);
    struct tok_decoder d;
    struct buf out;
    struct err e = {0};
    buf_init(&out, 100);
    tok_decoder_init(&d, tok_vocab(t), 0);
    static const size_t shown[] = {1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11}; /* after each byte */
    for (size_t i = 0; i < countof(shown); i++) {
        assert_true(tok_decoder_add(&d, ids[i], &out, &e));
        assert_int_equal(out.len, shown[i]);
    }
    assert_true(tok_decoder_end(&d, &out, &e));
    assert_string_equal(out.p, text);
    buf_deinit(&out);
    tok_close(t);
    small_deinit(&s);
}

static void test_broken_bytes_decode_as_python_replaces_them(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *want;
    } cases[] = {
        {"\xe2\x82", "\ufffd"},          {"\xe2\x82" "a", "\ufffda"},
        {"\xf0\x9f\x98", "\ufffd"},      {"\xff\xfe", "\ufffd\ufffd"},
        {"\xe2\xe2\x82\xac", "\ufffd\u20ac"}, {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
        {"\xf0\x9f" "\xc3\xa9", "\ufffd\u00e9"}, {"\x80", "\ufffd"},
    };
    struct small s;
    struct err e = {0};
    small_init(&s, "gpt2", "gpt-2");
    small_add_byte_level(&s);
    struct tok *t = small_open(&s);
    for (size_t i = 0; i < countof(cases); i++) {
        int32_t ids[8];
        size_t count = strlen(cases[i].bytes);
        for (size_t k = 0; k < count; k++)
            ids[k] = vocab_byte(tok_vocab(t), (uint8_t)cases[i].bytes[k]);
        struct buf out;
        buf_init(&out, 100);
        assert_true(tok_decode(tok_vocab(t), ids, count, 0, &out, &e));
        assert_string_equal(out.p, cases[i].want);
        buf_deinit(&out);
    }
    tok_close(t);
    small_deinit(&s);
}

static void expect_text(const struct vocab *v, const int32_t *ids, unsigned flags, const char *want)
{
    struct buf out;
    struct err e = {0};
    size_t count = 0;
    while (ids[count] >= 0)
        count++;
    buf_init(&out, 1000);
    assert_true(tok_decode(v, ids, count, flags, &out, &e));
    assert_true(str_eq_z(buf_view(&out), want));
    buf_deinit(&out);
}

static void test_control_tokens_and_the_first_blank_are_shown_on_request(void **state)
{
    (void)state;
    struct small s;
    struct tok *t = open_spm(&s, true);
    const struct vocab *v = tok_vocab(t);
    int32_t ids[] = {vocab_find(v, STR("<s>")), vocab_find(v, STR("\u2581a")),
                     vocab_find(v, STR("\u2581a")), -1};
    expect_text(v, ids, 0, " a a");
    expect_text(v, ids, TOK_DECODE_START, "a a");
    expect_text(v, ids, TOK_DECODE_CONTROL, "<s> a a");
    expect_text(v, ids, TOK_DECODE_CONTROL | TOK_DECODE_START, "<s>a a");
    tok_close(t);
    small_deinit(&s);
}

static void test_an_id_that_does_not_exist_is_refused(void **state)
{
    (void)state;
    struct small s;
    struct tok *t = open_spm(&s, false);
    struct buf out;
    struct err e = {0};
    buf_init(&out, 10);
    int32_t count = (int32_t)vocab_count(tok_vocab(t));
    for (int i = 0; i < 2; i++) {
        int32_t id = i ? count : -1;
        assert_false(tok_decode(tok_vocab(t), &id, 1, 0, &out, &e));
        assert_int_equal(e.code, ERR_REQUEST);
    }
    int32_t a[] = {count - 1, count - 1, count - 1, count - 1, count - 1, count - 1};
    assert_false(tok_decode(tok_vocab(t), a, countof(a), 0, &out, &e)); /* 12 bytes into 10 */
    assert_int_equal(e.code, ERR_LIMIT);
    buf_deinit(&out);
    tok_close(t);
    small_deinit(&s);
}

/* ---- limits ---- */

static void test_a_full_list_of_ids_is_an_error_and_stays_as_it_was(void **state)
{
    (void)state;
    struct small s;
    struct tok *t = open_chat(&s);
    struct tok_ids ids;
    struct err e = {0};
    tok_ids_init(&ids, 4);
    assert_true(tok_encode_str(t, STR("hello"), false, false, &ids, &e));
    assert_false(tok_encode_str(t, STR("a b c d e"), false, false, &ids, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_int_equal(tok_ids_count(&ids), 1);
    assert_true(tok_encode_str(t, STR("hello"), false, false, &ids, &e));
    assert_int_equal(tok_ids_count(&ids), 2);
    tok_ids_deinit(&ids);
    tok_close(t);
    small_deinit(&s);
}

static void test_a_word_over_the_limit_is_an_error_with_both_numbers(void **state)
{
    (void)state;
    struct small s;
    struct tok *t = open_chat(&s);
    struct tok_ids ids;
    struct err e = {0};
    size_t size = TOK_WORD_MAX + 1;
    char *text = malloc(size);
    assert_non_null(text);
    memset(text, 'x', size);
    tok_ids_init(&ids, 2 * size);
    assert_false(tok_encode_str(t, str_view(text, size), false, false, &ids, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_non_null(strstr(e.text, "8388609 bytes"));
    assert_non_null(strstr(e.text, "8388608"));
    free(text);
    tok_ids_deinit(&ids);
    tok_close(t);
    small_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_tokens_come_only_from_inside_a_trusted_span),
        cmocka_unit_test(test_user_defined_tokens_match_anywhere_longest_first),
        cmocka_unit_test(test_borders_of_spans_are_no_borders_of_tokens),
        cmocka_unit_test(test_spans_follow_the_repair_of_broken_bytes),
        cmocka_unit_test(test_a_character_on_the_border_of_a_span_stays_whole),
        cmocka_unit_test(test_bos_is_added_once),
        cmocka_unit_test(test_merges_go_by_rank_then_from_the_left),
        cmocka_unit_test(test_merges_through_texts_without_a_token_work),
        cmocka_unit_test(test_a_whole_word_is_taken_as_token_where_the_family_says_so),
        cmocka_unit_test(test_qwen_normalises_and_llama_does_not),
        cmocka_unit_test(test_long_words_merge_as_the_definition_says),
        cmocka_unit_test(test_gemma4_merges_plain_text_in_lines),
        cmocka_unit_test(test_sentencepiece_puts_a_blank_first_and_behind_special_tokens),
        cmocka_unit_test(test_sentencepiece_merges_by_score_across_blanks_too),
        cmocka_unit_test(test_sentencepiece_writes_unknown_characters_in_bytes),
        cmocka_unit_test(test_wordpiece_folds_cuts_and_covers_words),
        cmocka_unit_test(test_a_stream_never_shows_half_a_character),
        cmocka_unit_test(test_broken_bytes_decode_as_python_replaces_them),
        cmocka_unit_test(test_control_tokens_and_the_first_blank_are_shown_on_request),
        cmocka_unit_test(test_an_id_that_does_not_exist_is_refused),
        cmocka_unit_test(test_a_full_list_of_ids_is_an_error_and_stays_as_it_was),
        cmocka_unit_test(test_a_word_over_the_limit_is_an_error_with_both_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
