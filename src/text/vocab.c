#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "text/split.h"
#include "text/tok.h"

#define VOCAB_SPACE "\xe2\x96\x81" /* U+2581, SentencePiece's space */

struct vocab_token {
    const char *text, *bytes;
    uint16_t text_len, bytes_len;
    uint8_t type;
    bool is_eog;
};

struct vocab {
    struct arena arena; /* texts, bytes, arrays below */
    uint32_t count, bytes_max;
    struct vocab_token *tokens;
    float *scores; /* NULL: all 0 */
    /* Index from the bytes of ordinary tokens: hash 32 | id + 1 32, power of two, at most half
     * full. Not a base/map: a lookup here costs one miss less, and SentencePiece looks up pieces
     * by the million. The seed keeps a hostile vocabulary from colliding. */
    uint64_t *slots, seed;
    uint32_t slots_mask;
    int32_t byte_ids[256];
    int32_t roles[VOCAB_ROLE_COUNT];
    int32_t *eog, *suppress;
    uint32_t eog_count, suppress_count;
    struct trie user_defined, specials;
    str model, pre;
    enum vocab_form form;
    bool add_bos, add_eos, add_sep, add_space_prefix, normalisers[VOCAB_NORMALISER_COUNT];
    struct buf corrected;
};

/* ---- the two forms of a token ---- */

/* GPT-2's table: printable bytes stand for themselves, the other 68 follow from U+0100 on. */
static int vocab_byte_of(uint32_t c)
{
    if ((c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255))
        return (int)c;
    if (c < 0x100 || c >= 0x100 + 68)
        return -1;
    c -= 0x100;
    return (int)(c < 33 ? c : c < 67 ? c - 33 + 127 : 173);
}

/* Bytes of a byte-level text; false: it holds another character, so it stands for itself. */
static bool vocab_from_byte_level(str text, char *out, size_t *len)
{
    *len = 0;
    for (size_t at = 0; at < text.len;) {
        uint32_t c = 0;
        size_t n = str_utf8_decode(str_from(text, at), &c);
        int byte = n ? vocab_byte_of(c) : -1;
        if (byte < 0)
            return false;
        out[(*len)++] = (char)byte;
        at += n;
    }
    return true;
}

static size_t vocab_from_spaces(str text, char *out)
{
    size_t len = 0;
    for (size_t at = 0; at < text.len;) {
        bool is_space = text.len - at >= 3 && !memcmp(text.p + at, VOCAB_SPACE, 3);
        out[len++] = is_space ? ' ' : text.p[at];
        at += is_space ? 3 : 1;
    }
    return len;
}

/* "<0x0A>": its byte, or -1. */
static int vocab_from_hex(str text)
{
    uint8_t byte;
    if (text.len != 6 || memcmp(text.p, "<0x", 3) != 0 || text.p[5] != '>' ||
        !digest_unhex(&byte, 1, str_sub(text, 3, 2)))
        return -1;
    return byte;
}

/* Writes the bytes of text to out[text.len]: their count. */
static size_t vocab_form_bytes(enum vocab_form form, enum vocab_type type, str text, char *out)
{
    size_t len = 0;
    if (type == VOCAB_TYPE_BYTE && vocab_from_hex(text) >= 0) {
        out[0] = (char)vocab_from_hex(text);
        return 1;
    }
    bool is_ordinary = type == VOCAB_TYPE_NORMAL || type == VOCAB_TYPE_UNUSED;
    if (is_ordinary && form == VOCAB_FORM_BYTES && vocab_from_byte_level(text, out, &len))
        return len;
    if (is_ordinary && (form == VOCAB_FORM_SPACE || form == VOCAB_FORM_WORD))
        return vocab_from_spaces(text, out);
    if (text.len)
        memcpy(out, text.p, text.len);
    return text.len;
}

size_t vocab_to_bytes(const struct vocab *v, str text, char *out)
{
    return vocab_form_bytes(v->form, VOCAB_TYPE_NORMAL, text, out);
}

/* ---- index ---- */

static uint64_t vocab_hash(const struct vocab *v, str bytes) { return digest_xxh3(bytes, v->seed); }

