#include "dialect/dialect_hear.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/digest.h"
#include "dialect/dialect_ask.h"

/* ---- One event ---- */

bool dialect_hear_garbage(struct api_error *e, const char *format, ...)
{
    char text[160];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    api_error_set(e, ERR_UPSTREAM, "", STR(""), "upstream: %s", text);
    e->fault = API_FAULT_GARBAGE;
    return false;
}

bool dialect_hear_json(struct dialect_client_state *st, str data, struct json *out,
                       struct api_error *e)
{
    const struct json_options o = {.depth_max = DIALECT_DEPTH_MAX};
    struct err why = {0};
    if (!json_parse(out, data, &o, &st->scratch, &why))
        return dialect_hear_garbage(e, "%.*s", 120, why.text);
    return json_kind(*out) == JSON_KIND_OBJECT ||
           dialect_hear_garbage(e, "an event that is no object but %s",
                                json_kind_name(json_kind(*out)));
}

void dialect_hear_whole(struct dialect_client_state *st)
{
    buf_clear(&st->raw);
    st->keeps_raw = false;
    st->told.is_more = true;
}

str dialect_hear_str(struct dialect_client_state *st, struct json v)
{
    str text = json_text(v, &st->scratch);
    return text.p ? text : (str){"", 0};
}

uint32_t dialect_hear_u32(struct json v)
{
    uint64_t n = 0;
    return json_u64(v, &n) ? (uint32_t)base_min(n, UINT32_MAX) : 0;
}

bool dialect_hear_choice(const struct dialect_client_state *st, struct json index, uint32_t *out,
                         struct api_error *e)
{
    *out = dialect_hear_u32(index);
    return *out < st->choices_count ||
           dialect_hear_garbage(e, "choice %u of %u", *out, st->choices_count);
}

/* ---- Failures in a stream ---- */

/* The statuses that the types stand for: they come in streams, where no status is left. */
static int status_of_type(struct json type, struct json code)
{
    static const struct {
        const char *name;
        int status;
    } rows[] = {
        {"overloaded_error", 529}, {"server_busy", 503}, {"overloaded", 503},
        {"rate_limit_error", 429}, {"rate_limit_exceeded", 429}, {"rate_limited", 429},
        {"insufficient_quota", 429}, {"authentication_error", 401}, {"permission_error", 403},
        {"invalid_request_error", 400}, {"invalid_prompt", 400}, {"request_too_large", 413},
        {"context_length_exceeded", 400}, {"not_found_error", 404}, {"timeout_error", 504},
    };
    int status = 500;
    int64_t number;
    if (json_i64(code, &number) && number >= 400 && number < 600)
        return (int)number;
    for (size_t i = countof(rows); i-- > 0;)
        if (json_text_eq(type, str_of(rows[i].name)) || json_text_eq(code, str_of(rows[i].name)))
            status = rows[i].status;
    return status;
}

bool dialect_hear_failure(struct dialect_client_state *st, struct json type, struct json code,
                          struct json message, struct api_error *e)
{
    *e = (struct api_error){.retry_after_ms = 0};
    dialect_client_classify(e, status_of_type(type, code),
                            arena_copy(&st->keep, dialect_hear_str(st, message)));
    return false;
}

/* ---- Batches ---- */

void dialect_hear_flush(struct dialect_client_state *st)
{
    const struct api_batch b = {.request_id = st->rq->id, .choice = st->pending_choice,
                                .events = st->pending, .events_count = st->pending_count};
    if (st->pending_count == 0)
        return;
    st->pending_count = 0;
    st->sink.on_batch(st->sink.ctx, &b);
}

/* Where an event's text stands in its raw form, whose last line is what is being read. */
static uint32_t raw_at(const struct dialect_client_state *st, const struct api_event *ev)
{
    bool is_text = ev->kind == API_EVENT_CONTENT || ev->kind == API_EVENT_REASONING;
    str data = st->reading, text = is_text ? ev->text.text : STR("");
    if (text.len == 0 || text.p < data.p || text.p + text.len > data.p + data.len)
        return 0;
    size_t at = (size_t)(text.p - data.p);
    return (uint32_t)(st->is_raw ? at : st->raw.len - 1 - data.len + at);
}

