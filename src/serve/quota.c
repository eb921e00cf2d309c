#include "serve/quota.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"

#define QUOTA_HOUR_MS ((int64_t)3600 * 1000)
#define QUOTA_DAY_MS (24 * QUOTA_HOUR_MS)

/* A window begins with the first request after the last one's end. */
struct quota_window {
    uint64_t used;
    int64_t since_ms;
};

struct quota_account {
    uint32_t max_running; /* by the newest rules */
    uint32_t open, started, begun; /* entered; handed on; with a first token */
    struct quota_window hour, day;
    size_t len;
    char name[]; /* "k " or "a " before it */
};

struct quota {
    struct map accounts; /* name -> struct quota_account */
};

bool quota_open(struct quota **out, struct err *e)
{
    struct quota *q = calloc(1, sizeof *q);
    if (!q)
        return err_set(e, ERR_MEMORY, "serve: no memory for quotas");
    map_init(&q->accounts, QUOTA_ACCOUNTS_MAX);
    *out = q;
    return true;
}

/* --- accounts ------------------------------------------------------------------------------ */

static void quota_free(struct quota *q, struct quota_account *a)
{
    map_delete(&q->accounts, str_view(a->name, a->len));
    free(a);
}

void quota_close(struct quota *q)
{
    if (!q)
        return;
    while (q->accounts.count) {
        struct quota_account *a = map_to_pointer(q->accounts.entries[0].value);
        must(a->open == 0);
        quota_free(q, a);
    }
    map_deinit(&q->accounts);
    free(q);
}

static void quota_turn(struct quota_window *w, int64_t length_ms, int64_t now_ms)
{
    if (now_ms - w->since_ms < length_ms)
        return;
    *w = (struct quota_window){.since_ms = now_ms};
}

/* Room for one more: an account that holds nothing, else the one whose day began first. */
static bool quota_make_room(struct quota *q, int64_t now_ms)
{
    struct quota_account *oldest = NULL;
    if (q->accounts.count < QUOTA_ACCOUNTS_MAX)
        return true;
    for (uint32_t i = 0; i < q->accounts.count; i++) {
        struct quota_account *a = map_to_pointer(q->accounts.entries[i].value);
        quota_turn(&a->day, QUOTA_DAY_MS, now_ms);
        if (a->open)
            continue;
        if (a->day.used == 0) {
            quota_free(q, a);
            return true;
        }
        if (!oldest || a->day.since_ms < oldest->day.since_ms)
            oldest = a;
    }
    if (oldest)
        quota_free(q, oldest);
    return oldest != NULL;
}

/* "a name", "k name": agents and keys have accounts of their own. */
static str quota_name(char text[2 + API_NAME_LEN_MAX], const char *kind, str name)
{
    name = str_sub(name, 0, API_NAME_LEN_MAX);
    memcpy(text, kind, 2);
    if (name.len)
        memcpy(text + 2, name.p, name.len);
    return str_view(text, name.len + 2);
}

static struct quota_account *quota_account(struct quota *q, const char *kind, str name,
                                           int64_t now_ms)
{
    char text[2 + API_NAME_LEN_MAX];
    size_t len = quota_name(text, kind, name).len;
    struct quota_account *a = map_to_pointer(map_value(&q->accounts, str_view(text, len), 0));
    if (a || !quota_make_room(q, now_ms))
        return a;
    a = calloc(1, sizeof *a + len);
    if (!a)
        return NULL;
    memcpy(a->name, text, len);
    a->len = len;
    a->hour.since_ms = a->day.since_ms = now_ms;
    if (map_put(&q->accounts, str_view(a->name, len), map_of_pointer(a)))
        return a;
    free(a);
    return NULL;
}

/* --- a request's way ----------------------------------------------------------------------- */

static bool quota_refuse(struct api_error *e, const struct quota_account *a, const char *rule,
                         uint64_t limit, int64_t retry_ms)
{
    api_error_set(e, ERR_OVERLOADED, "rate_limited", STR(""), "%s %.*s: %s is %llu",
                  a->name[0] == 'k' ? "key" : "agent",
                  STR_ARG(str_sub(str_view(a->name + 2, a->len - 2), 0, 80)), rule,
                  (unsigned long long)limit);
    e->retry_after_ms = retry_ms;
    return false;
}

static bool quota_check(struct quota_account *a, const struct quota_rules *r, int64_t now_ms,
                        struct api_error *e)
{
    quota_turn(&a->hour, QUOTA_HOUR_MS, now_ms);
    quota_turn(&a->day, QUOTA_DAY_MS, now_ms);
    a->max_running = r->max_running;
    if (r->tokens_per_day && a->day.used >= r->tokens_per_day)
        return quota_refuse(e, a, "tokens_per_day", r->tokens_per_day,
                            a->day.since_ms + QUOTA_DAY_MS - now_ms);
    if (r->tokens_per_hour && a->hour.used >= r->tokens_per_hour)
        return quota_refuse(e, a, "tokens_per_hour", r->tokens_per_hour,
                            a->hour.since_ms + QUOTA_HOUR_MS - now_ms);
    if (r->max_queued && a->open - a->begun >= r->max_queued)
        return quota_refuse(e, a, "max_queued", r->max_queued, 0);
    return true;
}