static int32_t vocab_index_find(const struct vocab *v, str bytes, uint64_t hash)
{
    uint64_t high = hash & 0xffffffff00000000ull;
    for (uint32_t at = (uint32_t)hash & v->slots_mask;; at = (at + 1) & v->slots_mask) {
        uint64_t slot = v->slots[at];
        if (slot == 0)
            return VOCAB_NONE;
        if ((slot & 0xffffffff00000000ull) != high)
            continue;
        int32_t id = (int32_t)(uint32_t)slot - 1;
        const struct vocab_token *t = &v->tokens[id];
        if (t->bytes_len == bytes.len && !memcmp(t->bytes, bytes.p, bytes.len))
            return id;
    }
}

int32_t vocab_find_bytes(const struct vocab *v, str bytes)
{
    if (bytes.len == 0 || bytes.len > v->bytes_max)
        return VOCAB_NONE;
    int32_t id = vocab_index_find(v, bytes, vocab_hash(v, bytes));
    /* One that was made a control token after the index was built. */
    return id != VOCAB_NONE && v->tokens[id].type == VOCAB_TYPE_CONTROL ? VOCAB_NONE : id;
}

static void vocab_index_add(struct vocab *v, int32_t id)
{
    const struct vocab_token *t = &v->tokens[id];
    str bytes = {t->bytes, t->bytes_len};
    uint64_t hash = vocab_hash(v, bytes);
    if (bytes.len == 0 || vocab_index_find(v, bytes, hash) != VOCAB_NONE)
        return; /* of two equal ones the first counts */
    uint32_t at = (uint32_t)hash & v->slots_mask;
    while (v->slots[at])
        at = (at + 1) & v->slots_mask;
    v->slots[at] = (hash & 0xffffffff00000000ull) | (uint32_t)(id + 1);
}

/* Ordinary tokens can be found by their bytes. A plain space in the text of a SentencePiece token
 * can never match, as the text has U+2581 there: its bytes belong to another token. */
static bool vocab_is_indexed(const struct vocab *v, const struct vocab_token *t)
{
    if (t->type != VOCAB_TYPE_NORMAL && t->type != VOCAB_TYPE_UNUSED)
        return false;
    return v->form != VOCAB_FORM_SPACE || !memchr(t->text, ' ', t->text_len);
}

/* ---- building ---- */

static bool vocab_copy_tokens(struct vocab *v, const struct vocab_source *s, struct err *e)
{
    size_t total = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->tokens[i].len > VOCAB_TEXT_MAX)
            return err_set(e, ERR_LIMIT, "tokenizer: token %u has %zu bytes, at most %u are read",
                           i, s->tokens[i].len, VOCAB_TEXT_MAX);
        total += s->tokens[i].len;
    }
    if (total > VOCAB_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "tokenizer: %zu bytes of tokens, at most %zu are read",
                       total, VOCAB_BYTES_MAX);
    char *text = arena_alloc(&v->arena, total), *bytes = arena_alloc(&v->arena, total);
    v->tokens = ARENA_ARRAY(&v->arena, struct vocab_token, s->count);
    if (!text || !bytes || !v->tokens)
        return err_set(e, ERR_MEMORY, "tokenizer: no memory for %u tokens", s->count);
    for (uint32_t i = 0; i < s->count; i++) {
        int32_t type = s->types ? s->types[i] : VOCAB_TYPE_NORMAL;
        if (type == 0) /* "undefined" of old converters */
            type = VOCAB_TYPE_NORMAL;
        if (type < VOCAB_TYPE_NORMAL || type > VOCAB_TYPE_BYTE)
            return err_set(e, ERR_FORMAT, "tokenizer: token %u has type %d, 1 to 6 are known", i,
                           type);
        str from = s->tokens[i];
        if (from.len)
            memcpy(text, from.p, from.len);
        from.p = text;
        size_t len = vocab_form_bytes(v->form, (enum vocab_type)type, from, bytes);
        v->tokens[i] = (struct vocab_token){.text = text, .text_len = (uint16_t)from.len,
                                            .bytes = bytes, .bytes_len = (uint16_t)len,
                                            .type = (uint8_t)type};
        v->bytes_max = (uint32_t)base_max(v->bytes_max, len);
        text += from.len;
        bytes += len;
    }
    v->count = s->count;
    return true;
}

