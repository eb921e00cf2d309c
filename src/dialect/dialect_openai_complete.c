/* POST /v1/completions: BEHAVIOUR 5.7. */
#include <string.h>

#include "dialect/dialect_field.h"
#include "dialect/dialect_openai_write.h"

/* ---- Reading ---- */

struct reading {
    struct json best_of;
    bool has_best_of;
};

static bool is_list_of(struct json v, enum json_kind kind)
{
    for (struct json_walk w = json_walk(v); json_next(&w);)
        if (json_kind(w.value) != kind)
            return false;
    return json_count(v) > 0;
}

static bool read_input(struct dialect_read *r, struct json v, struct api_input *out)
{
    if (json_kind(v) == JSON_KIND_STRING)
        return dialect_read_text(r, v, &out->text);
    if (json_kind(v) != JSON_KIND_ARRAY)
        return dialect_read_wrong(r, v, "string or array of token ids");
    if (json_count(v) == 0)
        return dialect_read_fail(r, ERR_REQUEST, v, "at least 1 token id expected");
    return dialect_field_ids(r, v, INT32_MAX, &out->ids, &out->ids_count);
}

/* A string, token ids, or a list of both. */
static bool read_prompt(struct dialect_read *r, struct json v)
{
    bool is_one = json_kind(v) == JSON_KIND_STRING || is_list_of(v, JSON_KIND_NUMBER);
    uint32_t count = is_one ? 1 : json_count(v), n = 0;
    if (!is_one && json_kind(v) != JSON_KIND_ARRAY)
        return dialect_read_wrong(r, v, "string or array");
    if (count == 0 || count > API_INPUTS_MAX)
        return dialect_read_fail(r, ERR_REQUEST, v, "1 to %u prompts expected, got %u",
                                 API_INPUTS_MAX, count);
    struct api_input *inputs = dialect_read_array(r, count, sizeof *inputs);
    if (inputs == NULL || (is_one && !read_input(r, v, inputs)))
        return false;
    for (struct json_walk w = json_walk(v); !is_one && json_next(&w);)
        if (!read_input(r, w.value, &inputs[n++]))
            return false;
    r->rq->inputs = inputs;
    r->rq->inputs_count = count;
    return true;
}

static bool read_suffix(struct dialect_read *r, struct json v)
{
    return dialect_read_text(r, v, &r->rq->suffix);
}

static bool read_logprobs(struct dialect_read *r, struct json v)
{
    int64_t n;
    return dialect_read_int(r, v, 0, API_TOP_LOGPROBS_MAX, &n) &&
           api_request_set(r->rq, API_FIELD_LOGPROBS, (double)n + 1, STR("logprobs"), r->e);
}

static bool read_best_of(struct dialect_read *r, struct json v)
{
    struct reading *own = r->own;
    own->best_of = v;
    own->has_best_of = true;
    return true;
}

static bool read_format(struct dialect_read *r, struct json v)
{
    return dialect_field_format(r, v, "json_schema");
}