static bool quota_counts(const struct quota_rules *r)
{
    return r && (r->max_running || r->max_queued || r->tokens_per_hour || r->tokens_per_day);
}

/* False: there is no room for one more. */
static bool quota_find(struct quota *q, struct quota_account **a, const char *kind, str name,
                       int64_t now_ms)
{
    *a = quota_account(q, kind, name, now_ms);
    return *a != NULL;
}

static bool quota_is_full(struct api_error *e)
{
    return api_error_set(e, ERR_OVERLOADED, "", STR(""), "%u keys and agents under way",
                         QUOTA_ACCOUNTS_MAX);
}

bool quota_enter(struct quota *q, struct quota_ticket *t, const struct quota_who *who,
                 int64_t now_ms, struct api_error *e)
{
    struct quota_account *key = NULL, *agent = NULL;
    *t = (struct quota_ticket){0};
    if (quota_counts(who->key_rules) && !quota_find(q, &key, "k ", who->key, now_ms))
        return quota_is_full(e);
    if (key && !quota_check(key, who->key_rules, now_ms, e))
        return false;
    if (key)
        key->open++; /* before the other one makes room */
    bool ok = !quota_counts(who->agent_rules) ||
              quota_find(q, &agent, "a ", who->agent, now_ms) || quota_is_full(e);
    if (!ok || (agent && !quota_check(agent, who->agent_rules, now_ms, e))) {
        if (key)
            key->open--;
        return false;
    }
    if (agent)
        agent->open++;
    t->accounts[0] = key;
    t->accounts[1] = agent;
    return true;
}

bool quota_may_start(const struct quota_ticket *t)
{
    for (int i = 0; i < 2; i++) {
        const struct quota_account *a = t->accounts[i];
        if (a && a->max_running && a->started >= a->max_running)
            return false;
    }
    return true;
}

void quota_start(struct quota_ticket *t)
{
    must(!t->is_started);
    t->is_started = true;
    for (int i = 0; i < 2; i++)
        if (t->accounts[i])
            t->accounts[i]->started++;
}

void quota_begin(struct quota_ticket *t)
{
    if (t->has_begun)
        return;
    t->has_begun = true;
    for (int i = 0; i < 2; i++)
        if (t->accounts[i])
            t->accounts[i]->begun++;
}

void quota_leave(struct quota *q, struct quota_ticket *t, uint64_t tokens, int64_t now_ms)
{
    (void)q;
    for (int i = 0; i < 2; i++) {
        struct quota_account *a = t->accounts[i];
        if (!a)
            continue;
        a->open--;
        a->started -= t->is_started;
        a->begun -= t->has_begun;
        quota_turn(&a->hour, QUOTA_HOUR_MS, now_ms);
        quota_turn(&a->day, QUOTA_DAY_MS, now_ms);
        a->hour.used += tokens;
        a->day.used += tokens;
    }
    *t = (struct quota_ticket){0};
}

struct quota_used quota_used_of(const struct quota *q, str agent, int64_t now_ms)
{
    char text[2 + API_NAME_LEN_MAX];
    str name = quota_name(text, "a ", agent);
    const struct quota_account *a = map_to_pointer(map_value(&q->accounts, name, 0));
    if (!a)
        return (struct quota_used){0};
    struct quota_window hour = a->hour, day = a->day;
    quota_turn(&hour, QUOTA_HOUR_MS, now_ms);
    quota_turn(&day, QUOTA_DAY_MS, now_ms);
    return (struct quota_used){hour.used, day.used};
}

/* --- what a request takes of its rules ------------------------------------------------------ */

static void quota_fill_given(struct api_request *rq, const struct quota_rules *r)
{
    uint64_t missing = r->given & ~rq->given;
    if (rq->given & API_GIVEN(THINK))
        missing &= ~API_GIVEN(EFFORT);
    if (missing & API_GIVEN(PRIORITY))
        rq->priority = r->priority;
    if (missing & API_GIVEN(EFFORT))
        rq->effort = r->effort;
    if (missing & API_GIVEN(TRUNCATE))
        rq->truncate = r->truncate;
    if (missing & API_GIVEN(CACHE))
        rq->cache = r->cache;
    if (missing & API_GIVEN(REPLAY))
        rq->replay = r->replay;
    rq->given |= missing;
}

void quota_fill(struct api_request *rq, const struct quota_rules *rules)
{
    if (!rules)
        return;
    quota_fill_given(rq, rules);
    if (rules->has_max_priority && rq->priority > rules->max_priority)
        rq->priority = rules->max_priority;
    if (rules->max_context && (!rq->context_max || rq->context_max > rules->max_context))
        rq->context_max = rules->max_context;
    if (rules->max_output && rq->kind != API_KIND_PREFILL &&
        (!rq->tokens_max || rq->tokens_max > rules->max_output)) {
        rq->tokens_max = rules->max_output;
        rq->given |= API_GIVEN(TOKENS_MAX);
    }
}
