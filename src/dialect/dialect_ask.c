#include "dialect/dialect_ask.h"

#include <string.h>

#include "base/digest.h"
#include "dialect/dialect_write.h"

#define NAME_MAX_LEN 64

/* ---- Notes ---- */

void dialect_ask_note(struct dialect_client_state *st, const char *code, const char *text)
{
    for (uint32_t i = 0; i < st->notes_count; i++)
        if (str_eq_z(st->notes[i].code, code) && str_eq_z(st->notes[i].text, text))
            return;
    if (st->notes_count < API_NOTES_MAX)
        st->notes[st->notes_count++] = (struct api_note){str_of(code), str_of(text)};
}

void dialect_ask_note_lost(struct dialect_client_state *st, uint64_t kept)
{
    static const struct {
        uint64_t bit;
        const char *name;
    } rows[] = {
        {API_GIVEN(TEMPERATURE), "temperature"}, {API_GIVEN(TOP_P), "top_p"},
        {API_GIVEN(MIN_P), "min_p"}, {API_GIVEN(TYPICAL_P), "typical_p"},
        {API_GIVEN(TOP_K), "top_k"}, {API_GIVEN(REPEAT_PENALTY), "repeat_penalty"},
        {API_GIVEN(REPEAT_LAST), "repeat_last_n"},
        {API_GIVEN(PRESENCE_PENALTY), "presence_penalty"},
        {API_GIVEN(FREQUENCY_PENALTY), "frequency_penalty"}, {API_GIVEN(SEED), "seed"},
        {API_GIVEN(TOKENS_MIN), "min_tokens"},
    };
    const struct api_request *rq = st->rq;
    for (size_t i = 0; i < countof(rows); i++)
        if (rq->given & rows[i].bit & ~kept)
            dialect_ask_note(st, "ignored_field", rows[i].name);
    if (rq->bias_count && !(kept & DIALECT_ASK_BIAS))
        dialect_ask_note(st, "ignored_field", "logit_bias");
    if (rq->stop_ids_count && !(kept & DIALECT_ASK_STOP_IDS))
        dialect_ask_note(st, "ignored_field", "stop_token_ids");
}

/* ---- Turns ---- */

static bool is_result(const struct api_message *m, const struct api_part *p)
{
    return p->kind == API_PART_RESULT || (p->kind == API_PART_IMAGE && p->id.len) ||
           m->role == API_ROLE_TOOL;
}

/* Parts from `first` that make one turn. */
static uint32_t turn_len(const struct api_message *m, uint32_t first)
{
    const struct api_part *p = &m->parts[first];
    uint32_t n = 1;
    bool in_result = is_result(m, p);
    while (first + n < m->parts_count && is_result(m, p + n) == in_result &&
           (!in_result || str_eq(p[n].id, p->id)))
        n++;
    return n;
}

static void add_turns(struct dialect_ask_turns *out, const struct api_message *m)
{
    for (uint32_t at = 0; at < m->parts_count;) {
        uint32_t n = turn_len(m, at);
        bool in_result = is_result(m, &m->parts[at]);
        out->rows[out->count++] = (struct dialect_ask_turn){
            .role = in_result ? API_ROLE_TOOL : m->role,
            .name = in_result ? (str){"", 0} : m->name, .parts = m->parts + at, .parts_count = n};
        at += n;
    }
}

bool dialect_ask_turns(struct dialect_client_state *st, struct dialect_ask_turns *out,
                       struct api_error *e)
{
    const struct api_request *rq = st->rq;
    const struct api_message *tail =
        rq->resume && rq->resume->partials_count ? dialect_ask_tail(rq) : NULL;
    size_t count = tail ? tail->parts_count : 0;
    for (uint32_t i = 0; i < rq->messages_count; i++)
        count += rq->messages[i].parts_count;
    *out = (struct dialect_ask_turns){
        .rows = ARENA_ARRAY(&st->keep, struct dialect_ask_turn, count)};
    if (out->rows == NULL)
        return api_error_set(e, ERR_LIMIT, "", STR("messages"), "messages: no memory for them");
    for (uint32_t i = 0; i < rq->messages_count; i++)
        add_turns(out, &rq->messages[i]);
    if (tail)
        add_turns(out, tail);
    if (out->count && (tail || rq->continue_last))
        out->rows[out->count - 1].is_open =
            out->rows[out->count - 1].role == API_ROLE_ASSISTANT;
    return true;
}

const struct api_message *dialect_ask_tail(const struct api_request *rq)
{
    if (rq->resume && rq->resume->partials_count)
        return &rq->resume->partials[0].message;
    return rq->continue_last && rq->messages_count ? &rq->messages[rq->messages_count - 1] : NULL;
}

