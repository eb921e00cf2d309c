#include "route/transcript.h"

#include <string.h>

#define TRANSCRIPT_ARENA_MAX ((size_t)1 << 20) /* lists of parts, names of calls */
#define TRANSCRIPT_PARTS_MIN 4u
/* Bytes of a token where only bytes are known: about so many in running text, and never fewer than
 * the half of it on average, so that a limit is not reached by a guess before it is by tokens. */
#define TRANSCRIPT_TOKEN_BYTES 4u
#define TRANSCRIPT_TOKEN_BYTES_MAX 8u

/* --- memory -------------------------------------------------------------------------------- */

bool transcript_init(struct transcript *t, uint32_t choices, size_t bytes_max, struct api_error *e)
{
    *t = (struct transcript){.choices_count = choices, .bytes_max = bytes_max};
    arena_init(&t->arena, TRANSCRIPT_ARENA_MAX + choices * sizeof *t->choices);
    t->choices = ARENA_ARRAY(&t->arena, struct transcript_choice, choices);
    if (!t->choices)
        return api_error_set(e, ERR_MEMORY, "", STR(""), "no memory for a request");
    for (uint32_t i = 0; i < choices; i++)
        buf_init(&t->choices[i].ids, bytes_max);
    return true;
}

void transcript_deinit(struct transcript *t)
{
    for (uint32_t i = 0; t->choices && i < t->choices_count; i++) {
        struct transcript_choice *c = &t->choices[i];
        for (uint32_t k = 0; k < c->parts_count; k++)
            buf_deinit(&c->parts[k].text);
        buf_deinit(&c->ids);
    }
    arena_deinit(&t->arena);
    *t = (struct transcript){0};
}

static void transcript_append(struct transcript *t, struct buf *to, str bytes)
{
    if (bytes.len > t->bytes_max - t->bytes_used || !buf_add(to, bytes)) {
        t->is_full = true;
        return;
    }
    t->bytes_used += bytes.len;
}

static struct transcript_part *transcript_last(const struct transcript_choice *c)
{
    return c->parts_count ? &c->parts[c->parts_count - 1] : NULL;
}

static struct transcript_part *transcript_new_part(struct transcript *t,
                                                   struct transcript_choice *c,
                                                   enum api_part_kind kind)
{
    if (c->parts_count == c->parts_max) {
        uint32_t max = c->parts_max ? 2 * c->parts_max : TRANSCRIPT_PARTS_MIN;
        struct transcript_part *parts = ARENA_ARRAY(&t->arena, struct transcript_part, max);
        if (!parts) {
            t->is_full = true;
            return NULL;
        }
        if (c->parts_count)
            memcpy(parts, c->parts, c->parts_count * sizeof *parts);
        c->parts = parts;
        c->parts_max = max;
    }
    struct transcript_part *p = &c->parts[c->parts_count++];
    *p = (struct transcript_part){.kind = kind};
    buf_init(&p->text, t->bytes_max);
    return p;
}

/* --- what the client gets ------------------------------------------------------------------ */

static void transcript_add_text(struct transcript *t, struct transcript_choice *c,
                                enum api_part_kind kind, str text)
{
    struct transcript_part *p = transcript_last(c);
    if (text.len == 0)
        return;
    t->is_visible = true;
    if (!p || p->kind != kind)
        p = transcript_new_part(t, c, kind);
    if (p)
        transcript_append(t, &p->text, text);
}

static void transcript_add_call(struct transcript *t, struct transcript_choice *c,
                                const struct api_call *call)
{
    struct transcript_part *p = transcript_new_part(t, c, API_PART_CALL);
    t->is_visible = true;
    if (!p)
        return;
    p->index = call->index;
    p->id = arena_copy(&t->arena, call->id);
    p->name = arena_copy(&t->arena, call->name);
    p->name_space = arena_copy(&t->arena, call->name_space);
    t->is_full = t->is_full || t->arena.is_full;
}

static struct transcript_part *transcript_call(const struct transcript_choice *c, uint32_t index)
{
    for (uint32_t i = c->parts_count; i; i--)
        if (c->parts[i - 1].kind == API_PART_CALL && c->parts[i - 1].index == index)
            return &c->parts[i - 1];
    return NULL;
}

