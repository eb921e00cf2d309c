#include "dialect/dialect_read.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/digest.h"

/* ---- Errors and warnings ---- */

str dialect_read_path(struct dialect_read *r, struct json v)
{
    struct buf path;
    buf_init(&path, 4096);
    bool fits = json_add_path(&path, v);
    str out = arena_copy(r->a, fits ? buf_view(&path) : STR("(a deep path)"));
    buf_deinit(&path);
    return out.p && out.len ? out : STR("body");
}

bool dialect_read_fail(struct dialect_read *r, enum err_code code, struct json v,
                       const char *format, ...)
{
    char text[ERR_TEXT_MAX];
    str path = dialect_read_path(r, v);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return api_error_set(r->e, code, "", path, "%.*s: %s", (int)base_min(path.len, 120), path.p,
                         text);
}

bool dialect_read_wrong(struct dialect_read *r, struct json v, const char *what)
{
    return dialect_read_fail(r, ERR_REQUEST, v, "%s expected, got %s", what,
                             json_kind_name(json_kind(v)));
}

bool dialect_read_member(struct dialect_read *r, struct json v, const char *member,
                         const char *what)
{
    str of = dialect_read_path(r, v);
    bool is_body = str_eq_z(of, "body");
    str path = is_body ? arena_copy(r->a, str_of(member))
                       : arena_printf(r->a, "%.*s.%s", STR_ARG(of), member);
    return api_error_set(r->e, ERR_REQUEST, "", path.p ? path : of, "%.*s: %s",
                         (int)base_min(path.len, 160), path.p ? path.p : "", what);
}

bool dialect_read_missing(struct dialect_read *r, const char *name)
{
    return api_error_set(r->e, ERR_REQUEST, "", str_of(name), "%s: required", name);
}

static bool out_of_memory(struct dialect_read *r)
{
    return api_error_set(r->e, ERR_LIMIT, "", STR("body"), "body: reading it needs more than the "
                         "request's memory of %zu MiB", r->a->bytes_max >> 20);
}

void *dialect_read_array(struct dialect_read *r, size_t count, size_t size)
{
    void *p = arena_alloc_array(r->a, count, size);
    if (p == NULL)
        out_of_memory(r);
    return p;
}

bool dialect_read_messages(struct dialect_read *r, struct json v, uint32_t least,
                           bool (*read_one)(struct dialect_read *r, struct json v,
                                            struct api_message *out))
{
    uint32_t count = json_count(v), n = 0;
    if (json_kind(v) != JSON_KIND_ARRAY)
        return dialect_read_wrong(r, v, "array");
    if (count < least || count > r->in->limits->messages_max)
        return dialect_read_fail(r, ERR_REQUEST, v, "%u to %u messages expected, got %u", least,
                                 r->in->limits->messages_max, count);
    struct api_message *messages = dialect_read_array(r, count, sizeof *messages);
    for (struct json_walk w = json_walk(v); messages && json_next(&w);)
        if (!read_one(r, w.value, &messages[n++]))
            return false;
    r->rq->messages = messages;
    r->rq->messages_count = count;
    return messages != NULL;
}

void dialect_read_open(struct dialect_read *r)
{
    const struct json_options o = {.depth_max = DIALECT_DEPTH_MAX};
    const struct api_request *rq = r->rq;
    struct err ignored;
    struct json v;
    if (!rq->continue_last || rq->messages_count == 0)
        return;
    const struct api_message *m = &rq->messages[rq->messages_count - 1];
    struct api_part *last =
        m->parts_count ? (struct api_part *)&m->parts[m->parts_count - 1] : NULL;
    if (last && last->kind == API_PART_CALL) /* the parts were made by this reader */
        last->is_open = !json_parse(&v, last->text, &o, r->a, &ignored);
}

static void note(struct dialect_read *r, const char *code, str text)
{
    struct dialect_state *st = r->st;
    for (uint32_t i = 0; i < st->notes_count; i++)
        if (str_eq_z(st->notes[i].code, code) && str_eq(st->notes[i].text, text))
            return;
    if (st->notes_count < API_NOTES_MAX)
        st->notes[st->notes_count++] = (struct api_note){str_of(code), text};
}

void dialect_read_note_path(struct dialect_read *r, const char *code, struct json v)
{
    note(r, code, dialect_read_path(r, v));
}

/* ---- Values ---- */

bool dialect_read_text(struct dialect_read *r, struct json v, str *out)
{
    if (json_kind(v) != JSON_KIND_STRING)
        return dialect_read_wrong(r, v, "string");
    *out = json_text(v, r->a);
    return out->p != NULL || out_of_memory(r);
}