static const struct dialect_field fields[] = {
    {"model", DIALECT_KIND_TEXT, AT(model), NULL},
    {"prompt", READ(read_prompt)},
    {"suffix", READ(read_suffix)},
    {"echo", DIALECT_KIND_BOOL, AT(echo), NULL},
    {"stream", DIALECT_KIND_BOOL, AT(stream), NULL},
    {"stream_options", READ(dialect_field_stream_options)},
    {"max_tokens", DIALECT_KIND_AT_LEAST_1, API_FIELD_TOKENS_MAX, NULL},
    {"temperature", NUMBER(TEMPERATURE)},
    {"top_p", NUMBER(TOP_P)},
    {"presence_penalty", NUMBER(PRESENCE_PENALTY)},
    {"frequency_penalty", NUMBER(FREQUENCY_PENALTY)},
    {"seed", READ(dialect_field_seed)},
    {"stop", READ(dialect_read_stop)},
    {"n", READ(dialect_field_n)},
    {"best_of", READ(read_best_of)},
    {"logprobs", READ(read_logprobs)},
    {"logit_bias", READ(dialect_field_bias)},
    {"user", READ(dialect_read_agent)},
    {"safety_identifier", READ(dialect_read_agent)},
    {"prompt_cache_key", READ(dialect_read_session)},
    {"service_tier", READ(dialect_field_service_tier)},
    {"keep_alive", READ(dialect_read_keep_alive)},
    {"shoal", DIALECT_KIND_SKIPPED, 0, NULL},
    {"top_k", READ(dialect_field_top_k)},
    {"min_p", NUMBER(MIN_P)},
    {"typical_p", NUMBER(TYPICAL_P)},
    {"repetition_penalty", NUMBER(REPEAT_PENALTY)},
    {"min_tokens", NUMBER(TOKENS_MIN)},
    {"ignore_eos", DIALECT_KIND_BOOL, AT(ignore_eos), NULL},
    {"stop_token_ids", READ(dialect_field_stop_ids)},
    {"include_stop_str_in_output", DIALECT_KIND_BOOL, AT(keep_stop), NULL},
    {"structured_outputs", READ(dialect_field_structured)},
    {"guided_json", READ(dialect_field_guided_json)},
    {"guided_regex", READ(dialect_field_guided_regex)},
    {"guided_choice", READ(dialect_field_guided_choice)},
    {"response_format", READ(read_format)},
    {"cache_salt", DIALECT_KIND_TEXT, AT(scope), NULL},
    {"priority", READ(dialect_field_priority)},
    {"guided_grammar", REFUSED},
    {"use_beam_search", REFUSED},
    {"prompt_logprobs", REFUSED},
    {"truncate_prompt_tokens", REFUSED},
    {"skip_special_tokens", READ(dialect_field_skip_special)},
};

static bool read_combined(struct dialect_read *r)
{
    const struct reading *own = r->own;
    int64_t best_of;
    if (!r->in->has_model && r->rq->model.len == 0)
        return dialect_read_missing(r, "model");
    if (r->rq->inputs_count == 0)
        return dialect_read_missing(r, "prompt");
    if (own->has_best_of && (!json_i64(own->best_of, &best_of) || best_of != r->rq->n))
        return dialect_read_fail(r, ERR_REQUEST, own->best_of, "only the value of n is supported");
    return true;
}

static bool read_request(struct api_request *out, struct dialect_state *st,
                         const struct dialect_in *in, struct arena *a, struct api_error *e)
{
    struct reading own = {.has_best_of = false};
    struct dialect_read r = {out, st, in, a, e, &own, NULL};
    struct json body;
    api_request_init(out);
    out->kind = API_KIND_COMPLETE;
    out->parse_special = true;
    st->prompt_name = "prompt";
    return dialect_read_body(&r, &body) &&
           dialect_read_object(&r, body, fields, countof(fields)) && read_combined(&r) &&
           dialect_read_extensions(&r, body) && dialect_read_finish(&r);
}

/* ---- Logprobs of the old form: four lists instead of one ---- */

static void put_top(struct json_writer *w, struct arena *a, struct json entry)
{
    struct json top = json_member(entry, "top_logprobs");
    uint32_t n = 0;
    json_open_object(w);
    for (struct json_walk t = json_walk(top); json_next(&t); n++) {
        str name = json_text(json_member(t.value, "token"), a);
        bool is_new = true; /* different bytes may have become the same text */
        struct json_walk u = json_walk(top);
        for (uint32_t i = 0; is_new && i < n && json_next(&u); i++)
            is_new = !json_text_eq(json_member(u.value, "token"), name);
        if (!is_new)
            continue;
        json_key(w, name);
        json_put_raw(w, json_raw(json_member(t.value, "logprob")));
    }
    json_close_object(w);
}