const struct api_part *dialect_ask_open_call(const struct api_request *rq)
{
    const struct api_message *tail = dialect_ask_tail(rq);
    const struct api_part *last =
        tail && tail->parts_count ? &tail->parts[tail->parts_count - 1] : NULL;
    return last && last->kind == API_PART_CALL && last->is_open ? last : NULL;
}

static const struct api_tool *tool_of_call(const struct api_request *rq,
                                           const struct api_part *call)
{
    for (uint32_t i = 0; i < rq->tools_count; i++) {
        const struct api_tool *t = &rq->tools[i];
        if (t->kind != API_TOOL_HOSTED && str_eq(t->name, call->name) &&
            str_eq(t->name_space, call->name_space))
            return t;
    }
    return NULL;
}

bool dialect_ask_opens_text(const struct api_request *rq)
{
    const struct api_part *open = dialect_ask_open_call(rq);
    const struct api_tool *tool = open ? tool_of_call(rq, open) : NULL;
    return tool && tool->kind == API_TOOL_CUSTOM;
}

bool dialect_ask_has(const struct dialect_ask_turn *t, enum api_part_kind kind)
{
    for (uint32_t i = 0; i < t->parts_count; i++)
        if (t->parts[i].kind == kind)
            return true;
    return false;
}

str dialect_ask_join(struct dialect_client_state *st, const struct dialect_ask_turn *t,
                     enum api_part_kind kind)
{
    size_t size = 0, n = 0, count = 0;
    str only = {NULL, 0};
    for (uint32_t i = 0; i < t->parts_count; i++)
        if (t->parts[i].kind == kind) {
            only = t->parts[i].text.p ? t->parts[i].text : STR("");
            size += only.len + 1;
            count++;
        }
    if (count < 2)
        return only;
    char *to = arena_alloc_text(&st->keep, size);
    for (uint32_t i = 0; to && i < t->parts_count; i++) {
        const struct api_part *p = &t->parts[i];
        if (p->kind != kind)
            continue;
        if (n)
            to[n++] = '\n';
        if (p->text.len)
            memcpy(to + n, p->text.p, p->text.len);
        n += p->text.len;
    }
    return str_view(to, to ? n : 0);
}

str dialect_ask_result(const struct api_part *p)
{
    const str mark = STR("[tool error] ");
    return p->is_error && str_starts(p->text, mark) ? str_from(p->text, mark.len) : p->text;
}

/* ---- Images ---- */

str dialect_ask_base64(struct dialect_client_state *st, const struct api_part *p)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *from = (const uint8_t *)p->text.p;
    size_t len = p->text.len, n = 0;
    char *to = len ? arena_alloc_text(&st->keep, (len + 2) / 3 * 4 + 1) : NULL;
    if (to == NULL) {
        dialect_ask_note(st, "image_omitted", "messages");
        return (str){"", 0};
    }
    for (size_t i = 0; i < len; i += 3) {
        size_t left = base_min(len - i, 3);
        uint32_t v = (uint32_t)from[i] << 16 | (left > 1 ? (uint32_t)from[i + 1] << 8 : 0) |
                     (left > 2 ? from[i + 2] : 0u);
        for (size_t k = 0; k < 4; k++)
            to[n++] = k <= left ? letters[v >> (18 - 6 * k) & 63] : '=';
    }
    return str_view(to, n);
}

str dialect_ask_data_url(struct dialect_client_state *st, const struct api_part *p)
{
    str bytes = dialect_ask_base64(st, p);
    if (bytes.len == 0)
        return bytes;
    return arena_printf(&st->keep, "data:%.*s;base64,%.*s", STR_ARG(p->media_type),
                        STR_ARG(bytes));
}

/* ---- Names ---- */

str dialect_ask_model(const struct dialect_client_state *st)
{
    return st->leg->model.len ? st->leg->model : st->rq->model;
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '-';
}

/* As it is where it may be; else its letters, and a fingerprint so that two do not become one. */
static str plain(struct dialect_client_state *st, str name)
{
    bool ok = name.len >= 1 && name.len <= NAME_MAX_LEN;
    char text[NAME_MAX_LEN];
    size_t n = 0;
    for (size_t i = 0; i < name.len; i++)
        ok = ok && is_plain(name.p[i]);
    if (ok)
        return name;
    for (; n < name.len && n < NAME_MAX_LEN - 10; n++)
        text[n] = is_plain(name.p[n]) ? name.p[n] : '_';
    return arena_printf(&st->keep, "%.*s_%08x", (int)n, text,
                        (unsigned)digest_xxh3(name, 0));
}

str dialect_ask_id(struct dialect_client_state *st, str id) { return plain(st, id); }

str dialect_ask_tool_name(struct dialect_client_state *st, str name_space, str name)
{
    if (name_space.len == 0)
        return plain(st, name);
    return plain(st, arena_printf(&st->keep, "%.*s%s%.*s", STR_ARG(name_space),
                                  str_ends(name_space, STR("_")) ? "" : "__", STR_ARG(name)));
}