bool dialect_read_text_or_none(struct dialect_read *r, struct json v, str *out)
{
    return json_kind(v) <= JSON_KIND_NULL || dialect_read_text(r, v, out);
}

bool dialect_read_bool(struct dialect_read *r, struct json v, bool *out)
{
    return json_bool(v, out) || dialect_read_wrong(r, v, "boolean");
}

bool dialect_read_int(struct dialect_read *r, struct json v, int64_t low, int64_t high,
                      int64_t *out)
{
    if (json_kind(v) != JSON_KIND_NUMBER)
        return dialect_read_wrong(r, v, "integer");
    str raw = json_raw(v);
    if (json_i64(v, out) && *out >= low && *out <= high)
        return true;
    return dialect_read_fail(r, ERR_REQUEST, v, "integer from %lld to %lld expected, got %.*s",
                             (long long)low, (long long)high, (int)base_min(raw.len, 40), raw.p);
}

bool dialect_read_number(struct dialect_read *r, struct json v, enum api_field field)
{
    double n = INFINITY;
    if (json_kind(v) != JSON_KIND_NUMBER)
        return dialect_read_wrong(r, v, "number");
    if (!json_double(v, &n) && json_raw(v).p[0] == '-')
        n = -INFINITY;
    return api_request_set(r->rq, field, n, dialect_read_path(r, v), r->e);
}