/* Characters that begin in the token. */
static uint32_t chars_of(struct json entry)
{
    uint32_t count = 0;
    int64_t byte = 0;
    for (struct json_walk w = json_walk(json_member(entry, "bytes")); json_next(&w);)
        count += json_i64(w.value, &byte) && (byte & 0xc0) != 0x80;
    return count;
}

static void put_lists(struct json_writer *w, struct json list, uint32_t chars, struct arena *a)
{
    json_key_z(w, "tokens");
    json_open_array(w);
    for (struct json_walk i = json_walk(list); json_next(&i);)
        json_put_raw(w, json_raw(json_member(i.value, "token")));
    json_close_array(w);
    json_key_z(w, "token_logprobs");
    json_open_array(w);
    for (struct json_walk i = json_walk(list); json_next(&i);)
        json_put_raw(w, json_raw(json_member(i.value, "logprob")));
    json_close_array(w);
    json_key_z(w, "top_logprobs");
    json_open_array(w);
    for (struct json_walk i = json_walk(list); json_next(&i);)
        put_top(w, a, i.value);
    json_close_array(w);
    json_key_z(w, "text_offset");
    json_open_array(w);
    for (struct json_walk i = json_walk(list); json_next(&i); chars += chars_of(i.value))
        json_put_u64(w, chars);
    json_close_array(w);
}

/* elements: as dialect_write_logprobs writes them; chars: of the text before the first of them. */
static void put_logprobs(struct json_writer *w, str elements, uint32_t chars)
{
    const struct json_options options = {.depth_max = 8};
    struct buf list = dialect_write_piece();
    struct arena a;
    struct json v;
    struct err ignored;
    json_key_z(w, "logprobs");
    buf_add_byte(&list, '[');
    buf_add(&list, elements);
    buf_add_byte(&list, ']');
    arena_init(&a, 4 * list.len + ((size_t)1 << 20));
    if (elements.len && !list.full && json_parse(&v, buf_view(&list), &options, &a, &ignored)) {
        json_open_object(w);
        put_lists(w, v, chars, &a);
        json_close_object(w);
    } else {
        json_put_null(w);
    }
    arena_deinit(&a);
    buf_deinit(&list);
}

static uint32_t chars_in(str text)
{
    uint32_t count = 0;
    for (size_t i = 0; i < text.len; i++)
        count += ((uint8_t)text.p[i] & 0xc0) != 0x80;
    return count;
}

/* ---- Writing ---- */

struct choice_view {
    uint32_t index, chars;
    str text, logprobs;
    const char *finish; /* NULL: not yet */
};

/* Of completions the old protocol knows no error and no calls as the end. */
static void put_choice(struct json_writer *w, const struct choice_view *c)
{
    json_open_object(w);
    dialect_write_text(w, "text", c->text);
    json_put_key_u64(w, "index", c->index);
    put_logprobs(w, c->logprobs, c->chars);
    json_key_z(w, "finish_reason");
    if (c->finish)
        json_put_text_z(w, c->finish);
    else
        json_put_null(w);
    json_close_object(w);
}

/* One chunk; c NULL: that of the usage, without choices. */
static void chunk(struct buf *out, struct dialect_state *st, const struct choice_view *c,
                  bool is_last)
{
    struct buf json = dialect_write_piece();
    struct json_writer w = json_writer(&json);
    json_open_object(&w);
    dialect_openai_write_head(&w, st, "cmpl-", "text_completion");
    json_key_z(&w, "choices");
    json_open_array(&w);
    if (c)
        put_choice(&w, c);
    json_close_array(&w);
    json_key_z(&w, "usage");
    if (c)
        json_put_null(&w);
    else
        dialect_openai_write_usage(&w, &st->usage);
    if (is_last) {
        json_key_z(&w, "shoal");
        dialect_write_shoal(&w, st, st->choices[c->index].reason);
    }
    json_close_object(&w);
    dialect_write_sse(out, &json);
    buf_deinit(&json);
    st->is_begun = true;
}