static bool vocab_build_index(struct vocab *v, struct err *e)
{
    uint32_t slots = 64;
    while (slots < v->count * 2)
        slots *= 2;
    v->slots = ARENA_ARRAY(&v->arena, uint64_t, slots);
    if (!v->slots)
        return err_set(e, ERR_MEMORY, "tokenizer: no memory for an index of %u tokens", v->count);
    v->slots_mask = slots - 1;
    digest_random(&v->seed, sizeof v->seed);
    for (uint32_t i = 0; i < v->count; i++)
        if (vocab_is_indexed(v, &v->tokens[i]))
            vocab_index_add(v, (int32_t)i);
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        v->byte_ids[b] = v->form == VOCAB_FORM_BYTES ? vocab_find_bytes(v, str_view(&c, 1))
                                                     : VOCAB_NONE;
    }
    for (uint32_t i = 0; i < v->count; i++)
        if (v->tokens[i].type == VOCAB_TYPE_BYTE && v->tokens[i].bytes_len == 1) {
            int32_t *id = &v->byte_ids[(uint8_t)v->tokens[i].bytes[0]];
            *id = *id == VOCAB_NONE ? (int32_t)i : *id;
        }
    return true;
}

/* Specials by text, so that roles can be found. */
static bool vocab_build_specials(struct vocab *v, struct err *e)
{
    trie_init(&v->specials);
    for (uint32_t i = 0; i < v->count; i++) {
        const struct vocab_token *t = &v->tokens[i];
        bool is_special = t->type == VOCAB_TYPE_USER_DEFINED || t->type == VOCAB_TYPE_CONTROL ||
                          t->type == VOCAB_TYPE_UNKNOWN;
        if (is_special && t->text_len &&
            !trie_add(&v->specials, str_view(t->text, t->text_len), (int32_t)i))
            return err_set(e, ERR_MEMORY, "tokenizer: no memory for the special token %u", i);
    }
    return true;
}

/* ---- roles ---- */

/* Texts that name a role, best first, where the file has no key for it:
 * docs/models/tokenizers.md. */