/* The first event of ours carries what came; its bytes outlive the flush. */
static void show_raw(struct dialect_client_state *st, struct api_event *ev)
{
    if (st->is_raw || st->raw.len) {
        ev->raw_at = raw_at(st, ev);
        ev->raw = st->is_raw ? st->reading : arena_copy(&st->scratch, buf_view(&st->raw));
        buf_clear(&st->raw);
        st->is_raw = false;
        st->is_shown = true;
    } else if (st->keeps_raw && st->is_shown) { /* the same event's: nothing more to show */
        ev->raw = STR("\n");
    }
}

static struct api_event *place(struct dialect_client_state *st, uint32_t choice)
{
    if (st->pending_count == DIALECT_CLIENT_PENDING ||
        (st->pending_count && st->pending_choice != choice))
        dialect_hear_flush(st);
    st->pending_choice = choice;
    return &st->pending[st->pending_count++];
}

static void add(struct dialect_client_state *st, uint32_t choice, const struct api_event *ev)
{
    struct api_event *to = place(st, choice);
    *to = *ev;
    show_raw(st, to);
}

/* Notes and STARTED go before the first visible event; its raw form stays with that one. */
static void start(struct dialect_client_state *st, uint32_t choice)
{
    struct buf raw = st->raw;
    if (st->is_started)
        return;
    st->is_started = true;
    st->raw = (struct buf){.p = NULL};
    for (uint32_t i = 0; i < st->notes_count; i++)
        add(st, choice, &(struct api_event){.kind = API_EVENT_NOTE, .note = st->notes[i]});
    add(st, choice, &(struct api_event){
        .kind = API_EVENT_STARTED,
        .started = {.leg = st->leg->name, .model = dialect_ask_model(st),
                    .prompt_tokens = st->usage.prompt_tokens,
                    .cached_tokens = st->usage.cached_tokens}});
    st->raw = raw;
}

/* ---- Arguments ---- */

/* Where the arguments' JSON stands; what is no JSON at all is the model's word and stays. */
static void follow_args(struct dialect_client_choice *c, str piece)
{
    for (size_t i = 0; i < piece.len && !c->is_free; i++) {
        char b = piece.p[i];
        if (c->is_escaped)
            c->is_escaped = false;
        else if (c->in_text && b == '\\')
            c->is_escaped = true;
        else if (b == '"')
            c->in_text = !c->in_text;
        else if (!c->in_text && (b == '{' || b == '['))
            c->args_depth++;
        else if (!c->in_text && (b == '}' || b == ']'))
            c->args_depth -= c->args_depth > 0;
    }
}

static bool is_cut(const struct dialect_client_choice *c)
{
    return c->in_call && (c->args_depth > 0 || c->in_text);
}

/* Another maker's upstream goes on in one text; some ignore that they were asked to. */
static void expect_echo(struct dialect_client_state *st)
{
    const struct api_message *tail = st->rq->resume ? dialect_ask_tail(st->rq) : NULL;
    if (tail && tail->parts_count == 1 && tail->parts[0].kind == API_PART_TEXT)
        dialect_echo_init(&st->echo, arena_copy(&st->keep, tail->parts[0].text));
}

void dialect_hear_resume(struct dialect_client_state *st)
{
    const struct api_message *tail = dialect_ask_tail(st->rq);
    const struct api_part *open = dialect_ask_open_call(st->rq);
    struct dialect_client_choice *c = &st->choices[0];
    if (!dialect_ask_is_shoal(st)) {
        expect_echo(st);
        return;
    }
    if (!tail)
        return;
    for (uint32_t i = 0; i < tail->parts_count; i++)
        c->calls_count += tail->parts[i].kind == API_PART_CALL;
    if (!open)
        return;
    c->in_call = true;
    c->has_args = open->text.len > 0;
    follow_args(c, open->text);
    c->is_resumed = !c->has_args || is_cut(c);
}