const struct api_tool *dialect_ask_tool_of(struct dialect_client_state *st, str flat_name)
{
    for (uint32_t i = 0; i < st->rq->tools_count; i++) {
        const struct api_tool *t = &st->rq->tools[i];
        if (t->kind != API_TOOL_HOSTED &&
            str_eq(dialect_ask_tool_name(st, t->name_space, t->name), flat_name))
            return t;
    }
    return NULL;
}

const struct api_tool *dialect_ask_tool_of_call(const struct dialect_client_state *st,
                                                const struct api_part *call)
{
    return tool_of_call(st->rq, call);
}

/* ---- Tools ---- */

bool dialect_ask_declares(struct dialect_client_state *st, const struct api_tool *t,
                          bool is_listed)
{
    if (t->kind != API_TOOL_HOSTED)
        return t->allowed || !is_listed;
    dialect_ask_note(st, "tool_skipped", "tools");
    return false;
}

uint32_t dialect_ask_tools(struct dialect_client_state *st, bool is_listed)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < st->rq->tools_count; i++)
        count += dialect_ask_declares(st, &st->rq->tools[i], is_listed);
    return count;
}

bool dialect_ask_is_listed(const struct api_request *rq)
{
    for (uint32_t i = 0; i < rq->tools_count; i++)
        if (!rq->tools[i].allowed && rq->tools[i].kind != API_TOOL_HOSTED)
            return true;
    return false;
}

const struct api_tool *dialect_ask_allowed(const struct api_request *rq)
{
    for (uint32_t i = rq->tools_count; i > 0; i--)
        if (rq->tools[i - 1].allowed && rq->tools[i - 1].kind != API_TOOL_HOSTED)
            return &rq->tools[i - 1];
    return NULL;
}

str dialect_ask_schema(struct dialect_client_state *st, const struct api_tool *t)
{
    if (t->kind != API_TOOL_CUSTOM)
        return t->schema.len ? t->schema : STR("{\"type\":\"object\",\"properties\":{}}");
    dialect_ask_note(st, "grammar_not_enforced", "tools");
    return STR("{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},"
               "\"required\":[\"input\"],\"additionalProperties\":false}");
}

/* A parsed copy of a call's arguments, absent where they are no object. */
static struct json args_of(struct dialect_client_state *st, const struct api_part *call)
{
    const struct json_options o = {.depth_max = DIALECT_DEPTH_MAX};
    struct err ignored;
    struct json v = {NULL, 0};
    if (call->text.len == 0 || !json_parse(&v, call->text, &o, &st->scratch, &ignored) ||
        json_kind(v) != JSON_KIND_OBJECT)
        return (struct json){NULL, 0};
    return v;
}

str dialect_ask_args(struct dialect_client_state *st, const struct api_part *call)
{
    struct json v = args_of(st, call);
    str raw = v.tape ? arena_copy(&st->keep, json_raw(v)) : STR("{}");
    if (v.tape == NULL && call->text.len)
        dialect_ask_note(st, "arguments_not_object", "messages");
    arena_reset(&st->scratch);
    return raw.p ? raw : STR("{}");
}

str dialect_ask_custom_input(struct dialect_client_state *st, const struct api_part *call)
{
    struct json v = args_of(st, call);
    str text = v.tape ? json_text(json_member(v, "input"), &st->scratch) : (str){NULL, 0};
    text = arena_copy(&st->keep, text.p ? text : call->text);
    arena_reset(&st->scratch);
    return text;
}

/* ---- Numbers ---- */

uint32_t dialect_ask_tokens_max(const struct dialect_client_state *st)
{
    const struct api_request *rq = st->rq;
    uint32_t used = 0;
    if (rq->tokens_max == 0)
        return 0;
    for (uint32_t i = 0; rq->resume && i < rq->resume->partials_count; i++)
        used += rq->resume->partials[i].tokens_used;
    return rq->tokens_max > used ? rq->tokens_max - used : 1;
}

enum api_effort dialect_ask_effort(const struct dialect_client_state *st)
{
    const struct api_request *rq = st->rq;
    if (rq->think == API_THINK_OFF)
        return API_EFFORT_NONE;
    if (rq->effort != API_EFFORT_DEFAULT)
        return rq->effort;
    if (!api_request_is_given(rq, API_FIELD_THINK_TOKENS_MAX))
        return rq->think == API_THINK_ON ? API_EFFORT_MEDIUM : API_EFFORT_DEFAULT;
    return rq->think_tokens_max == 0        ? API_EFFORT_NONE
           : rq->think_tokens_max <= 1280   ? API_EFFORT_MINIMAL /* half-way to the next */
           : rq->think_tokens_max <= 5120   ? API_EFFORT_LOW
           : rq->think_tokens_max <= 20480  ? API_EFFORT_MEDIUM : API_EFFORT_HIGH;
}