static const struct {
    enum vocab_role role;
    const char *texts[12];
} vocab_role_texts[] = {
    {VOCAB_ROLE_EOT,
     {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
      "<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>"}},
    {VOCAB_ROLE_EOM, {"<|eom_id|>"}},
    {VOCAB_ROLE_FIM_PREFIX,
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
      "<|code_prefix|>", "<|prefix|>"}},
    {VOCAB_ROLE_FIM_SUFFIX,
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
      "<|code_suffix|>", "<|suffix|>"}},
    {VOCAB_ROLE_FIM_MIDDLE,
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
      "<|code_middle|>", "<|middle|>"}},
    {VOCAB_ROLE_FIM_PAD, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    {VOCAB_ROLE_FIM_REPO,
     {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {VOCAB_ROLE_FIM_FILE, {"<|file_sep|>"}},
};

/* Texts that end a reply in whatever model they appear as special tokens. As an ordinary token
 * ("</s>" in Qwen's, which writes HTML with it) they do not. */
static const char *const vocab_eog_texts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "[e~[",
};

/* Roles a SentencePiece or WordPiece file may leave out: given by text, and only to a control (or
 * unknown) token, so that an absent key never makes an ordinary token special. */
static const struct {
    enum vocab_form form;
    enum vocab_role role;
    const char *text;
} vocab_role_defaults[] = {
    {VOCAB_FORM_SPACE, VOCAB_ROLE_BOS, "<s>"},   {VOCAB_FORM_SPACE, VOCAB_ROLE_EOS, "</s>"},
    {VOCAB_FORM_SPACE, VOCAB_ROLE_UNK, "<unk>"}, {VOCAB_FORM_WORD, VOCAB_ROLE_BOS, "[CLS]"},
    {VOCAB_FORM_WORD, VOCAB_ROLE_CLS, "[CLS]"},  {VOCAB_FORM_WORD, VOCAB_ROLE_SEP, "[SEP]"},
    {VOCAB_FORM_WORD, VOCAB_ROLE_UNK, "[UNK]"},  {VOCAB_FORM_WORD, VOCAB_ROLE_PAD, "[PAD]"},
    {VOCAB_FORM_WORD, VOCAB_ROLE_MASK, "[MASK]"},
};

int32_t vocab_find(const struct vocab *v, str text)
{
    int32_t id = VOCAB_NONE;
    if (text.len == 0 || text.len > VOCAB_TEXT_MAX)
        return VOCAB_NONE;
    if (trie_longest(&v->specials, text, &id) == text.len)
        return id;
    char bytes[VOCAB_TEXT_MAX];
    size_t len = vocab_to_bytes(v, text, bytes);
    id = vocab_find_bytes(v, str_view(bytes, len));
    if (id != VOCAB_NONE && str_eq(vocab_text(v, id), text))
        return id;
    int byte = vocab_from_hex(text);
    id = byte < 0 ? VOCAB_NONE : v->byte_ids[byte];
    return id != VOCAB_NONE && str_eq(vocab_text(v, id), text) ? id : VOCAB_NONE;
}

/* As vocab_find, but ordinary tokens only in a vocabulary that marks none as special. Many files
 * have a turn's end as user-defined; "</s>" as such is HTML (Gemma). */
static int32_t vocab_find_special(const struct vocab *v, const char *text)
{
    int32_t id = vocab_find(v, str_of(text));
    if (id == VOCAB_NONE || v->specials.bytes.len == 0)
        return id;
    enum vocab_type type = vocab_type(v, id);
    bool is_html = type == VOCAB_TYPE_USER_DEFINED && !strcmp(text, "</s>");
    return type == VOCAB_TYPE_NORMAL || is_html ? VOCAB_NONE : id;
}

static void vocab_set_roles(struct vocab *v, const struct vocab_source *s)
{
    memcpy(v->roles, s->roles, sizeof v->roles);
    for (size_t i = 0; i < countof(vocab_role_defaults); i++) {
        int32_t *role = &v->roles[vocab_role_defaults[i].role];
        if (vocab_role_defaults[i].form != v->form || *role != VOCAB_NONE)
            continue;
        int32_t id = vocab_find(v, str_of(vocab_role_defaults[i].text));
        if (id != VOCAB_NONE && vocab_is_control(v, id))
            *role = id;
    }
    for (size_t i = 0; i < countof(vocab_role_texts); i++) {
        int32_t *role = &v->roles[vocab_role_texts[i].role];
        for (size_t j = 0; *role == VOCAB_NONE && vocab_role_texts[i].texts[j]; j++)
            *role = vocab_find_special(v, vocab_role_texts[i].texts[j]);
    }
}

static void vocab_set_eog_text(struct vocab *v, const char *text, bool on)
{
    int32_t id = vocab_find_special(v, text);
    if (id != VOCAB_NONE)
        v->tokens[id].is_eog = on;
}

static bool vocab_eog_has(const struct vocab *v, const char *text)
{
    int32_t id = vocab_find_special(v, text);
    return id != VOCAB_NONE && v->tokens[id].is_eog;
}

static bool vocab_set_eog(struct vocab *v, const struct vocab_source *s, struct err *e)
{
    static const enum vocab_role roles[] = {VOCAB_ROLE_EOS,     VOCAB_ROLE_EOT,
                                            VOCAB_ROLE_EOM,     VOCAB_ROLE_FIM_PAD,
                                            VOCAB_ROLE_FIM_REPO, VOCAB_ROLE_FIM_FILE};
    for (size_t i = 0; i < countof(roles); i++)
        if (v->roles[roles[i]] != VOCAB_NONE)
            v->tokens[v->roles[roles[i]]].is_eog = true;
    for (size_t i = 0; i < countof(vocab_eog_texts); i++)
        vocab_set_eog_text(v, vocab_eog_texts[i], true);
    for (uint32_t i = 0; i < s->eog_count; i++) {
        if (!vocab_has(v, s->eog[i]))
            return err_set(e, ERR_FORMAT, "tokenizer: end token %d, the vocabulary has %u tokens",
                           s->eog[i], v->count);
        v->tokens[s->eog[i]].is_eog = true;
    }
    /* Families where one of these texts does not end a reply. */
    if (vocab_eog_has(v, "<|tool_response>"))
        vocab_set_eog_text(v, "</s>", false);
    if ((vocab_eog_has(v, "<|return|>") && vocab_eog_has(v, "<|call|>")) ||
        (vocab_eog_has(v, "<|calls|>") && vocab_eog_has(v, "<|flush|>")))
        vocab_set_eog_text(v, "<|end|>", false);
    uint32_t count = 0;
    for (uint32_t i = 0; i < v->count; i++)
        count += v->tokens[i].is_eog;
    v->eog = ARENA_ARRAY(&v->arena, int32_t, count);
    if (!v->eog)
        return err_set(e, ERR_MEMORY, "tokenizer: out of memory");
    for (uint32_t i = 0; i < v->count; i++)
        if (v->tokens[i].is_eog)
            v->eog[v->eog_count++] = (int32_t)i;
    return true;
}

static int vocab_cmp_ids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

static bool vocab_copy_arrays(struct vocab *v, const struct vocab_source *s, struct err *e)
{
    v->suppress = ARENA_ARRAY(&v->arena, int32_t, s->suppress_count);
    v->scores = s->scores ? ARENA_ARRAY(&v->arena, float, s->count) : NULL;
    if (!v->suppress || (s->scores && !v->scores))
        return err_set(e, ERR_MEMORY, "tokenizer: out of memory");
    for (uint32_t i = 0; i < s->suppress_count; i++) {
        if (!vocab_has(v, s->suppress[i]))
            return err_set(e, ERR_FORMAT, "tokenizer.ggml.suppress_tokens: %d, the vocabulary has "
                           "%u tokens", s->suppress[i], v->count);
        v->suppress[i] = s->suppress[i];
    }
    v->suppress_count = s->suppress_count;
    qsort(v->suppress, v->suppress_count, sizeof v->suppress[0], vocab_cmp_ids);
    for (uint32_t i = 0; s->scores && i < s->count; i++) {
        if (s->scores[i] != s->scores[i])
            return err_set(e, ERR_FORMAT, "tokenizer.ggml.scores: element %u is not a number", i);
        v->scores[i] = s->scores[i];
    }
    return true;
}

/* What ends a reply or frames an infill is never for content to write, although some files have
 * it as user-defined (or everything as ordinary). The rest of the user-defined ones match there. */
static bool vocab_is_marker(const struct vocab_token *t)
{
    for (size_t i = 0; i < countof(vocab_eog_texts); i++)
        if (str_eq_z(str_view(t->text, t->text_len), vocab_eog_texts[i]))
            return true;
    return false;
}

static bool vocab_promote(struct vocab *v, struct err *e)
{
    static const enum vocab_role roles[] = {
        VOCAB_ROLE_FIM_PREFIX, VOCAB_ROLE_FIM_SUFFIX, VOCAB_ROLE_FIM_MIDDLE,
        VOCAB_ROLE_FIM_PAD,    VOCAB_ROLE_FIM_REPO,   VOCAB_ROLE_FIM_FILE,
    };
    for (size_t i = 0; i < countof(roles); i++) {
        int32_t id = v->roles[roles[i]];
        if (id != VOCAB_NONE && v->tokens[id].type == VOCAB_TYPE_USER_DEFINED)
            v->tokens[id].type = VOCAB_TYPE_CONTROL;
    }
    trie_init(&v->user_defined);
    for (uint32_t i = 0; i < v->count; i++) {
        struct vocab_token *t = &v->tokens[i];
        str text = str_view(t->text, t->text_len);
        if (t->is_eog && (t->type == VOCAB_TYPE_USER_DEFINED ||
                          (t->type == VOCAB_TYPE_NORMAL && vocab_is_marker(t)))) {
            t->type = VOCAB_TYPE_CONTROL;
            if (text.len && !trie_add(&v->specials, text, (int32_t)i))
                return err_set(e, ERR_MEMORY, "tokenizer: out of memory");
        }
        if (t->type == VOCAB_TYPE_USER_DEFINED && text.len &&
            !trie_add(&v->user_defined, text, (int32_t)i))
            return err_set(e, ERR_MEMORY, "tokenizer: out of memory");
    }
    return true;
}

/* ---- rules ---- */

static bool vocab_flag(enum vocab_flag flag, bool absent)
{
    return flag == VOCAB_FLAG_ABSENT ? absent : flag == VOCAB_FLAG_TRUE;
}

static void vocab_set_rules(struct vocab *v, const struct vocab_source *s,
                            const struct tok_kind *kind, const struct split_row *row)
{
    v->add_bos = vocab_flag(s->add_bos, kind->add_bos || (row && row->add_bos));
    v->add_eos = vocab_flag(s->add_eos, kind->add_eos);
    v->add_sep = vocab_flag(s->add_sep, kind->add_sep || (row && row->add_sep));
    v->add_space_prefix = vocab_flag(s->add_space_prefix, kind->add_space_prefix);
    bool *n = v->normalisers;
    n[VOCAB_NORMALISER_NFC] = vocab_flag(s->normalisers[VOCAB_NORMALISER_NFC], row && row->nfc);
    n[VOCAB_NORMALISER_LOWERCASE] = vocab_flag(s->normalisers[VOCAB_NORMALISER_LOWERCASE], true);
    n[VOCAB_NORMALISER_STRIP_ACCENTS] = vocab_flag(s->normalisers[VOCAB_NORMALISER_STRIP_ACCENTS],
                                                   n[VOCAB_NORMALISER_LOWERCASE]);
    if (kind->needs_bos && !v->add_bos) {
        buf_printf(&v->corrected, "add_bos_token is %s, but %s needs it; ",
                   s->add_bos == VOCAB_FLAG_ABSENT ? "missing" : "false", kind->model);
        v->add_bos = true;
    }
    if (kind->uses_pre && s->pre.len == 0 && str_eq_z(v->pre, "default"))
        buf_printf(&v->corrected, "tokenizer.ggml.pre is missing, default rules are used; ");
    static const struct {
        const char *key;
        enum vocab_role role;
        size_t flag;
    } needs[] = {
        {"add_bos_token", VOCAB_ROLE_BOS, offsetof(struct vocab, add_bos)},
        {"add_eos_token", VOCAB_ROLE_EOS, offsetof(struct vocab, add_eos)},
        {"add_sep_token", VOCAB_ROLE_SEP, offsetof(struct vocab, add_sep)},
    };
    for (size_t i = 0; i < countof(needs); i++) {
        bool *flag = (bool *)((char *)v + needs[i].flag);
        if (!*flag || v->roles[needs[i].role] != VOCAB_NONE)
            continue;
        *flag = false;
        buf_printf(&v->corrected, "%s without such a token is ignored; ", needs[i].key);
    }
}

/* Bytes of UTF-8 that no text in this vocabulary can have. */
static void vocab_note_bytes(struct vocab *v)
{
    uint32_t missing = 0;
    for (unsigned b = 0; b < 0xf5; b++)
        missing += b != 0xc0 && b != 0xc1 && v->byte_ids[b] == VOCAB_NONE;
    if (missing && v->form == VOCAB_FORM_BYTES)
        buf_printf(&v->corrected, "%u bytes have no token and are left out of texts; ", missing);
}

static bool vocab_fill(struct vocab *v, const struct vocab_source *s, struct err *e)
{
    const struct tok_kind *kind = tok_kind_find(s->model);
    if (!kind)
        return err_set(e, ERR_UNSUPPORTED, "tokenizer.ggml.model '%.*s' is not supported",
                       STR_ARG(s->model));
    if (s->count == 0 || s->count > VOCAB_COUNT_MAX)
        return err_set(e, ERR_LIMIT, "tokenizer: %u tokens, 1 to %u are read", s->count,
                       VOCAB_COUNT_MAX);
    str pre = kind->pre ? str_of(kind->pre) : s->pre.len ? s->pre : STR("default");
    const struct split_row *row = kind->uses_pre ? split_row_find(pre) : NULL;
    if (kind->uses_pre && !row)
        return err_set(e, ERR_UNSUPPORTED, "tokenizer.ggml.pre '%.*s' is not supported",
                       STR_ARG(pre));
    v->model = arena_copy(&v->arena, s->model);
    v->pre = arena_copy(&v->arena, pre);
    v->form = row ? row->form : kind->form;
    if (!v->model.p || !v->pre.p)
        return err_set(e, ERR_MEMORY, "tokenizer: out of memory");
    if (!vocab_copy_tokens(v, s, e) || !vocab_build_index(v, e) || !vocab_build_specials(v, e) ||
        !vocab_copy_arrays(v, s, e))
        return false;
    vocab_set_roles(v, s);
    vocab_set_rules(v, s, kind, row);
    vocab_note_bytes(v);
    return vocab_set_eog(v, s, e) && vocab_promote(v, e);
}

bool vocab_new(struct vocab **out, const struct vocab_source *s, struct err *e)
{
    struct vocab *v = calloc(1, sizeof *v);
    if (!v)
        return err_set(e, ERR_MEMORY, "tokenizer: out of memory");
    arena_init(&v->arena, 4 * VOCAB_BYTES_MAX);
    buf_init(&v->corrected, 1024);
    if (!vocab_fill(v, s, e)) {
        vocab_free(v);
        return false;
    }
    if (v->corrected.len) /* without the last "; " */
        v->corrected.p[v->corrected.len -= 2] = 0;
    *out = v;
    return true;
}

void vocab_free(struct vocab *v)
{
    if (!v)
        return;
    trie_deinit(&v->user_defined);
    trie_deinit(&v->specials);
    buf_deinit(&v->corrected);
    arena_deinit(&v->arena);
    free(v);
}

/* ---- reading ---- */

static const struct vocab_token *vocab_at(const struct vocab *v, int32_t id)
{
    must(vocab_has(v, id));
    return &v->tokens[id];
}

uint32_t vocab_count(const struct vocab *v) { return v->count; }
str vocab_text(const struct vocab *v, int32_t id)
{
    return str_view(vocab_at(v, id)->text, v->tokens[id].text_len);
}
str vocab_bytes(const struct vocab *v, int32_t id)
{
    return str_view(vocab_at(v, id)->bytes, v->tokens[id].bytes_len);
}
enum vocab_type vocab_type(const struct vocab *v, int32_t id)
{
    return (enum vocab_type)vocab_at(v, id)->type;
}
float vocab_score(const struct vocab *v, int32_t id)
{
    must(vocab_has(v, id));
    return v->scores ? v->scores[id] : 0.0f;
}
bool vocab_is_eog(const struct vocab *v, int32_t id) { return vocab_at(v, id)->is_eog; }
int32_t vocab_byte(const struct vocab *v, uint8_t byte) { return v->byte_ids[byte]; }
int32_t vocab_role(const struct vocab *v, enum vocab_role role) { return v->roles[role]; }
const int32_t *vocab_eog(const struct vocab *v, uint32_t *count)
{
    *count = v->eog_count;
    return v->eog;
}
const int32_t *vocab_suppressed(const struct vocab *v, uint32_t *count)
{
    *count = v->suppress_count;
    return v->suppress;
}
str vocab_model(const struct vocab *v) { return v->model; }
str vocab_pre(const struct vocab *v) { return v->pre; }
enum vocab_form vocab_form(const struct vocab *v) { return v->form; }
bool vocab_add_bos(const struct vocab *v) { return v->add_bos; }
bool vocab_add_eos(const struct vocab *v) { return v->add_eos; }
bool vocab_add_sep(const struct vocab *v) { return v->add_sep; }
bool vocab_add_space_prefix(const struct vocab *v) { return v->add_space_prefix; }
bool vocab_normaliser(const struct vocab *v, enum vocab_normaliser n) { return v->normalisers[n]; }
uint32_t vocab_bytes_max(const struct vocab *v) { return v->bytes_max; }
str vocab_corrected(const struct vocab *v) { return buf_view(&v->corrected); }
const struct trie *vocab_user_defined(const struct vocab *v) { return &v->user_defined; }
const struct trie *vocab_specials(const struct vocab *v) { return &v->specials; }