bool dialect_read_choice(struct dialect_read *r, struct json v, const char *const *names,
                         size_t count, size_t *out)
{
    char list[160];
    size_t n = 0;
    if (json_kind(v) != JSON_KIND_STRING)
        return dialect_read_wrong(r, v, "string");
    for (*out = 0; *out < count; (*out)++)
        if (json_text_eq(v, str_of(names[*out])))
            return true;
    list[0] = 0;
    for (size_t i = 0; i < count && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", names[i]);
    str got = str_sub(json_raw(v), 0, 60);
    return dialect_read_fail(r, ERR_REQUEST, v, "one of %s expected, got %.*s", list, STR_ARG(got));
}

static bool one_stop(struct dialect_read *r, struct json v, str *out)
{
    if (!dialect_read_text(r, v, out))
        return false;
    return (out->len >= 1 && out->len <= r->in->limits->stop_len_max) ||
           dialect_read_fail(r, ERR_REQUEST, v, "1 to %u bytes expected, got %zu",
                             r->in->limits->stop_len_max, out->len);
}

bool dialect_read_stop(struct dialect_read *r, struct json v)
{
    bool is_array = json_kind(v) == JSON_KIND_ARRAY;
    uint32_t count = is_array ? json_count(v) : 1, n = 0;
    if (!is_array && json_kind(v) != JSON_KIND_STRING)
        return dialect_read_wrong(r, v, "string or array of strings");
    if (count > r->in->limits->stop_max)
        return dialect_read_fail(r, ERR_REQUEST, v, "at most %u strings expected, got %u",
                                 r->in->limits->stop_max, count);
    str *stop = dialect_read_array(r, count, sizeof *stop);
    if (stop == NULL)
        return false;
    if (!is_array && !one_stop(r, v, &stop[n++]))
        return false;
    for (struct json_walk w = json_walk(v); is_array && json_next(&w);)
        if (!one_stop(r, w.value, &stop[n++]))
            return false;
    r->rq->stop = stop;
    r->rq->stop_count = count;
    r->rq->given |= API_GIVEN(STOP);
    return true;
}

bool dialect_read_effort(struct dialect_read *r, struct json v)
{
    static const char *const names[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    size_t i;
    if (!dialect_read_choice(r, v, names, countof(names), &i))
        return false;
    r->rq->effort = (enum api_effort)(API_EFFORT_NONE + (int)i);
    r->rq->given |= API_GIVEN(EFFORT);
    return true;
}

/* ---- Identity, lifetime ---- */

#define KEEP_ALIVE_MAX_MS (INT64_C(10) * 365 * 86400 * 1000) /* more is for ever */

bool dialect_read_keep_alive(struct dialect_read *r, struct json v)
{
    double seconds = 0;
    int64_t ms = 0;
    bool is_number = json_kind(v) == JSON_KIND_NUMBER;
    str text = {NULL, 0};
    if (!is_number && json_kind(v) != JSON_KIND_STRING)
        return dialect_read_wrong(r, v, "seconds or a duration like 5m");
    if (is_number && !json_double(v, &seconds))
        seconds = json_raw(v).p[0] == '-' ? -1 : INFINITY;
    if (!is_number && !dialect_read_text(r, v, &text))
        return false;
    bool is_negative = text.len > 1 && text.p[0] == '-';
    if (!is_number && !str_to_double(text, &seconds)) {
        if (!str_to_duration_ms(is_negative ? str_from(text, 1) : text, &ms))
            return dialect_read_wrong(r, v, "seconds or a duration like 5m");
        seconds = (is_negative ? -1.0 : 1.0) * (double)ms / 1000;
    }
    bool is_endless = seconds < 0 || seconds * 1000 > (double)KEEP_ALIVE_MAX_MS;
    r->rq->keep_alive_ms = is_endless ? -1 : (int64_t)(seconds * 1000);
    r->rq->given |= API_GIVEN(KEEP_ALIVE);
    return true;
}

static bool is_identity(str s)
{
    bool ok = s.len >= 1 && s.len <= 128;
    for (size_t i = 0; ok && i < s.len; i++)
        ok = (s.p[i] >= 'a' && s.p[i] <= 'z') || (s.p[i] >= 'A' && s.p[i] <= 'Z') ||
             (s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] && strchr("._:@/-", s.p[i]));
    return ok;
}

/* From a standard field: any text is taken; what our set does not hold becomes its fingerprint. */
static bool read_identity(struct dialect_read *r, struct json v, str *out)
{
    str s;
    if (!dialect_read_text(r, v, &s))
        return false;
    if (s.len && !is_identity(s)) {
        s = arena_printf(r->a, "u-%016llx", (unsigned long long)digest_xxh3(s, 0));
        if (s.p == NULL)
            return out_of_memory(r);
    }
    if (s.len)
        *out = s;
    return true;
}

bool dialect_read_agent(struct dialect_read *r, struct json v)
{
    return read_identity(r, v, &r->rq->agent);
}

bool dialect_read_session(struct dialect_read *r, struct json v)
{
    return read_identity(r, v, &r->rq->session);
}

bool dialect_read_retention(struct dialect_read *r, struct json v)
{
    if (json_text_eq(v, STR("24h")))
        r->rq->cache_s = 24 * 3600;
    dialect_read_note_path(r, "ignored_field", v); /* our own cache has its own rules */
    return true;
}

bool dialect_read_cache(struct dialect_read *r, struct json v)
{
    static const char *const names[] = {"keep", "drop", "off"};
    size_t i;
    if (!dialect_read_choice(r, v, names, countof(names), &i))
        return false;
    r->rq->cache = (enum api_cache)i;
    r->rq->given |= API_GIVEN(CACHE);
    return true;
}

/* ---- The object shoal ---- */

static bool ext_identity(struct dialect_read *r, struct json v, str *out)
{
    str s;
    if (!dialect_read_text(r, v, &s))
        return false;
    if (!is_identity(s))
        return dialect_read_fail(r, ERR_REQUEST, v, "1 to 128 of A-Z a-z 0-9 . _ : @ / - expected");
    *out = s;
    return true;
}

static bool ext_agent(struct dialect_read *r, struct json v)
{
    return ext_identity(r, v, &r->rq->agent);
}

static bool ext_session(struct dialect_read *r, struct json v)
{
    return ext_identity(r, v, &r->rq->session);
}

static bool ext_priority(struct dialect_read *r, struct json v)
{
    static const char *const names[] = {"low", "normal", "high"};
    size_t i;
    if (!dialect_read_choice(r, v, names, countof(names), &i))
        return false;
    r->rq->priority = (enum api_priority)(API_PRIORITY_LOW + (int)i);
    r->rq->given |= API_GIVEN(PRIORITY);
    return true;
}

static bool ext_truncate(struct dialect_read *r, struct json v)
{
    static const char *const names[] = {"none", "rounds"};
    size_t i;
    if (!dialect_read_choice(r, v, names, countof(names), &i))
        return false;
    r->rq->truncate = (enum api_truncate)i;
    r->rq->given |= API_GIVEN(TRUNCATE);
    return true;
}

static bool ext_context_max(struct dialect_read *r, struct json v)
{
    int64_t n;
    return dialect_read_int(r, v, 256, INT32_MAX, &n) &&
           dialect_read_number(r, v, API_FIELD_CONTEXT_MAX);
}

static bool ext_deadline(struct dialect_read *r, struct json v)
{
    return dialect_read_int(r, v, 1, 86400000, &r->rq->deadline.total_ms);
}

static bool ext_replay(struct dialect_read *r, struct json v)
{
    r->rq->given |= API_GIVEN(REPLAY);
    return dialect_read_bool(r, v, &r->rq->replay);
}

static const struct dialect_field ext_fields[] = {
    {"agent", DIALECT_KIND_READ, 0, ext_agent},
    {"session", DIALECT_KIND_READ, 0, ext_session},
    {"context", DIALECT_KIND_TEXT, AT(context), NULL},
    {"priority", DIALECT_KIND_READ, 0, ext_priority},
    {"effort", DIALECT_KIND_READ, 0, dialect_read_effort},
    {"max_context", DIALECT_KIND_READ, 0, ext_context_max},
    {"cache", DIALECT_KIND_READ, 0, dialect_read_cache},
    {"truncate", DIALECT_KIND_READ, 0, ext_truncate},
    {"deadline_ms", DIALECT_KIND_READ, 0, ext_deadline},
    {"keep_alive", DIALECT_KIND_READ, 0, dialect_read_keep_alive},
    {"leg", DIALECT_KIND_TEXT, AT(leg), NULL},
    {"replay", DIALECT_KIND_READ, 0, ext_replay},
    {"parse_special", DIALECT_KIND_BOOL, AT(parse_special), NULL},
};

/* "shoal-max-context" of the field "max_context"; context and parse_special have no header. */
static bool is_header_of(str name, const char *field)
{
    str rest = str_from(name, strlen("shoal-"));
    if (!str_starts(name, STR("shoal-")) || rest.len != strlen(field) ||
        strcmp(field, "context") == 0 || strcmp(field, "parse_special") == 0)
        return false;
    for (size_t i = 0; i < rest.len; i++)
        if ((rest.p[i] == '-' ? '_' : rest.p[i]) != field[i])
            return false;
    return true;
}

/* A header's value is read as the JSON that it would be in the body: numbers and booleans as they
 * stand, everything else as a string. Errors and warnings name the header. */
static bool read_header(struct dialect_read *r, const struct api_header *h,
                        const struct dialect_field *field)
{
    const struct json_options options = {.depth_max = 4};
    struct err ignored;
    struct json v;
    double number;
    bool is_plain = str_to_double(h->value, &number) || str_eq_z(h->value, "true") ||
                    str_eq_z(h->value, "false");
    bool is_text = strcmp(field->name, "keep_alive") == 0 || field->kind == DIALECT_KIND_TEXT ||
                   field->read == ext_agent || field->read == ext_session;
    str name = arena_copy(r->a, h->name);
    struct dialect_field as_named = *field;
    struct buf quoted;
    if (name.p == NULL)
        return out_of_memory(r);
    as_named.name = name.p;
    buf_init(&quoted, 8192);
    struct json_writer w = json_writer(&quoted);
    json_open_object(&w);
    json_key(&w, name);
    if (is_plain && !is_text)
        json_put_raw(&w, h->value);
    else
        json_put_text(&w, h->value);
    json_close_object(&w);
    str text = quoted.full ? (str){NULL, 0} : arena_copy(r->a, buf_view(&quoted));
    buf_deinit(&quoted);
    if (text.p == NULL || !json_parse(&v, text, &options, r->a, &ignored))
        return api_error_set(r->e, ERR_REQUEST, "", h->name, "header %.*s: a value that cannot be "
                             "read", (int)base_min(h->name.len, 60), h->name.p);
    return dialect_read_object(r, v, &as_named, 1);
}

bool dialect_read_extensions(struct dialect_read *r, struct json body)
{
    for (uint32_t i = 0; i < r->in->headers_count; i++)
        for (size_t k = 0; k < countof(ext_fields); k++)
            if (is_header_of(r->in->headers[i].name, ext_fields[k].name) &&
                !read_header(r, &r->in->headers[i], &ext_fields[k]))
                return false;
    struct json shoal = json_member(body, "shoal");
    enum json_kind kind = json_kind(shoal);
    if (kind == JSON_KIND_ABSENT || kind == JSON_KIND_NULL)
        return true;
    return dialect_read_object(r, shoal, ext_fields, countof(ext_fields));
}

/* ---- Objects ---- */

static bool read_field(struct dialect_read *r, const struct dialect_field *f, struct json v)
{
    char *at = (char *)r->rq + f->arg;
    str text;
    switch (f->kind) {
    case DIALECT_KIND_AT_LEAST_1:
        if (json_kind(v) == JSON_KIND_NUMBER && str_eq_z(json_raw(v), "0"))
            return dialect_read_fail(r, ERR_REQUEST, v, "at least 1 expected, got 0");
        return dialect_read_number(r, v, (enum api_field)f->arg);
    case DIALECT_KIND_NUMBER:
        return dialect_read_number(r, v, (enum api_field)f->arg);
    case DIALECT_KIND_BOOL:
        return dialect_read_bool(r, v, (bool *)at);
    case DIALECT_KIND_TEXT:
        if (!dialect_read_text(r, v, &text))
            return false;
        if (text.len > API_NAME_LEN_MAX)
            return dialect_read_fail(r, ERR_REQUEST, v, "at most %u bytes expected, got %zu",
                                     API_NAME_LEN_MAX, text.len);
        memcpy(at, &text, sizeof text);
        return true;
    case DIALECT_KIND_READ:
        return f->read(r, v);
    case DIALECT_KIND_IGNORED:
        dialect_read_note_path(r, "ignored_field", v);
        return true;
    case DIALECT_KIND_SKIPPED:
        return true;
    case DIALECT_KIND_REFUSED:
        break;
    }
    return dialect_read_fail(r, ERR_REQUEST, v, "this field is not supported");
}

/* "max_token; did you mean max_tokens?" */
static void note_unknown(struct dialect_read *r, struct json v, struct json key,
                         const struct dialect_field *fields, size_t count)
{
    str raw = json_raw(key), name = str_sub(raw, 1, raw.len - 2);
    const char *near = NULL;
    uint32_t best = name.len < 4 ? 2 : 3;
    for (size_t i = 0; i < count; i++) {
        uint32_t d = str_distance(name, str_of(fields[i].name), best - 1);
        if (d < best) {
            best = d;
            near = fields[i].name;
        }
    }
    str path = dialect_read_path(r, v);
    str text = near ? arena_printf(r->a, "%.*s; did you mean %s?", STR_ARG(path), near) : path;
    note(r, "unknown_field", text.p ? text : path);
}

bool dialect_read_object(struct dialect_read *r, struct json v, const struct dialect_field *fields,
                         size_t count)
{
    if (json_kind(v) != JSON_KIND_OBJECT)
        return dialect_read_wrong(r, v, "object");
    for (struct json_walk w = json_walk(v); json_next(&w);) {
        size_t i = 0;
        if (json_kind(w.value) == JSON_KIND_NULL)
            continue;
        while (i < count && !json_text_eq(w.key, str_of(fields[i].name)))
            i++;
        if (i == count)
            note_unknown(r, w.value, w.key, fields, count);
        else if (!read_field(r, &fields[i], w.value))
            return false;
    }
    return true;
}

bool dialect_read_body(struct dialect_read *r, struct json *out)
{
    const struct json_options options = {.depth_max = DIALECT_DEPTH_MAX,
                                         .refuse_duplicates = true};
    struct err e = {0};
    if (!json_parse(out, r->in->body, &options, r->a, &e)) {
        bool is_memory = e.code == ERR_MEMORY;
        return api_error_set(r->e, is_memory ? ERR_LIMIT : ERR_REQUEST, "", STR("body"), "body: %s",
                             e.text);
    }
    return json_kind(*out) == JSON_KIND_OBJECT || dialect_read_wrong(r, *out, "object");
}

bool dialect_read_finish(struct dialect_read *r)
{
    struct api_request *rq = r->rq;
    struct api_note *notes = dialect_read_array(r, r->st->notes_count, sizeof *notes);
    if (notes == NULL)
        return false;
    memcpy(notes, r->st->notes, r->st->notes_count * sizeof *notes);
    rq->notes = notes;
    rq->notes_count = r->st->notes_count;
    rq->time_s = r->in->time_s;
    rq->dialect = str_of(r->st->dialect->name);
    rq->body = r->in->body;
    rq->headers = r->in->headers;
    rq->headers_count = r->in->headers_count;
    r->st->request_id = r->in->request_id;
    r->st->model = rq->model;
    r->st->time_s = r->in->time_s;
    r->st->stream = rq->stream;
    r->st->seed = rq->seed;
    r->st->hides_reasoning = rq->effort == API_EFFORT_NONE ||
                             (rq->effort == API_EFFORT_DEFAULT && rq->think == API_THINK_OFF);
    r->st->choices_count = api_request_choices(rq);
    r->st->choices = dialect_read_array(r, r->st->choices_count, sizeof *r->st->choices);
    return r->st->choices != NULL && api_request_check(rq, r->e);
}
