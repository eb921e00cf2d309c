/* An engine that says what a script tells it to: `scripted serve ...` is `shoal serve` with this in
 * the place of serve/engine_leg. HTTP, dialects, exchange and replay are the real ones, so what a
 * client gets is what a model's calls and reasoning would have become.
 *
 * The script is the JSON file named by SCRIPTED_REPLIES, read again for each request:
 *
 *     {"piece": 7, "replies": [{"tool": "Read", "results": 0, "last": "a.txt", "say": [
 *         {"think": "Let me see."}, {"text": "I read it."},
 *         {"call": {"name": "Read", "arguments": {"file_path": "/tmp/a.txt"}}}],
 *       "done": "tool_calls"}]}
 *
 * The first reply whose conditions hold is said: a declared tool of that name, so many tool results
 * in the history, a text in the last message. "arguments" is an object, or a string for a custom
 * tool. Texts go out in pieces of so many bytes, one id each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/list.h"
#include "serve/engine_leg.h"

#define STEPS_MAX 65536u
#define STEPS_PER_TURN 16u
#define PROMPT_BYTES_PER_TOKEN 4u

struct engine_leg {
    struct engine_leg_options o;
    struct api_model model;
    char name[256];
    struct list replies;
    struct loop_timer tick, ready;
    struct api_beat beat;
    enum api_health_state state;
};

struct reply {
    struct list link;
    const struct api_request *rq;
    struct api_sink sink;
    struct arena a;
    struct api_event *events; /* one batch each */
    uint32_t count, next;
    bool is_held;
};

/* ---- The script ---- */

static bool read_file(struct arena *a, str *out)
{
    const char *path = getenv("SCRIPTED_REPLIES");
    FILE *f = path ? fopen(path, "rb") : NULL;
    char *text = f ? arena_alloc_text(a, (size_t)1 << 22) : NULL;
    size_t len = text ? fread(text, 1, (size_t)1 << 22, f) : 0;
    if (f)
        fclose(f);
    *out = str_view(text, len);
    return len > 0;
}

static uint32_t results_of(const struct api_request *rq)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < rq->messages_count; i++)
        for (uint32_t k = 0; k < rq->messages[i].parts_count; k++) {
            const struct api_part *p = &rq->messages[i].parts[k];
            bool goes_on = k && p[-1].kind == API_PART_RESULT && str_eq(p[-1].id, p->id);
            count += p->kind == API_PART_RESULT && !goes_on;
        }
    return count;
}

static bool has_tool(const struct api_request *rq, str name)
{
    for (uint32_t i = 0; i < rq->tools_count; i++)
        if (rq->tools[i].kind != API_TOOL_HOSTED && str_eq(rq->tools[i].name, name))
            return true;
    return false;
}

static bool last_has(const struct api_request *rq, str text)
{
    const struct api_message *m = &rq->messages[rq->messages_count - 1];
    for (uint32_t i = 0; i < m->parts_count; i++)
        if (str_find(m->parts[i].text, text) != STR_NONE)
            return true;
    return false;
}

static bool holds(struct json reply, const struct api_request *rq, struct arena *a)
{
    struct json tool = json_member(reply, "tool"), last = json_member(reply, "last");
    int64_t results;
    if (json_i64(json_member(reply, "results"), &results) &&
        results != (int64_t)results_of(rq))
        return false;
    return (json_kind(tool) != JSON_KIND_STRING || has_tool(rq, json_text(tool, a))) &&
           (json_kind(last) != JSON_KIND_STRING || last_has(rq, json_text(last, a)));
}

/* ---- Events ---- */

static void add(struct reply *r, struct api_event ev)
{
    if (r->count < STEPS_MAX)
        r->events[r->count++] = ev;
}

static void add_text(struct reply *r, enum api_event_kind kind, str text, size_t piece)
{
    while (text.len) {
        size_t len = base_min(piece, text.len);
        while (len < text.len && ((uint8_t)text.p[len] & 0xc0) == 0x80)
            len++; /* no half characters */
        add(r, (struct api_event){.kind = kind, .text.text = str_sub(text, 0, len)});
        text = str_from(text, len);
    }
}

