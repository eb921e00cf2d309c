/* Vocabularies and texts from hostile bytes: opening one, encoding and decoding with it.
 *
 *     kind pre flags | count { type score len text } | count { len merge } | text
 *
 * One byte each, texts as long as their len says or as the input still is. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/split.h"
#include "text/tok.h"
#include "text/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *p;
    size_t left;
};

static uint8_t next_byte(struct input *in)
{
    if (!in->left)
        return 0;
    in->left--;
    return *in->p++;
}

static str next_text(struct input *in, size_t len)
{
    len = base_min(len, in->left);
    str s = str_view(in->p, len);
    in->p += len;
    in->left -= len;
    return s;
}

/* What is encoded comes back, if nothing normalises it and each byte has a token. */
static void check_round_trip(const struct vocab *v, str text, const struct tok_ids *ids)
{
    struct buf out, whole;
    struct err e = {0};
    buf_init(&out, (size_t)1 << 24);
    buf_init(&whole, (size_t)1 << 24);
    must(tok_decode(v, tok_ids_data(ids), tok_ids_count(ids), TOK_DECODE_CONTROL, &out, &e));
    must(unicode_is_valid(buf_view(&out)));
    bool is_same = vocab_form(v) == VOCAB_FORM_BYTES && split_row_find(vocab_pre(v)) &&
                   !split_row_find(vocab_pre(v))->nfc;
    must(unicode_repair(text, &whole));
    for (size_t i = 0; i < whole.len; i++)
        is_same = is_same && vocab_byte(v, (uint8_t)whole.p[i]) != VOCAB_NONE;
    must(!is_same || str_eq(buf_view(&whole), buf_view(&out)));
    buf_deinit(&out);
    buf_deinit(&whole);
}

static void use_tokenizer(struct tok *t, str text, unsigned flags)
{
    struct tok_ids ids;
    struct err e = {0};
    tok_ids_init(&ids, (size_t)1 << 20);
    struct tok_span spans[2] = {{0, text.len / 3}, {text.len / 2, text.len}};
    struct tok_text in = {.text = text, .trusted = spans, .trusted_count = flags & 1 ? 2 : 0,
                          .add_special = flags & 2};
    if (tok_encode(t, &in, &ids, &e)) {
        for (size_t i = 0; i < tok_ids_count(&ids); i++) {
            int32_t id = tok_ids_data(&ids)[i];
            must(vocab_has(tok_vocab(t), id));
            must((flags & 3) || vocab_type(tok_vocab(t), id) != VOCAB_TYPE_CONTROL);
        }
        if (!(flags & 2))
            check_round_trip(tok_vocab(t), text, &ids);
    }
    tok_ids_deinit(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const models[] = {"gpt2", "llama", "gemma4", "bert", "t5"};
    static str tokens[512], merges[256];
    static int32_t types[512];
    static float scores[512];
    struct input in = {data, size};
    struct vocab_source s = vocab_source_empty;
    struct err e = {0};
    s.model = str_of(models[next_byte(&in) % countof(models)]);
    str names = str_of(split_table[next_byte(&in) % split_table_count].names);
    str_split(&names, ' ', &s.pre);
    unsigned flags = next_byte(&in);
    if (flags & 4) /* all bytes, so that texts come back */
        for (uint32_t b = 0, next = 0x100; b < 256; b++) {
            static char texts[256][4];
            bool is_visible = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
            size_t len = str_utf8_encode(texts[b], is_visible ? b : next);
            next += !is_visible;
            types[s.count] = VOCAB_TYPE_NORMAL;
            scores[s.count] = -(float)b;
            tokens[s.count++] = str_view(texts[b], len);
        }
    for (unsigned n = next_byte(&in); n > 0; n--) {
        types[s.count] = next_byte(&in) % 8;
        scores[s.count] = (float)next_byte(&in) - 128;
        tokens[s.count++] = next_text(&in, next_byte(&in));
    }
    for (unsigned n = next_byte(&in); n > 0; n--)
        merges[s.merge_count++] = next_text(&in, next_byte(&in));
    s.tokens = tokens;
    s.types = types;
    s.scores = scores;
    s.merges = merges;
    s.roles[VOCAB_ROLE_BOS] = s.count > 3 ? 3 : VOCAB_NONE;
    s.add_bos = flags & 8 ? VOCAB_FLAG_TRUE : VOCAB_FLAG_ABSENT;
    if (flags & 16)
        s.charsmap = next_text(&in, next_byte(&in) * 4u);
    struct tok *t = NULL;
    if (!tok_new(&t, &s, &e))
        return 0;
    use_tokenizer(t, next_text(&in, in.left), flags);
    tok_close(t);
    return 0;
}