static void stream_text(struct buf *out, struct dialect_state *st, uint32_t choice,
                        const struct api_text *t)
{
    struct dialect_choice *c = &st->choices[choice];
    struct buf logprobs = dialect_write_piece();
    struct json_writer w = json_writer(&logprobs);
    dialect_write_logprobs(&w, t);
    if (t->text.len || t->logprobs_count)
        chunk(out, st, &(struct choice_view){.index = choice, .chars = c->content_chars,
                                             .text = t->text, .logprobs = buf_view(&logprobs)},
              false);
    c->content_chars += chars_in(t->text);
    buf_deinit(&logprobs);
}

static void stream_done(struct buf *out, struct dialect_state *st, uint32_t choice)
{
    bool is_last = dialect_write_is_last(st);
    const char *finish = dialect_openai_write_finish(st->choices[choice].reason);
    chunk(out, st, &(struct choice_view){.index = choice, .finish = finish}, is_last);
    if (!is_last)
        return;
    if (st->include_usage)
        chunk(out, st, NULL, false);
    buf_add_z(out, "data: [DONE]\n\n");
    st->is_over = true;
}

static void whole(struct buf *out, struct dialect_state *st, enum api_done reason)
{
    struct json_writer w = json_writer(out);
    json_open_object(&w);
    dialect_openai_write_head(&w, st, "cmpl-", "text_completion");
    json_key_z(&w, "choices");
    json_open_array(&w);
    for (uint32_t i = 0; i < st->choices_count; i++) {
        const struct dialect_choice *c = &st->choices[i];
        const char *finish = dialect_openai_write_finish(c->reason);
        put_choice(&w, &(struct choice_view){.index = i, .text = buf_view(&c->content),
                                             .logprobs = buf_view(&c->logprobs),
                                             .finish = finish});
    }
    json_close_array(&w);
    dialect_openai_write_end(&w, st, reason);
    st->is_begun = st->is_over = true;
}

static void write_error(struct buf *out, struct dialect_state *st, const struct api_error *e)
{
    struct api_error named = dialect_write_named(st, e);
    struct buf json = dialect_write_piece();
    struct json_writer w = json_writer(&json);
    json_open_object(&w);
    dialect_openai_write_error(&w, &named);
    json_close_object(&w);
    if (st->stream && st->is_begun) {
        dialect_write_sse(out, &json);
        chunk(out, st, &(struct choice_view){.index = 0, .finish = "error"}, false);
        buf_add_z(out, "data: [DONE]\n\n");
    } else {
        buf_add(out, buf_view(&json));
    }
    buf_deinit(&json);
    st->is_begun = st->is_over = true;
}

static void write_event(struct buf *out, struct dialect_state *st, uint32_t choice,
                        const struct api_event *ev)
{
    if (st->is_over || !dialect_write_take(out, st, choice, ev, write_error))
        return;
    if (st->stream && ev->kind == API_EVENT_CONTENT)
        stream_text(out, st, choice, &ev->text);
    else if (st->stream && ev->kind == API_EVENT_DONE)
        stream_done(out, st, choice);
    else if (ev->kind == API_EVENT_DONE && dialect_write_is_last(st))
        whole(out, st, ev->done.reason);
}

static const struct dialect_path paths[] = {
    {"POST", "/v1/completions", API_KIND_COMPLETE, false},
};

const struct dialect dialect_openai_complete = {
    .name = "openai_complete",
    .family = DIALECT_OPENAI,
    .stream_type = "text/event-stream",
    .paths = paths,
    .paths_count = countof(paths),
    .state_size = sizeof(struct dialect_state),
    .read_request = read_request,
    .write_event = write_event,
    .write_error = write_error,
    .write_ping = dialect_write_ping,
};