static void add_call(struct reply *r, struct json call, uint32_t index, size_t piece)
{
    str name = json_text(json_member(call, "name"), &r->a);
    struct json args = json_member(call, "arguments");
    str text = json_kind(args) == JSON_KIND_STRING ? json_text(args, &r->a) : json_raw(args);
    struct api_call c = {.index = index, .name = name};
    c.id = arena_printf(&r->a, "call_%016llx%06x", (unsigned long long)r->rq->seed, index);
    for (uint32_t i = 0; i < r->rq->tools_count; i++)
        if (str_eq(r->rq->tools[i].name, name)) {
            c.tool_kind = r->rq->tools[i].kind;
            c.name_space = r->rq->tools[i].name_space;
        }
    add(r, (struct api_event){.kind = API_EVENT_CALL_BEGIN, .call = c});
    while (text.len) {
        c.args = str_sub(text, 0, piece);
        add(r, (struct api_event){.kind = API_EVENT_CALL_ARGS, .call = c});
        text = str_from(text, piece);
    }
    c.args = (str){"", 0};
    add(r, (struct api_event){.kind = API_EVENT_CALL_END, .call = c});
}

static void add_say(struct reply *r, struct json say, size_t piece, uint32_t *calls)
{
    for (struct json_walk w = json_walk(say); json_next(&w);) {
        struct json think = json_member(w.value, "think"), text = json_member(w.value, "text");
        struct json call = json_member(w.value, "call");
        if (json_kind(think) == JSON_KIND_STRING)
            add_text(r, API_EVENT_REASONING, json_text(think, &r->a), piece);
        if (json_kind(text) == JSON_KIND_STRING)
            add_text(r, API_EVENT_CONTENT, json_text(text, &r->a), piece);
        if (json_kind(call) == JSON_KIND_OBJECT)
            add_call(r, call, (*calls)++, piece);
    }
}

static enum api_done done_of(struct json reply, uint32_t calls)
{
    for (int i = 0; i < API_DONE_COUNT_; i++)
        if (json_text_eq(json_member(reply, "done"),
                         str_of(api_event_done_name((enum api_done)i))))
            return (enum api_done)i;
    return calls ? API_DONE_CALLS : API_DONE_EOS;
}

static uint32_t prompt_tokens(const struct api_request *rq)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < rq->messages_count; i++)
        for (uint32_t k = 0; k < rq->messages[i].parts_count; k++)
            bytes += rq->messages[i].parts[k].text.len;
    return (uint32_t)(bytes / PROMPT_BYTES_PER_TOKEN + rq->messages_count);
}

static void add_end(struct reply *r, enum api_done reason)
{
    uint32_t thinks = 0;
    for (uint32_t i = 0; i < r->count; i++)
        thinks += r->events[i].kind == API_EVENT_REASONING;
    add(r, (struct api_event){.kind = API_EVENT_USAGE,
                              .usage = {.prompt_tokens = prompt_tokens(r->rq),
                                        .output_tokens = r->count, .reasoning_tokens = thinks}});
    add(r, (struct api_event){.kind = API_EVENT_DONE, .done = {.reason = reason}});
}

static void write_script(struct engine_leg *l, struct reply *r)
{
    const struct json_options options = {.depth_max = 128};
    struct json script, found = {0}, replies;
    struct err e = {0};
    str text;
    uint32_t calls = 0;
    int64_t piece = 7;
    add(r, (struct api_event){.kind = API_EVENT_STARTED,
                              .started = {.leg = str_of(l->name), .model = str_of(l->name),
                                          .model_hash = l->model.model_hash,
                                          .prompt_tokens = prompt_tokens(r->rq)}});
    if (!read_file(&r->a, &text) || !json_parse(&script, text, &options, &r->a, &e)) {
        fprintf(stderr, "scripted: SCRIPTED_REPLIES: %s\n", e.text);
        abort();
    }
    json_i64(json_member(script, "piece"), &piece);
    replies = json_member(script, "replies");
    for (struct json_walk w = json_walk(replies); json_next(&w);)
        if (holds(w.value, r->rq, &r->a)) {
            found = w.value;
            break;
        }
    if (found.tape == NULL)
        add_text(r, API_EVENT_CONTENT, STR("no reply of the script fits"), 7);
    else
        add_say(r, json_member(found, "say"), (size_t)piece, &calls);
    add_end(r, found.tape ? done_of(found, calls) : API_DONE_EOS);
}

