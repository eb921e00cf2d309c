#include "text/vocab.h"

/* What a GGUF file says about its tokenizer: each key checked for type, count and range. */

const struct vocab_source vocab_source_empty = {
    .roles = {[0 ... VOCAB_ROLE_COUNT - 1] = VOCAB_NONE},
};

static const struct {
    const char *key;
    enum vocab_role role;
} vocab_role_keys[] = {
    {"tokenizer.ggml.bos_token_id", VOCAB_ROLE_BOS},
    {"tokenizer.ggml.eos_token_id", VOCAB_ROLE_EOS},
    {"tokenizer.ggml.eot_token_id", VOCAB_ROLE_EOT},
    {"tokenizer.ggml.eom_token_id", VOCAB_ROLE_EOM},
    {"tokenizer.ggml.unknown_token_id", VOCAB_ROLE_UNK},
    {"tokenizer.ggml.seperator_token_id", VOCAB_ROLE_SEP}, /* spelt so in every file */
    {"tokenizer.ggml.padding_token_id", VOCAB_ROLE_PAD},
    {"tokenizer.ggml.cls_token_id", VOCAB_ROLE_CLS},
    {"tokenizer.ggml.mask_token_id", VOCAB_ROLE_MASK},
    {"tokenizer.ggml.prefix_token_id", VOCAB_ROLE_FIM_PREFIX},
    {"tokenizer.ggml.suffix_token_id", VOCAB_ROLE_FIM_SUFFIX},
    {"tokenizer.ggml.middle_token_id", VOCAB_ROLE_FIM_MIDDLE},
    {"tokenizer.ggml.fim_pre_token_id", VOCAB_ROLE_FIM_PREFIX},
    {"tokenizer.ggml.fim_suf_token_id", VOCAB_ROLE_FIM_SUFFIX},
    {"tokenizer.ggml.fim_mid_token_id", VOCAB_ROLE_FIM_MIDDLE},
    {"tokenizer.ggml.fim_pad_token_id", VOCAB_ROLE_FIM_PAD},
    {"tokenizer.ggml.fim_rep_token_id", VOCAB_ROLE_FIM_REPO},
    {"tokenizer.ggml.fim_sep_token_id", VOCAB_ROLE_FIM_FILE},
};

struct vocab_reader {
    const struct model_file *f;
    struct arena *a;
    uint32_t count; /* tokens; 0 until they are read */
};

/* The array under key, of r->count elements if exact; count stays 0 if there is no such key. */
static bool vocab_array(const struct vocab_reader *r, const char *key, enum model_kind kind,
                        bool exact, struct model_array *out, struct err *e)
{
    *out = (struct model_array){0};
    if (!model_file_has(r->f, key))
        return true;
    if (!model_file_array(r->f, key, kind, out, e))
        return false;
    if (exact && out->count != r->count)
        return err_set(e, ERR_FORMAT, "%s has %llu elements, the vocabulary has %u tokens", key,
                       (unsigned long long)out->count, r->count);
    if (out->count > VOCAB_COUNT_MAX)
        return err_set(e, ERR_LIMIT, "%s has %llu elements, at most %u are read", key,
                       (unsigned long long)out->count, VOCAB_COUNT_MAX);
    return true;
}

static bool vocab_no_memory(const char *key, uint64_t count, struct err *e)
{
    return err_set(e, ERR_LIMIT, "%s: no memory for %llu elements", key,
                   (unsigned long long)count);
}

static bool vocab_read_strings(const struct vocab_reader *r, const char *key, const str **out,
                               uint32_t *count, struct err *e)
{
    struct model_array array;
    if (!vocab_array(r, key, MODEL_KIND_STRING, false, &array, e))
        return false;
    str *s = ARENA_ARRAY(r->a, str, array.count);
    if (!s)
        return vocab_no_memory(key, array.count, e);
    for (uint64_t i = 0; i < array.count; i++)
        s[i] = model_file_str_at(&array, i);
    *out = s;
    *count = (uint32_t)array.count;
    return true;
}

/* *out stays NULL if there is no such key. */
static bool vocab_read_ints(const struct vocab_reader *r, const char *key, bool exact,
                            const int32_t **out, uint32_t *count, struct err *e)
{
    struct model_array array;
    if (!vocab_array(r, key, MODEL_KIND_INT, exact, &array, e))
        return false;
    if (array.count == 0)
        return true;
    int32_t *n = ARENA_ARRAY(r->a, int32_t, array.count);
    if (!n)
        return vocab_no_memory(key, array.count, e);
    for (uint64_t i = 0; i < array.count; i++) {
        int64_t v = model_file_i64_at(&array, i);
        if (v < INT32_MIN || v > INT32_MAX)
            return err_set(e, ERR_FORMAT, "%s: element %llu is %lld", key, (unsigned long long)i,
                           (long long)v);
        n[i] = (int32_t)v;
    }
    *out = n;
    *count = (uint32_t)array.count;
    return true;
}

