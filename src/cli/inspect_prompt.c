#include "base/chrono.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/inspect.h"
#include "dialect/dialect.h"
#include "engine/engine.h"

#define INSPECT_REQUEST_MAX ((size_t)64 << 20)
#define INSPECT_REQUEST_ARENA (4 * INSPECT_REQUEST_MAX + ((size_t)1 << 20))
#define INSPECT_LABEL 22

struct inspect_prompt_view {
    struct model_file *file;
    struct tok *tok;
    struct arena model_arena;
    struct job *job; /* holds the request, the prompt's ids, the rendered text */
    struct render_result shown;
};

static bool inspect_prompt_api(const struct api_error *from, struct err *e)
{
    *e = from->err;
    return false;
}

/* --- making it, as the engine does --- */

/* The body as an OpenAI chat request; the request lies in a. */
static bool inspect_prompt_read(str body, struct api_request *rq, struct arena *a, struct err *e)
{
    struct dialect_in in = {.body = body, .request_id = STR("inspect"), .has_model = true,
                            .time_s = chrono_unix_ms(&chrono_real) / 1000,
                            .limits = &dialect_limits_default};
    const struct dialect *d;
    struct api_error why = {0};
    must(dialect_match(STR("POST"), STR("/v1/chat/completions"), &d, &in.path, &in.segment));
    struct dialect_state *state = arena_alloc(a, d->state_size);
    if (!state)
        return err_set(e, ERR_MEMORY, "inspect: no memory for the request");
    state->dialect = d;
    /* No dialect_state_deinit: reading fills plain fields, only events make what it frees. */
    return d->read_request(rq, state, &in, a, &why) || inspect_prompt_api(&why, e);
}

static bool inspect_prompt_job(struct inspect_prompt_view *v, const char *path, struct err *e)
{
    struct arena a;
    struct api_request rq;
    str body;
    arena_init(&a, INSPECT_REQUEST_ARENA + INSPECT_REQUEST_MAX);
    if (file_read(&body, path, INSPECT_REQUEST_MAX, &a, e) &&
        inspect_prompt_read(body, &rq, &a, e)) {
        v->job = prompt_job(&a, &rq);
        if (v->job)
            return true;
        err_set(e, ERR_MEMORY, "inspect: no memory for the request");
    }
    arena_deinit(&a);
    return false;
}

static bool inspect_prompt_make(struct inspect_prompt_view *v, struct err *e)
{
    struct prompt_model model = {.tok = v->tok, .vocab = tok_vocab(v->tok),
                                 .context_max = INT32_MAX};
    struct render *render = NULL;
    struct api_error why = {0};
    const struct engine_chat own = {.tool_format = STR("")};
    if (!engine_render(&render, v->file, model.vocab, &own, &v->model_arena, e))
        return false;
    model.render = render;
    api_request_init(&model.defaults);
    return (prompt_make(&model, v->job, &why) &&
            render_request(render, &v->job->rq, &v->job->arena, &v->shown, &why)) ||
           inspect_prompt_api(&why, e);
}

/* --- text --- */

static const char *inspect_prompt_origin(enum render_origin o)
{
    switch (o) {
    case RENDER_TEMPLATE:
        return "template";
    case RENDER_CONTENT:
        return "content";
    case RENDER_NAME:
        return "name";
    case RENDER_TOOLS:
        return "tool";
    case RENDER_ARGS:
        return "arguments";
    case RENDER_FORMAT:
        return "format";
    }
    return "?";
}

static void inspect_prompt_add_label(struct buf *out, const struct render_span *s)
{
    size_t from = out->len;
    buf_add_z(out, inspect_prompt_origin(s->origin));
    if (s->origin == RENDER_CONTENT)
        buf_printf(out, " %u.%u", s->message, s->part);
    else if (s->origin == RENDER_NAME)
        buf_printf(out, " %u", s->message);
    else if (s->origin == RENDER_TOOLS)
        buf_printf(out, " %u", s->part);
    size_t used = out->len - from;
    buf_printf(out, "%*s", used < INSPECT_LABEL ? (int)(INSPECT_LABEL - used) : 1, "");
}

/* Length of a control token at the start of s, where the template wrote it; 0: none. */
static size_t inspect_prompt_control(const struct vocab *v, const struct render_span *s, str text,
                                     int32_t *id)
{
    if (s->origin != RENDER_TEMPLATE)
        return 0;
    size_t len = trie_longest(vocab_specials(v), text, id);
    return len && vocab_is_control(v, *id) ? len : 0;
}