/* ---- The provider ---- */

static void reply_free(struct reply *r)
{
    struct arena a = r->a;
    list_remove(&r->link);
    arena_deinit(&a);
}

/* False: it is over, r is gone. */
static bool reply_step(struct reply *r)
{
    const struct api_event *ev = &r->events[r->next++];
    bool is_last = ev->kind == API_EVENT_DONE;
    int32_t id = (int32_t)r->next;
    struct api_sink sink = r->sink;
    const struct api_batch b = {.request_id = r->rq->id, .ids = &id,
                                .ids_count = ev->kind < API_EVENT_EMBEDDING, .events = ev,
                                .events_count = 1};
    if (is_last)
        list_remove(&r->link);
    sink.on_batch(sink.ctx, &b);
    if (is_last) {
        struct arena a = r->a;
        arena_deinit(&a);
    }
    return !is_last;
}

/* A callback may cancel any reply: the list is walked from its head after each. */
static void on_tick(void *ctx)
{
    struct engine_leg *l = ctx;
    for (uint32_t i = 0; i < STEPS_PER_TURN && !list_is_empty(&l->replies); i++) {
        struct reply *r = list_item(list_first(&l->replies), struct reply, link);
        list_remove(&r->link);
        list_push_last(&l->replies, &r->link);
        if (!r->is_held)
            (void)reply_step(r);
    }
    if (!list_is_empty(&l->replies))
        loop_timer_set(&l->tick, 1);
}

static bool scripted_submit(void *self, const struct api_request *rq, struct api_sink sink,
                            struct api_error *e)
{
    struct engine_leg *l = self;
    struct arena a;
    arena_init(&a, (size_t)64 << 20);
    struct reply *r = ARENA_NEW(&a, struct reply);
    struct api_event *events = ARENA_ARRAY(&a, struct api_event, STEPS_MAX);
    if (!r || !events || rq->messages_count == 0) {
        arena_deinit(&a);
        return api_error_set(e, ERR_UNSUPPORTED, "", STR("messages"), "messages: none to reply to");
    }
    *r = (struct reply){.rq = rq, .sink = sink, .a = a, .events = events};
    if (rq->kind == API_KIND_CHAT) {
        write_script(l, r);
    } else {
        if (rq->kind == API_KIND_COUNT)
            add(r, (struct api_event){.kind = API_EVENT_TOKENS,
                                      .tokens.tokens_count = prompt_tokens(rq)});
        add_end(r, API_DONE_EOS);
    }
    list_push_last(&l->replies, &r->link);
    loop_timer_set(&l->tick, 1);
    return true;
}

static struct reply *find(struct engine_leg *l, uint64_t id)
{
    for (struct list *at = l->replies.next; at != &l->replies; at = at->next) {
        struct reply *r = list_item(at, struct reply, link);
        if (r->rq->id == id)
            return r;
    }
    return NULL;
}

static void scripted_cancel(void *self, uint64_t id)
{
    struct reply *r = find(self, id);
    if (r)
        reply_free(r);
}

static void scripted_hold(void *self, uint64_t id, bool on)
{
    struct engine_leg *l = self;
    struct reply *r = find(l, id);
    if (r)
        r->is_held = on;
    loop_timer_set(&l->tick, 1);
}

static void scripted_credit(void *self, uint64_t id, uint32_t bytes)
{
    (void)self;
    (void)id;
    (void)bytes;
}