/* Bytes of a reply that tell at least one token; a call's begin counts as one. */
static size_t transcript_add_event(struct transcript *t, struct transcript_choice *c,
                                 const struct api_event *ev)
{
    struct transcript_part *p;
    switch (ev->kind) {
    case API_EVENT_REASONING:
        transcript_add_text(t, c, API_PART_REASONING, ev->text.text);
        return ev->text.text.len;
    case API_EVENT_CONTENT:
        transcript_add_text(t, c, API_PART_TEXT, ev->text.text);
        return ev->text.text.len;
    case API_EVENT_CALL_BEGIN:
        transcript_add_call(t, c, &ev->call);
        return 1;
    case API_EVENT_CALL_ARGS:
        p = transcript_call(c, ev->call.index);
        if (p)
            transcript_append(t, &p->text, ev->call.args);
        else if (ev->call.args.len) /* of a call that the request began: not all of it is here */
            t->is_visible = t->is_full = true;
        return ev->call.args.len;
    case API_EVENT_CALL_END:
        p = transcript_call(c, ev->call.index);
        if (p)
            p->is_closed = true;
        break;
    case API_EVENT_DONE:
        c->is_done = true;
        break;
    case API_EVENT_QUEUED: case API_EVENT_PROGRESS: case API_EVENT_STARTED: case API_EVENT_NOTE:
    case API_EVENT_EMBEDDING: case API_EVENT_TOKENS: case API_EVENT_MODELS: case API_EVENT_USAGE:
    case API_EVENT_ERROR: case API_EVENT_PARKED: case API_EVENT_COUNT_:
        break;
    }
    return 0;
}

static void transcript_set_model(struct transcript *t, uint64_t model_hash)
{
    if (model_hash == t->model_hash)
        return;
    t->model_hash = model_hash;
    for (uint32_t i = 0; i < t->choices_count; i++)
        buf_clear(&t->choices[i].ids);
}

void transcript_add(struct transcript *t, const struct api_batch *b)
{
    must(b->choice < t->choices_count);
    struct transcript_choice *c = &t->choices[b->choice];
    uint32_t pieces = 0;
    size_t bytes = 0;
    for (uint32_t i = 0; i < b->events_count; i++)
        if (b->events[i].kind == API_EVENT_STARTED)
            transcript_set_model(t, b->events[i].started.model_hash);
    for (uint32_t i = 0; i < b->events_count; i++) {
        size_t more = transcript_add_event(t, c, &b->events[i]);
        pieces += more > 0;
        bytes += more;
    }
    if (b->ids_count == 0) {
        if (t->is_wide)
            c->wide_bytes += bytes;
        else
            c->tokens_count += t->model_hash ? 0 : pieces;
        return;
    }
    transcript_append(t, &c->ids, str_view(b->ids, b->ids_count * sizeof *b->ids));
    c->tokens_count = (uint32_t)(c->ids.len / sizeof(int32_t));
    c->wide_bytes = 0; /* an engine's first ids are those of all before, too */
}

/* --- how to go on -------------------------------------------------------------------------- */

/* A call that is not finished and of which the client, who gets calls whole, has nothing. */
static struct transcript_part *transcript_hidden(const struct transcript *t,
                                                 const struct transcript_choice *c)
{
    struct transcript_part *last = transcript_last(c);
    bool is_open = !c->is_done && last && last->kind == API_PART_CALL && !last->is_closed;
    return t->hides_calls && is_open ? last : NULL;
}

static bool transcript_shows(const struct transcript *t)
{
    if (!t->hides_calls || t->is_full)
        return t->is_visible;
    for (uint32_t i = 0; i < t->choices_count; i++)
        if (t->choices[i].parts_count > (transcript_hidden(t, &t->choices[i]) != NULL))
            return true;
    return false;
}

void transcript_needs(const struct transcript *t, struct leg_needs *n)
{
    n->must_continue = transcript_shows(t);
    n->model_hash = t->is_full ? 0 : t->model_hash;
    n->in_reasoning = n->in_call = false;
    for (uint32_t i = 0; i < t->choices_count; i++) {
        const struct transcript_choice *c = &t->choices[i];
        uint32_t count = c->parts_count - (transcript_hidden(t, c) != NULL);
        if (c->is_done)
            continue;
        n->in_reasoning = n->in_reasoning ||
                          (count && c->parts[count - 1].kind == API_PART_REASONING);
        for (uint32_t k = 0; k < count; k++)
            n->in_call = n->in_call || c->parts[k].kind == API_PART_CALL;
    }
}

static uint32_t transcript_count(const struct transcript_choice *c, uint32_t bytes_per_token)
{
    return c->tokens_count + (uint32_t)base_min(c->wide_bytes / bytes_per_token, UINT32_MAX / 2);
}

uint32_t transcript_tokens(const struct transcript *t)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < t->choices_count; i++)
        sum += transcript_count(&t->choices[i], TRANSCRIPT_TOKEN_BYTES);
    return sum;
}

size_t transcript_bytes(const struct transcript *t)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < t->choices_count; i++)
        for (uint32_t k = 0; k < t->choices[i].parts_count; k++)
            sum += t->choices[i].parts[k].text.len;
    return sum;
}