/* Control tokens stand between these, so that the same text in a message shows as what it is. */
static void inspect_prompt_add_span(struct buf *out, const struct vocab *v,
                                    const struct render_span *s, str text)
{
    size_t plain = 0, len;
    int32_t id;
    inspect_prompt_add_label(out, s);
    for (size_t i = 0; i < text.len; i += len ? len : 1) {
        len = inspect_prompt_control(v, s, str_from(text, i), &id);
        if (!len)
            continue;
        buf_add_printable(out, str_sub(text, plain, i - plain));
        buf_add_z(out, "\xe2\x9f\xa6");
        buf_add_printable(out, str_sub(text, i, len));
        buf_add_z(out, "\xe2\x9f\xa7");
        plain = i + len;
    }
    buf_add_printable(out, str_from(text, plain));
    buf_add_byte(out, '\n');
}

static void inspect_prompt_add_text(struct buf *out, const struct inspect_prompt_view *p,
                                    bool with_ids)
{
    const struct vocab *v = tok_vocab(p->tok);
    const struct prompt *prompt = &p->job->prompts[0];
    size_t from = 0;
    for (uint32_t i = 0; i < p->shown.spans_count; i++) {
        const struct render_span *s = &p->shown.spans[i];
        inspect_prompt_add_span(out, v, s, str_sub(p->shown.text, from, s->end - from));
        from = s->end;
    }
    if (with_ids)
        for (uint32_t i = 0; i < prompt->count; i++) {
            buf_printf(out, "%8d  \"", (int)prompt->ids[i]);
            buf_add_printable(out, vocab_bytes(v, prompt->ids[i]));
            buf_add_z(out, vocab_is_control(v, prompt->ids[i]) ? "\"  control\n" : "\"\n");
        }
    buf_printf(out, "%zu bytes, %u tokens\n", p->shown.text.len, prompt->count);
    for (uint32_t i = 0; i < p->shown.notes_count; i++) {
        buf_add_z(out, "note: ");
        buf_add_printable(out, p->shown.notes[i].code);
        buf_add_z(out, ": ");
        buf_add_printable(out, p->shown.notes[i].text);
        buf_add_byte(out, '\n');
    }
}

/* --- JSON --- */

static void inspect_prompt_put_spans(struct json_writer *w, const struct inspect_prompt_view *p)
{
    size_t from = 0;
    json_key_z(w, "spans");
    json_open_array(w);
    for (uint32_t i = 0; i < p->shown.spans_count; i++) {
        const struct render_span *s = &p->shown.spans[i];
        json_open_object(w);
        json_key_z(w, "origin");
        json_put_text_z(w, inspect_prompt_origin(s->origin));
        json_key_z(w, "message");
        json_put_u64(w, s->message);
        json_key_z(w, "part");
        json_put_u64(w, s->part);
        json_key_z(w, "text");
        json_put_text(w, str_sub(p->shown.text, from, s->end - from));
        json_close_object(w);
        from = s->end;
    }
    json_close_array(w);
}

static void inspect_prompt_put(struct buf *out, const struct inspect_prompt_view *p, bool with_ids)
{
    const struct prompt *prompt = &p->job->prompts[0];
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    json_key_z(&w, "text");
    json_put_text(&w, p->shown.text);
    inspect_prompt_put_spans(&w, p);
    json_key_z(&w, "tokens");
    json_put_u64(&w, prompt->count);
    if (with_ids) {
        json_key_z(&w, "ids");
        json_open_array(&w);
        for (uint32_t i = 0; i < prompt->count; i++)
            json_put_i64(&w, prompt->ids[i]);
        json_close_array(&w);
    }
    json_key_z(&w, "notes");
    json_open_array(&w);
    for (uint32_t i = 0; i < p->shown.notes_count; i++) {
        json_open_object(&w);
        json_key_z(&w, "code");
        json_put_text(&w, p->shown.notes[i].code);
        json_key_z(&w, "text");
        json_put_text(&w, p->shown.notes[i].text);
        json_close_object(&w);
    }
    json_close_array(&w);
    json_close_object(&w);
    buf_add_byte(out, '\n');
}

bool inspect_prompt(struct inspect *in, struct err *e)
{
    struct inspect_prompt_view v = {0};
    bool with_ids = cmd_bool(in->c, "ids");
    if (!cmd_is_given(in->c, "f"))
        return err_set(e, ERR_USAGE, "inspect prompt: -f REQUEST.json missing");
    arena_init(&v.model_arena, ENGINE_ARENA_MAX);
    bool ok = inspect_prompt_job(&v, cmd_text(in->c, "f").p, e) &&
              model_file_open(&v.file, in->model.path.p, e) && tok_open(&v.tok, v.file, e) &&
              inspect_prompt_make(&v, e);
    if (ok && in->as_json)
        inspect_prompt_put(&in->out, &v, with_ids);
    else if (ok)
        inspect_prompt_add_text(&in->out, &v, with_ids);
    if (v.job)
        prompt_job_free(v.job);
    tok_close(v.tok);
    model_file_close(v.file);
    arena_deinit(&v.model_arena);
    return ok;
}