/* Scores are floats; a few files hold whole numbers. */
static bool vocab_read_scores(const struct vocab_reader *r, const float **out, struct err *e)
{
    const char *key = "tokenizer.ggml.scores";
    struct model_value v;
    if (!model_file_find(r->f, key, &v))
        return true;
    bool is_float = v.type == MODEL_TYPE_ARRAY &&
                    (v.array.type == MODEL_TYPE_F32 || v.array.type == MODEL_TYPE_F64);
    struct model_array array;
    if (!vocab_array(r, key, is_float ? MODEL_KIND_FLOAT : MODEL_KIND_INT, true, &array, e))
        return false;
    float *scores = ARENA_ARRAY(r->a, float, r->count);
    if (!scores)
        return vocab_no_memory(key, r->count, e);
    for (uint32_t i = 0; i < r->count; i++)
        scores[i] = is_float ? model_file_f32_at(&array, i) : (float)model_file_i64_at(&array, i);
    *out = scores;
    return true;
}

static bool vocab_read_charsmap(const struct vocab_reader *r, str *out, struct err *e)
{
    struct model_array array;
    const char *key = "tokenizer.ggml.precompiled_charsmap";
    if (!vocab_array(r, key, MODEL_KIND_INT, false, &array, e))
        return false;
    if (array.count && array.type != MODEL_TYPE_U8 && array.type != MODEL_TYPE_I8)
        return err_set(e, ERR_FORMAT, "%s is not an array of bytes", key);
    *out = str_view(array.data, (size_t)array.count);
    return true;
}

static bool vocab_read_flag(enum vocab_flag *flag, const struct model_file *f, const char *key,
                            struct err *e)
{
    bool on = false;
    if (!model_file_has(f, key))
        return true;
    if (!model_file_bool_or(f, key, false, &on, e))
        return false;
    *flag = on ? VOCAB_FLAG_TRUE : VOCAB_FLAG_FALSE;
    return true;
}

static bool vocab_read_roles(struct vocab_source *s, const struct model_file *f, struct err *e)
{
    for (size_t i = 0; i < countof(vocab_role_keys); i++) {
        int64_t id;
        if (!model_file_i64_or(f, vocab_role_keys[i].key, VOCAB_NONE, &id, e))
            return false;
        if (id < 0 || id == UINT32_MAX) /* converters write -1 as a u32 for "none" */
            continue;
        if (id >= s->count)
            return err_set(e, ERR_FORMAT, "%s is %lld, the vocabulary has %u tokens",
                           vocab_role_keys[i].key, (long long)id, s->count);
        s->roles[vocab_role_keys[i].role] = (int32_t)id;
    }
    return true;
}

bool vocab_source_read(struct vocab_source *s, const struct model_file *f, struct arena *a,
                       struct err *e)
{
    *s = vocab_source_empty;
    struct vocab_reader r = {.f = f, .a = a};
    uint32_t types = 0;
    if (!model_file_str_or(f, "tokenizer.ggml.model", STR(""), &s->model, e) ||
        !model_file_str_or(f, "tokenizer.ggml.pre", STR(""), &s->pre, e))
        return false;
    if (s->model.len == 0 || !model_file_has(f, "tokenizer.ggml.tokens"))
        return err_set(e, ERR_NOT_FOUND, "no vocabulary (tokenizer.ggml.tokens) in the file");
    if (!vocab_read_strings(&r, "tokenizer.ggml.tokens", &s->tokens, &s->count, e))
        return false;
    if (s->count == 0)
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.tokens is empty");
    r.count = s->count;
    if (!vocab_read_ints(&r, "tokenizer.ggml.token_type", true, &s->types, &types, e) ||
        !vocab_read_scores(&r, &s->scores, e) ||
        !vocab_read_strings(&r, "tokenizer.ggml.merges", &s->merges, &s->merge_count, e) ||
        !vocab_read_ints(&r, "tokenizer.ggml.suppress_tokens", false, &s->suppress,
                         &s->suppress_count, e) ||
        !vocab_read_charsmap(&r, &s->charsmap, e) || !vocab_read_roles(s, f, e))
        return false;
    return vocab_read_flag(&s->add_bos, f, "tokenizer.ggml.add_bos_token", e) &&
           vocab_read_flag(&s->add_eos, f, "tokenizer.ggml.add_eos_token", e) &&
           vocab_read_flag(&s->add_sep, f, "tokenizer.ggml.add_sep_token", e) &&
           vocab_read_flag(&s->normalisers[VOCAB_NORMALISER_NFC], f,
                           "tokenizer.ggml.normalizer.nfc", e) &&
           vocab_read_flag(&s->normalisers[VOCAB_NORMALISER_LOWERCASE], f,
                           "tokenizer.ggml.normalizer.lowercase", e) &&
           vocab_read_flag(&s->normalisers[VOCAB_NORMALISER_STRIP_ACCENTS], f,
                           "tokenizer.ggml.normalizer.strip_accents", e) &&
           vocab_read_flag(&s->add_space_prefix, f, "tokenizer.ggml.add_space_prefix", e) &&
           vocab_read_flag(&s->remove_extra_blanks, f, "tokenizer.ggml.remove_extra_whitespaces",
                           e);
}
