/* dialect_play - asking a dialect and playing events into it, for the tests of all dialects.
 *
 * Owns:      struct play: one request and its reply, with the memory of both.
 * Not:       what a dialect must make of it (dialect_NAME_test.c).
 * Thread:    the test's.
 */
#ifndef SHOAL_TESTS_DIALECT_PLAY_H
#define SHOAL_TESTS_DIALECT_PLAY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "dialect/dialect.h"

struct play {
    struct arena a;
    struct api_request rq;
    const struct dialect *d;
    struct dialect_state *st;
    struct api_error e;
    struct buf out;
    bool ok;
    const struct api_header *headers; /* set before play_ask */
    uint32_t headers_count;
    bool keeps_client_header;
};

/* target: "POST /v1/messages". The body is copied: it lives as long as the play. */
static inline void play_ask(struct play *p, const char *target, const char *body)
{
    struct dialect_limits limits = dialect_limits_default;
    str rest = str_of(target), method;
    struct dialect_in in = {.headers = p->headers, .headers_count = p->headers_count,
                            .request_id = STR("req_0123456789abcdefABCDEF"),
                            .time_s = 1785000000, .limits = &limits};
    limits.keeps_client_header = p->keeps_client_header;
    arena_init(&p->a, 8 * strlen(body) + ((size_t)1 << 20));
    buf_init(&p->out, (size_t)1 << 24);
    in.body = arena_copy(&p->a, str_of(body));
    if (!str_split(&rest, ' ', &method) ||
        !dialect_match(method, rest, &p->d, &in.path, &in.segment))
        fail_msg("no dialect serves %s", target);
    p->st = calloc(1, p->d->state_size);
    p->st->dialect = p->d;
    p->ok = p->d->read_request(&p->rq, p->st, &in, &p->a, &p->e);
    p->st->seed = 42;
}

static inline void play_ok(struct play *p, const char *target, const char *body)
{
    play_ask(p, target, body);
    if (!p->ok)
        fail_msg("%s %s: %s", target, body, p->e.err.text);
}

static inline void play_end(struct play *p)
{
    dialect_state_deinit(p->st);
    free(p->st);
    buf_deinit(&p->out);
    arena_deinit(&p->a);
    *p = (struct play){.ok = false};
}

static inline bool play_has_note(const struct play *p, const char *code, const char *text)
{
    for (uint32_t i = 0; i < p->rq.notes_count; i++)
        if (str_eq_z(p->rq.notes[i].code, code) && str_eq_z(p->rq.notes[i].text, text))
            return true;
    return false;
}

struct play_wrong {
    const char *target, *body, *error;
    enum err_code code;
};
/* Each body is refused with a sentence that begins like this, and its path. */
static inline void play_refuse(const struct play_wrong *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct play p = {0};
        play_ask(&p, rows[i].target, rows[i].body);
        if (p.ok || strncmp(p.e.err.text, rows[i].error, strlen(rows[i].error)) != 0 ||
            p.e.err.code != rows[i].code)
            fail_msg("%s %s\n want '%s'\n got  '%s'", rows[i].target, rows[i].body, rows[i].error,
                     p.ok ? "success" : p.e.err.text);
        assert_true(p.e.param.len > 0);
        play_end(&p);
    }
}

/* ---- Events ---- */

static inline void play_event(struct play *p, uint32_t choice, struct api_event ev)
{
    p->d->write_event(&p->out, p->st, choice, &ev);
}

static inline void play_text(struct play *p, uint32_t choice, enum api_event_kind kind, str s)
{
    play_event(p, choice, (struct api_event){.kind = kind, .text.text = s});
}

static inline void play_say(struct play *p, const char *s)
{
    play_text(p, 0, API_EVENT_CONTENT, str_of(s));
}

static inline void play_think(struct play *p, const char *s)
{
    play_text(p, 0, API_EVENT_REASONING, str_of(s));
}

static inline void play_started(struct play *p)
{
    play_event(p, 0, (struct api_event){
        .kind = API_EVENT_STARTED,
        .started = {.leg = STR("local"), .model = STR("m.gguf"), .model_hash = 0xabc,
                    .prompt_tokens = 9, .cached_tokens = 4}});
}

static inline void play_usage(struct play *p)
{
    play_event(p, 0, (struct api_event){
        .kind = API_EVENT_USAGE,
        .usage = {.prompt_tokens = 9, .cached_tokens = 4, .output_tokens = 6,
                  .reasoning_tokens = 2, .load_ns = 5, .prefill_ns = 1000000,
                  .decode_ns = 2000000}});
}

static inline void play_done(struct play *p, uint32_t choice, enum api_done reason)
{
    play_event(p, choice, (struct api_event){.kind = API_EVENT_DONE, .done.reason = reason});
}

static inline void play_call(struct play *p, uint32_t index, const char *id, const char *args)
{
    struct api_call call = {.index = index, .id = str_of(id), .name = STR("f")};
    play_event(p, 0, (struct api_event){.kind = API_EVENT_CALL_BEGIN, .call = call});
    for (const char *at = args; *at; at++) {
        call.args = str_view(at, 1);
        play_event(p, 0, (struct api_event){.kind = API_EVENT_CALL_ARGS, .call = call});
    }
    play_event(p, 0, (struct api_event){.kind = API_EVENT_CALL_END, .call = call});
}

static inline void play_fail(struct play *p, enum err_code code, const char *text)
{
    struct api_event ev = {.kind = API_EVENT_ERROR};
    api_error_set(&ev.error, code, "", STR(""), "%s", text);
    play_event(p, 0, ev);
}

static inline struct json play_json(struct play *p, str s)
{
    const struct json_options options = {.depth_max = 64, .refuse_duplicates = true};
    struct json v;
    struct err e;
    if (!json_parse(&v, s, &options, &p->a, &e))
        fail_msg("%s in %.*s", e.text, STR_ARG(s));
    return v;
}

/* Names of an object's members must be these, in this order: the form of one event. */
static inline void play_keys(struct json v, const char *names)
{
    char got[512] = "";
    size_t n = 0;
    for (struct json_walk w = json_walk(v); json_next(&w);)
        n += (size_t)snprintf(got + n, sizeof got - n, "%s%.*s", n ? " " : "",
                              (int)(json_raw(w.key).len - 2), json_raw(w.key).p + 1);
    assert_string_equal(got, names);
}

/* The output is these bytes. */
static inline void play_wrote(const struct play *p, const char *want)
{
    if (!str_eq_z(buf_view(&p->out), want))
        fail_msg("want:\n%s\ngot:\n%.*s", want, STR_ARG(buf_view(&p->out)));
}

#endif
