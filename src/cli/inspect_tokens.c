#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/inspect.h"
#include "text/tok.h"

#define INSPECT_TEXT_FILE_MAX ((size_t)64 << 20)
#define INSPECT_TOKENS_MAX ((size_t)1 << 26)

static const char *inspect_tokens_kind(enum vocab_type t)
{
    switch (t) {
    case VOCAB_TYPE_NORMAL:
        return "normal";
    case VOCAB_TYPE_UNKNOWN:
        return "unknown";
    case VOCAB_TYPE_CONTROL:
        return "control";
    case VOCAB_TYPE_USER_DEFINED:
        return "user";
    case VOCAB_TYPE_UNUSED:
        return "unused";
    case VOCAB_TYPE_BYTE:
        return "byte";
    }
    return "?";
}

/* The text to cut: the word after the model, or the file. It lies in the arena with room to spare
 * for a 64 MiB file: the arena of the process is smaller, so the file has one of its own. */
static bool inspect_tokens_text(const struct inspect *in, struct arena *own, str *text,
                                struct err *e)
{
    const struct cmd_context *c = in->c;
    if (cmd_is_given(c, "f")) {
        if (c->words_count > 2)
            return err_set(e, ERR_USAGE, "inspect tokens: TEXT and -f exclude each other");
        return file_read(text, cmd_text(c, "f").p, INSPECT_TEXT_FILE_MAX, own, e);
    }
    if (c->words_count < 3)
        return err_set(e, ERR_USAGE, "inspect tokens: TEXT or -f FILE missing");
    *text = c->words[2];
    return true;
}

/* Where the decoded text first differs from the given one, or STR_NONE. */
static size_t inspect_tokens_differs(str given, str decoded)
{
    size_t n = base_min(given.len, decoded.len);
    for (size_t i = 0; i < n; i++)
        if (given.p[i] != decoded.p[i])
            return i;
    return given.len == decoded.len ? STR_NONE : n;
}

static void inspect_tokens_add_text(struct buf *out, const struct vocab *v,
                                    const struct tok_ids *ids, size_t differs)
{
    size_t count = tok_ids_count(ids);
    for (size_t i = 0; i < count; i++) {
        int32_t id = tok_ids_data(ids)[i];
        buf_printf(out, "%8d  %-8s ", (int)id, inspect_tokens_kind(vocab_type(v, id)));
        buf_add_byte(out, '"');
        buf_add_printable(out, vocab_bytes(v, id));
        buf_add_z(out, "\"\n");
    }
    buf_printf(out, "%zu token%s, round trip ", count, count == 1 ? "" : "s");
    if (differs == STR_NONE)
        buf_add_z(out, "exact\n");
    else
        buf_printf(out, "differs at byte %zu\n", differs);
}

static void inspect_tokens_put(struct buf *out, const struct vocab *v, const struct tok_ids *ids,
                               size_t differs)
{
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    json_key_z(&w, "tokens");
    json_open_array(&w);
    for (size_t i = 0; i < tok_ids_count(ids); i++) {
        int32_t id = tok_ids_data(ids)[i];
        json_open_object(&w);
        json_key_z(&w, "id");
        json_put_i64(&w, id);
        json_key_z(&w, "kind");
        json_put_text_z(&w, inspect_tokens_kind(vocab_type(v, id)));
        json_key_z(&w, "piece");
        json_put_text(&w, vocab_bytes(v, id));
        json_key_z(&w, "text");
        json_put_text(&w, vocab_text(v, id));
        json_close_object(&w);
    }
    json_close_array(&w);
    json_key_z(&w, "differs_at");
    if (differs == STR_NONE)
        json_put_null(&w);
    else
        json_put_u64(&w, differs);
    json_close_object(&w);
    buf_add_byte(out, '\n');
}

/* Decoding shows broken UTF-8 as U+FFFD, so such a text differs; that is what one wants to see. */
static bool inspect_tokens_show(struct inspect *in, struct tok *tok, str text, struct err *e)
{
    const struct vocab *v = tok_vocab(tok);
    struct tok_ids ids;
    struct buf decoded;
    bool parse_special = cmd_bool(in->c, "special");
    tok_ids_init(&ids, INSPECT_TOKENS_MAX);
    buf_init(&decoded, INSPECT_OUT_MAX);
    unsigned flags = TOK_DECODE_START | (parse_special ? TOK_DECODE_CONTROL : 0u);
    bool ok = tok_encode_str(tok, text, parse_special, false, &ids, e) &&
              tok_decode(v, tok_ids_data(&ids), tok_ids_count(&ids), flags, &decoded, e);
    if (ok) {
        size_t differs = inspect_tokens_differs(text, buf_view(&decoded));
        if (in->as_json)
            inspect_tokens_put(&in->out, v, &ids, differs);
        else
            inspect_tokens_add_text(&in->out, v, &ids, differs);
    }
    tok_ids_deinit(&ids);
    buf_deinit(&decoded);
    return ok;
}

bool inspect_tokens(struct inspect *in, struct err *e)
{
    struct arena own;
    struct model_file *f = NULL;
    struct tok *tok = NULL;
    str text;
    arena_init(&own, 2 * INSPECT_TEXT_FILE_MAX);
    bool ok = inspect_tokens_text(in, &own, &text, e) && model_file_open(&f, in->model.path.p, e) &&
              tok_open(&tok, f, e) && inspect_tokens_show(in, tok, text, e);
    tok_close(tok);
    model_file_close(f);
    arena_deinit(&own);
    return ok;
}