static enum transcript_how transcript_how_of(const struct transcript *t, const struct leg *leg)
{
    struct leg_needs n = {.must_continue = true};
    bool is_engine = leg->kind == LEG_KIND_ENGINE, may = !t->is_full && !leg->cannot_continue;
    if (!t->is_visible)
        return TRANSCRIPT_FRESH;
    if (may && is_engine && t->model_hash && t->model_hash == leg->model.model_hash)
        return TRANSCRIPT_TOKENS;
    transcript_needs(t, &n);
    if (!n.must_continue)
        return TRANSCRIPT_FRESH;
    if (!may)
        return TRANSCRIPT_NO;
    if (is_engine) {
        bool takes_text = !leg->model.caps || leg->model.caps & API_CAP_CONTINUE_TEXT;
        return takes_text ? TRANSCRIPT_TEXT : TRANSCRIPT_NO;
    }
    if (t->choices_count > 1 || leg->goes_on == LEG_CONTINUE_NONE)
        return TRANSCRIPT_NO;
    bool is_in_text = !n.in_reasoning && !n.in_call;
    return leg->goes_on == LEG_CONTINUE_SHOAL || is_in_text ? TRANSCRIPT_TEXT : TRANSCRIPT_NO;
}

bool transcript_fill(const struct transcript_choice *c, uint32_t count, struct arena *a,
                     struct api_message *m)
{
    struct api_part *parts = ARENA_ARRAY(a, struct api_part, (size_t)count + 1);
    if (!parts)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const struct transcript_part *p = &c->parts[i];
        parts[i] = (struct api_part){.kind = p->kind, .text = buf_view(&p->text), .id = p->id,
                                     .name = p->name, .name_space = p->name_space,
                                     .is_open = p->kind == API_PART_CALL && !p->is_closed};
    }
    m->parts = parts;
    m->parts_count = count;
    return true;
}

enum transcript_how transcript_resume(const struct transcript *t, const struct leg *leg,
                                      struct arena *a, struct api_resume *out)
{
    enum transcript_how how = transcript_how_of(t, leg);
    if (how == TRANSCRIPT_FRESH || how == TRANSCRIPT_NO)
        return how;
    struct api_partial *p = ARENA_ARRAY(a, struct api_partial, t->choices_count);
    *out = (struct api_resume){.partials = p};
    for (uint32_t i = 0; p && i < t->choices_count; i++) {
        const struct transcript_choice *c = &t->choices[i];
        struct api_partial *to = &p[out->partials_count];
        if (c->is_done)
            continue;
        *to = (struct api_partial){.choice = i, .message = {.role = API_ROLE_ASSISTANT}};
        /* An engine counts the tokens of a text by itself: ours of an upstream are a guess. */
        if (how == TRANSCRIPT_TOKENS || leg->kind == LEG_KIND_UPSTREAM)
            to->tokens_used = transcript_count(c, TRANSCRIPT_TOKEN_BYTES_MAX);
        if (how == TRANSCRIPT_TOKENS && c->ids.len) {
            to->message.ids = (const int32_t *)(const void *)c->ids.p;
            to->message.ids_count = (uint32_t)(c->ids.len / sizeof(int32_t));
        }
        bool drops = how == TRANSCRIPT_TEXT && transcript_hidden(t, c);
        if (!transcript_fill(c, c->parts_count - drops, a, &to->message))
            return TRANSCRIPT_NO;
        out->partials_count++;
    }
    out->model_hash = how == TRANSCRIPT_TOKENS ? t->model_hash : 0;
    return p ? how : TRANSCRIPT_NO;
}

/* The hidden call is made again: nobody has it. From nothing, no token counts either. */
static void transcript_drop_calls(struct transcript *t, bool is_fresh)
{
    for (uint32_t i = 0; i < t->choices_count; i++) {
        struct transcript_choice *c = &t->choices[i];
        struct transcript_part *p = transcript_hidden(t, c);
        if (p) {
            t->bytes_used -= base_min(t->bytes_used, p->text.len);
            c->wide_bytes -= base_min(c->wide_bytes, p->text.len);
            buf_deinit(&p->text);
            c->parts_count--;
        }
        if (is_fresh)
            c->wide_bytes = c->tokens_count = 0;
    }
    t->is_visible = transcript_shows(t);
}

void transcript_begin(struct transcript *t, enum transcript_how how, const struct leg *leg)
{
    t->is_wide = leg->has_wide_pieces;
    if (how == TRANSCRIPT_TOKENS)
        return;
    transcript_set_model(t, 0);
    transcript_drop_calls(t, how == TRANSCRIPT_FRESH);
}