/* Ends an open call in front of something else. False: it is cut, and nothing may follow. */
static bool leave_call(struct dialect_client_state *st, uint32_t choice)
{
    dialect_hear_call_end(st, choice);
    st->choices[choice].is_torn = st->choices[choice].is_torn || st->choices[choice].in_call;
    return !st->choices[choice].is_torn;
}

/* ---- Text ---- */

/* Text or a call comes: an end that was told already was none. */
static void doubt(struct dialect_client_state *st, uint32_t choice)
{
    struct dialect_client_choice *c = &st->choices[choice];
    c->is_doubted = c->is_doubted || c->has_reason;
}

static void add_text(struct dialect_client_state *st, uint32_t choice, enum api_event_kind kind,
                     const struct api_text *t)
{
    start(st, choice);
    struct api_event *to = place(st, choice); /* most of an event is room for other kinds */
    to->kind = kind;
    to->text = *t;
    to->raw = (str){"", 0};
    to->raw_at = 0;
    show_raw(st, to);
}

/* The end of text that may be the beginning of a stop string. */
static size_t may_begin_stop(const struct api_request *rq, str text)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < rq->stop_count; i++)
        for (size_t n = base_min(text.len, rq->stop[i].len - 1); n > longest; n--)
            if (str_eq(str_from(text, text.len - n), str_sub(rq->stop[i], 0, n)))
                longest = n;
    return longest;
}

/* The first stop string in text, by its place; *which is its index. */
static size_t find_stop(const struct api_request *rq, str text, uint32_t *which)
{
    size_t first = STR_NONE;
    for (uint32_t i = 0; i < rq->stop_count; i++) {
        size_t at = str_find(text, rq->stop[i]);
        if (at < first) {
            first = at;
            *which = i;
        }
    }
    return first;
}

/* A protocol without stop strings: they are found here, and the reply ends in front of one. */
static void hold_text(struct dialect_client_state *st, const struct api_text *t)
{
    struct api_error ignored;
    uint32_t which = 0;
    buf_add(&st->held, t->text);
    str all = arena_copy(&st->scratch, buf_view(&st->held));
    size_t at = find_stop(st->rq, all, &which);
    size_t keep = at == STR_NONE ? may_begin_stop(st->rq, all) : all.len - at;
    struct api_text out = {.text = str_sub(all, 0, all.len - keep)};
    if (keep == 0 && all.len == t->text.len)
        out = *t;
    if (out.text.len || out.logprobs_count)
        add_text(st, 0, API_EVENT_CONTENT, &out);
    buf_drop(&st->held, all.len - keep);
    if (at == STR_NONE)
        return;
    buf_clear(&st->held);
    st->choices[0].has_reason = false;
    dialect_hear_finish(st, 0, API_DONE_STOP_STRING, st->rq->stop[which]);
    if (!dialect_hear_end(st, &ignored))
        st->is_over = true; /* never: the one choice has its reason */
}

/* What follows is no text: a stop string that began is none. */
static void release_held(struct dialect_client_state *st)
{
    if (st->held.len == 0)
        return;
    str rest = arena_copy(&st->scratch, buf_view(&st->held));
    buf_clear(&st->held);
    add_text(st, 0, API_EVENT_CONTENT, &(struct api_text){.text = rest});
}

/* Blanks that were cut from the turn to be continued are not told twice. */
static str without_tail(struct dialect_client_state *st, str text)
{
    size_t n = 0;
    while (n < text.len && n < st->tail_blanks.len && text.p[n] == st->tail_blanks.p[n])
        n++;
    st->tail_blanks = n == text.len ? str_from(st->tail_blanks, n) : (str){"", 0};
    return str_from(text, n);
}

/* Something else than more of it: what was held back is told. */
static void leave_echo(struct dialect_client_state *st, uint32_t choice)
{
    str held = dialect_echo_release(&st->echo);
    if (held.len)
        dialect_hear_text(st, choice, API_EVENT_CONTENT, &(struct api_text){.text = held});
}