bool dialect_ask_openai_effort(struct dialect_client_state *st, enum api_effort *out)
{
    enum api_effort effort = dialect_ask_effort(st);
    if (effort == API_EFFORT_DEFAULT)
        return false;
    if (!dialect_ask_can(st, API_CAP_THINK)) {
        if (effort != API_EFFORT_NONE)
            dialect_ask_note(st, "thinking_unsupported", "effort");
        return false;
    }
    if (effort == API_EFFORT_MAX && !dialect_ask_is_shoal(st)) {
        effort = API_EFFORT_XHIGH;
        dialect_ask_note(st, "effort_approximated", "xhigh");
    }
    if (st->rq->effort == API_EFFORT_DEFAULT && effort != API_EFFORT_NONE) /* of a budget */
        dialect_ask_note(st, "effort_approximated", api_request_effort_name(effort));
    *out = effort;
    return true;
}

/* ---- The same protocol ---- */

bool dialect_ask_is_same(const struct dialect_client_state *st)
{
    return st->is_same && st->rq->body.len > 0 && st->rq->resume == NULL;
}

static bool is_one_of(struct json key, const char *const *names)
{
    for (size_t i = 0; names && names[i]; i++)
        if (json_text_eq(key, str_of(names[i])))
            return true;
    return false;
}

/* A block or item that only a shoal can read. */
static bool is_ours(struct json v)
{
    static const char *const members[] = {"signature", "encrypted_content"};
    for (size_t i = 0; i < countof(members); i++) {
        str raw = json_raw(json_member(v, members[i]));
        if (str_starts(raw, STR("\"shoal1.")))
            return true;
    }
    return false;
}

/* The value as it stands, without what is_ours at any depth of its arrays. */
static void copy(struct json_writer *w, struct dialect_client_state *st, struct json v,
                 uint32_t depth)
{
    bool is_object = json_kind(v) == JSON_KIND_OBJECT;
    if (depth == 0 || str_find(json_raw(v), STR("\"shoal1.")) == STR_NONE ||
        (!is_object && json_kind(v) != JSON_KIND_ARRAY)) {
        json_put_raw(w, json_raw(v));
        return;
    }
    if (is_object)
        json_open_object(w);
    else
        json_open_array(w);
    for (struct json_walk walk = json_walk(v); json_next(&walk);) {
        if (!is_object && is_ours(walk.value)) {
            dialect_ask_note(st, "block_dropped", "messages");
            continue;
        }
        if (is_object)
            json_key(w, json_text(walk.key, &st->scratch));
        copy(w, st, walk.value, depth - 1);
    }
    if (is_object)
        json_close_object(w);
    else
        json_close_array(w);
}

bool dialect_ask_patch_body(struct buf *out, struct dialect_client_state *st,
                            const struct dialect_ask_patch *p, struct api_error *e)
{
    const struct json_options o = {.depth_max = DIALECT_DEPTH_MAX};
    bool is_shoal = dialect_ask_is_shoal(st);
    struct json_writer w = json_writer(out);
    struct json body;
    if (!json_parse(&body, st->rq->body, &o, &st->scratch, &e->err))
        return false;
    json_open_object(&w);
    dialect_write_text(&w, "model", dialect_ask_model(st));
    for (struct json_walk walk = json_walk(body); json_next(&walk);) {
        bool is_own = json_text_eq(walk.key, STR("shoal")) || is_one_of(walk.key, p->dropped);
        if (json_text_eq(walk.key, STR("model")) || json_text_eq(walk.key, STR("stream")) ||
            json_text_eq(walk.key, STR("stream_options")) || (is_own && !is_shoal))
            continue;
        json_key(&w, json_text(walk.key, &st->scratch));
        copy(&w, st, walk.value, is_shoal ? 0 : 8);
    }
    buf_add_byte(out, ',');
    buf_add_z(out, p->added);
    json_close_object(&w);
    arena_reset(&st->scratch);
    return dialect_ask_fits(out, st, e);
}

bool dialect_ask_fits(const struct buf *out, const struct dialect_client_state *st,
                      struct api_error *e)
{
    if (!out->full && !st->keep.is_full && !st->scratch.is_full)
        return true;
    return api_error_set(e, ERR_LIMIT, "", STR("body"),
                         "the request as leg %.*s would get it is too long",
                         STR_ARG(st->leg->name));
}

/* ---- Members ---- */

void dialect_ask_put_stop(struct json_writer *w, const char *key, const struct api_request *rq)
{
    if (rq->stop_count == 0)
        return;
    json_key_z(w, key);
    json_open_array(w);
    for (uint32_t i = 0; i < rq->stop_count; i++)
        json_put_text(w, rq->stop[i]);
    json_close_array(w);
}