static size_t scripted_models(void *self, struct api_model *out, size_t out_max)
{
    if (out_max)
        out[0] = ((struct engine_leg *)self)->model;
    return 1;
}

static void scripted_health(void *self, struct api_health *out)
{
    *out = (struct api_health){.state = ((struct engine_leg *)self)->state, .reason = STR("")};
}

struct api_provider engine_leg_provider(struct engine_leg *l)
{
    return (struct api_provider){l, scripted_submit, scripted_cancel, scripted_hold,
                                 scripted_credit, scripted_models, scripted_health};
}

/* ---- serve/engine_leg.h ---- */

static void on_ready(void *ctx)
{
    struct engine_leg *l = ctx;
    if (l->state == API_HEALTH_STARTING)
        l->state = API_HEALTH_READY;
    if (l->o.on_change)
        l->o.on_change(l->o.ctx);
}

bool engine_leg_open(struct engine_leg **out, const struct engine_leg_options *o, struct err *e)
{
    struct engine_leg *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(e, ERR_MEMORY, "scripted: no memory");
    l->o = *o;
    snprintf(l->name, sizeof l->name, "%.*s", STR_ARG(o->load->name));
    l->model = (struct api_model){
        .name = str_of(l->name), .context_max = 1u << 20, .model_hash = 1, .type = STR("chat"),
        .caps = API_CAP_CHAT | API_CAP_TOOLS | API_CAP_THINK | API_CAP_N, .slots = 64,
        .kv_tokens = 1u << 24, .state = API_MODEL_LOADED};
    list_init(&l->replies);
    *out = l;
    if (!loop_timer_open(&l->tick, o->loop, on_tick, l, e) ||
        !loop_timer_open(&l->ready, o->loop, on_ready, l, e))
        return false;
    loop_timer_set(&l->ready, 1);
    return true;
}

void engine_leg_stop(struct engine_leg *l, int64_t grace_ms)
{
    (void)grace_ms;
    l->state = API_HEALTH_STOPPED;
    loop_timer_set(&l->ready, 1);
}

void engine_leg_close(struct engine_leg *l, int64_t grace_ms)
{
    (void)grace_ms;
    if (!l)
        return;
    while (!list_is_empty(&l->replies))
        reply_free(list_item(list_first(&l->replies), struct reply, link));
    loop_timer_close(&l->tick);
    loop_timer_close(&l->ready);
    free(l);
}

struct api_loading engine_leg_loading(const struct engine_leg *l)
{
    (void)l;
    return (struct api_loading){1, 1};
}

struct engine_leg_counts engine_leg_counts(const struct engine_leg *l)
{
    (void)l;
    return (struct engine_leg_counts){0};
}

/* All counts here are 0. */
void engine_leg_counts_add(struct engine_leg_counts *to, const struct engine_leg_counts *more)
{
    (void)to;
    (void)more;
}

/* Nothing is pinned here. */
void engine_leg_unpin(struct engine_leg *l, str name)
{
    (void)l;
    (void)name;
}

/* Nothing is cached here. */
bool engine_leg_drop(struct engine_leg *l, const struct api_drop *what, struct engine_leg_drop *d)
{
    (void)l;
    (void)what;
    (void)d;
    return false;
}
bool engine_leg_look(struct engine_leg *l, const struct api_look *what, struct engine_leg_look *k)
{
    (void)l, (void)what, (void)k;
    return false;
}

str engine_leg_stats(const struct engine_leg *l)
{
    (void)l;
    return STR("");
}

const struct api_beat *engine_leg_beat(const struct engine_leg *l) { return &l->beat; }

int engine_leg_pid(const struct engine_leg *l)
{
    (void)l;
    return 0;
}

void engine_leg_set_stalls(struct engine_leg *l, int64_t engine_ms, int64_t load_ms)
{
    l->o.engine_stall_ms = engine_ms;
    l->o.load_stall_ms = load_ms;
}