/* False: nothing is told of this piece yet. */
static bool hear_echo(struct dialect_client_state *st, uint32_t choice, enum api_event_kind kind,
                      struct api_text *t)
{
    str before = {"", 0};
    if (kind != API_EVENT_CONTENT || t->logprobs_count) {
        leave_echo(st, choice);
        return true;
    }
    if (!dialect_echo_take(&st->echo, &t->text, &before))
        return false;
    if (st->echo.is_cut) {
        dialect_ask_note(st, DIALECT_CLIENT_RESTARTED, "continue");
        st->tail_blanks = (str){"", 0};
    }
    if (before.len)
        dialect_hear_text(st, choice, kind, &(struct api_text){.text = before});
    return true;
}

/* For the next event of the same form. */
static void tell_text(struct dialect_client_state *st, uint32_t choice, enum api_event_kind kind,
                      const struct api_text *t)
{
    struct dialect_client_told *told = &st->told;
    if (t->logprobs_count) {
        told->is_more = true;
        return;
    }
    told->choice = choice;
    told->kind = kind;
    told->text = t->text;
    told->texts++;
}

void dialect_hear_text(struct dialect_client_state *st, uint32_t choice, enum api_event_kind kind,
                       const struct api_text *t)
{
    struct api_text text = *t;
    if (st->is_over || (t->text.len == 0 && t->logprobs_count == 0))
        return; /* a field that is absent or empty: no other kind of text begins */
    tell_text(st, choice, kind, t);
    if (st->echo.is_on && !hear_echo(st, choice, kind, &text))
        return;
    if (kind == API_EVENT_CONTENT && st->tail_blanks.len)
        text.text = without_tail(st, text.text);
    if (text.text.len == 0 && text.logprobs_count == 0)
        return;
    doubt(st, choice);
    if (!leave_call(st, choice))
        return;
    *(kind == API_EVENT_CONTENT ? &st->text_bytes : &st->reasoning_bytes) += text.text.len;
    if (kind == API_EVENT_CONTENT && st->finds_stop) {
        hold_text(st, &text);
        return;
    }
    release_held(st);
    add_text(st, choice, kind, &text);
}

static bool hear_top(struct dialect_client_state *st, struct json v, struct api_top *out)
{
    struct json bytes = json_member(v, "bytes");
    double logprob;
    uint64_t n;
    size_t len = 0;
    if (!json_double(json_member(v, "logprob"), &logprob))
        return false;
    *out = (struct api_top){.id = -1, .logprob = (float)logprob,
                            .bytes = dialect_hear_str(st, json_member(v, "token"))};
    if (json_kind(bytes) != JSON_KIND_ARRAY)
        return true;
    char *to = arena_alloc_text(&st->scratch, json_count(bytes) + 1);
    for (struct json_walk w = json_walk(bytes); to && json_next(&w);)
        to[len++] = (char)(uint8_t)(json_u64(w.value, &n) ? n : '?');
    if (to)
        out->bytes = str_view(to, len);
    return true;
}

void dialect_hear_logprobs(struct dialect_client_state *st, struct json list, struct api_text *into)
{
    uint32_t count = json_count(list), n = 0;
    if (json_kind(list) != JSON_KIND_ARRAY || count == 0)
        return;
    struct api_logprob *rows = ARENA_ARRAY(&st->scratch, struct api_logprob, count);
    for (struct json_walk w = json_walk(list); rows && json_next(&w);) {
        struct json tops = json_member(w.value, "top_logprobs");
        uint32_t top_count = json_kind(tops) == JSON_KIND_ARRAY ? json_count(tops) : 0, k = 0;
        struct api_top *top = ARENA_ARRAY(&st->scratch, struct api_top, top_count);
        if (top == NULL || !hear_top(st, w.value, &rows[n].token))
            continue;
        for (struct json_walk t = json_walk(tops); top_count && json_next(&t);)
            k += hear_top(st, t.value, &top[k]);
        rows[n].top = top;
        rows[n++].top_count = k;
    }
    into->logprobs = rows;
    into->logprobs_count = n;
}

/* ---- Calls ---- */

static str make_id(struct dialect_client_state *st, uint32_t choice, uint32_t index)
{
    uint64_t of[3] = {st->rq->id, choice, index};
    return arena_printf(&st->scratch, "call_%016llx",
                        (unsigned long long)digest_xxh3(str_view(of, sizeof of), 0));
}

bool dialect_hear_call(struct dialect_client_state *st, uint32_t choice, str id, str name,
                       bool is_custom, struct api_error *e)
{
    struct dialect_client_choice *c = &st->choices[choice];
    const struct api_tool *tool = dialect_ask_tool_of(st, name);
    bool wants_text = tool && tool->kind == API_TOOL_CUSTOM;
    st->told.is_more = true;
    if (name.len == 0)
        return dialect_hear_garbage(e, "a call without a name");
    bool is_resumed = c->in_call && c->is_resumed;
    c->is_resumed = false;
    if (is_resumed)
        return true;
    if (c->calls_count == DIALECT_CLIENT_CALLS_MAX)
        return dialect_hear_garbage(e, "more than %u calls", DIALECT_CLIENT_CALLS_MAX);
    doubt(st, choice);
    leave_echo(st, choice);
    if (!leave_call(st, choice))
        return true;
    release_held(st);
    start(st, choice);
    c->in_call = true;
    c->has_args = c->in_text = c->is_escaped = false;
    c->args_depth = 0;
    c->is_free = is_custom;
    c->is_wrapped = wants_text && !is_custom;
    struct api_call call = {.index = c->calls_count++, .id = id,
                            .tool_kind = wants_text || is_custom ? API_TOOL_CUSTOM
                                                                 : API_TOOL_FUNCTION,
                            .name = tool ? tool->name : name,
                            .name_space = tool ? tool->name_space : (str){"", 0}};
    if (id.len == 0)
        call.id = make_id(st, choice, call.index);
    add(st, choice, &(struct api_event){.kind = API_EVENT_CALL_BEGIN, .call = call});
    return true;
}

static void add_args(struct dialect_client_state *st, uint32_t choice, str piece)
{
    struct dialect_client_choice *c = &st->choices[choice];
    struct api_call call = {.index = c->calls_count - 1, .args = piece};
    add(st, choice, &(struct api_event){.kind = API_EVENT_CALL_ARGS, .call = call});
}

void dialect_hear_args(struct dialect_client_state *st, uint32_t choice, str piece)
{
    struct dialect_client_choice *c = &st->choices[choice];
    c->is_resumed = false;
    st->told.is_more = true;
    if (!c->in_call || c->is_torn || piece.len == 0)
        return;
    follow_args(c, piece);
    start(st, choice);
    c->has_args = true;
    st->text_bytes += piece.len;
    if (!c->is_wrapped) {
        add_args(st, choice, piece);
        return;
    }
    if (c->args.size_max == 0)
        buf_init(&c->args, DIALECT_CLIENT_EVENT_MAX);
    buf_add(&c->args, piece);
}

/* {"input": TEXT} back to its text; what is no such object stays as it came. */
static str unwrapped(struct dialect_client_state *st, str args)
{
    const struct json_options o = {.depth_max = DIALECT_DEPTH_MAX};
    struct err ignored;
    struct json v;
    args = arena_copy(&st->scratch, args);
    if (!json_parse(&v, args, &o, &st->scratch, &ignored))
        return args;
    str text = json_text(json_member(v, "input"), &st->scratch);
    return text.p ? text : args;
}

void dialect_hear_call_end(struct dialect_client_state *st, uint32_t choice)
{
    struct dialect_client_choice *c = &st->choices[choice];
    if (!c->in_call || is_cut(c))
        return;
    st->told.is_more = true;
    if (c->is_wrapped && c->has_args)
        add_args(st, choice, unwrapped(st, buf_view(&c->args)));
    else if (!c->has_args)
        add_args(st, choice, c->is_wrapped ? (str){"", 0} : STR("{}"));
    buf_clear(&c->args);
    c->in_call = false;
    struct api_call call = {.index = c->calls_count - 1};
    add(st, choice, &(struct api_event){.kind = API_EVENT_CALL_END, .call = call});
}

/* ---- The end ---- */

enum api_done dialect_hear_reason(struct json shoal, enum api_done otherwise)
{
    struct json finish = json_member(shoal, "finish");
    for (int i = 0; i < API_DONE_COUNT_; i++)
        if (json_text_eq(finish, str_of(api_event_done_name((enum api_done)i))))
            return (enum api_done)i;
    return otherwise;
}

static bool is_plain(enum api_done reason)
{
    return reason == API_DONE_EOS || reason == API_DONE_CALLS;
}

/* What came as it came stays with the DONE. */
static void end_call(struct dialect_client_state *st, uint32_t choice)
{
    struct buf raw = st->raw;
    st->raw = (struct buf){.p = NULL};
    dialect_hear_call_end(st, choice);
    st->raw = raw;
}

void dialect_hear_finish(struct dialect_client_state *st, uint32_t choice, enum api_done reason,
                         str stop)
{
    struct dialect_client_choice *c = &st->choices[choice];
    if (st->is_over)
        return;
    st->told.is_more = true;
    leave_echo(st, choice);
    end_call(st, choice);
    if (c->is_torn || (c->in_call && is_plain(reason)))
        return;
    if (reason == API_DONE_CALLS && c->calls_count == 0)
        reason = API_DONE_EOS;
    if (reason == API_DONE_EOS && c->calls_count)
        reason = API_DONE_CALLS;
    c->has_reason = true;
    c->is_doubted = false;
    c->reason = reason;
    c->stop = arena_copy(&st->keep, stop);
}

/* Four bytes a token: what an upstream that counts nothing is taken to have said. */
static void guess_usage(struct dialect_client_state *st)
{
    uint64_t bytes = st->text_bytes + st->reasoning_bytes;
    if (st->has_usage)
        return;
    st->usage.output_tokens = (uint32_t)base_min((bytes + 3) / 4, UINT32_MAX);
    st->usage.reasoning_tokens = (uint32_t)base_min((st->reasoning_bytes + 3) / 4, UINT32_MAX);
    struct buf raw = st->raw;
    st->raw = (struct buf){.p = NULL};
    add(st, 0, &(struct api_event){.kind = API_EVENT_NOTE,
                                   .note = {STR("estimate"), STR("usage")}});
    st->raw = raw;
}

/* What came behind the last text stays with the DONE. */
static void add_usage(struct dialect_client_state *st, uint32_t choice)
{
    struct buf raw = st->raw;
    st->raw = (struct buf){.p = NULL};
    add(st, choice, &(struct api_event){.kind = API_EVENT_USAGE, .usage = st->usage});
    st->raw = raw;
}

bool dialect_hear_cut(struct api_error *e)
{
    api_error_set(e, ERR_UPSTREAM, "", STR(""), "upstream: the reply ended without its end");
    e->fault = API_FAULT_CUT;
    return false;
}

/* A call may have begun behind the reason. False: the choice is not whole. */
static bool end_choice(struct dialect_client_state *st, uint32_t choice)
{
    struct dialect_client_choice *c = &st->choices[choice];
    if (!c->has_reason)
        return false;
    end_call(st, choice);
    if (c->reason == API_DONE_EOS && c->calls_count)
        c->reason = API_DONE_CALLS;
    return !c->is_torn && !(c->in_call && is_plain(c->reason));
}

bool dialect_hear_end(struct dialect_client_state *st, struct api_error *e)
{
    for (uint32_t i = 0; i < st->choices_count; i++)
        if (!end_choice(st, i))
            return dialect_hear_cut(e);
    start(st, 0);
    release_held(st);
    guess_usage(st);
    for (uint32_t i = 0; i < st->choices_count; i++) {
        const struct dialect_client_choice *c = &st->choices[i];
        if (i + 1 == st->choices_count)
            add_usage(st, i);
        add(st, i, &(struct api_event){.kind = API_EVENT_DONE,
                                       .done = {.reason = c->reason, .stop = c->stop}});
    }
    st->is_over = true;
    return true;
}
