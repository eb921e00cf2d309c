/* dialect_read - reading a client's JSON into a request, the same way for every protocol.
 *
 * Owns:      tables of fields, their kinds, sentences and paths; numbers (api_request_set), texts,
 *            content parts that all protocols have; the object `shoal` and its headers; warnings.
 * Not:       which fields a protocol has (dialect_NAME.c).
 * Invariant: null is absent. A member without a row is a warning, one with a row of KIND_REFUSED an
 *            error. Errors name the path: "messages[2].content: string or array expected, got
 *            number".
 * Thread:    its caller's.
 * Limits:    dialect_limits; at most API_NOTES_MAX warnings are kept.
 */
#ifndef SHOAL_DIALECT_DIALECT_READ_H
#define SHOAL_DIALECT_DIALECT_READ_H

#include "base/json.h"
#include "dialect/dialect.h"

struct dialect_read {
    struct api_request *rq;
    struct dialect_state *st;
    const struct dialect_in *in;
    struct arena *a;
    struct api_error *e;
    void *own; /* the protocol's */
    struct api_tool *tools; /* rq->tools while they are read */
};

enum dialect_kind {
    DIALECT_KIND_NUMBER,  /* arg: enum api_field; range of API_NUMBERS */
    DIALECT_KIND_AT_LEAST_1, /* as NUMBER, but not 0 */
    DIALECT_KIND_BOOL,    /* offset: a bool of the request */
    DIALECT_KIND_TEXT,    /* offset: a str of the request; at most API_NAME_LEN_MAX bytes */
    DIALECT_KIND_READ,    /* read */
    DIALECT_KIND_IGNORED, /* warning ignored_field */
    DIALECT_KIND_SKIPPED, /* read elsewhere, or of no consequence: no warning */
    DIALECT_KIND_REFUSED, /* 400 */
};
struct dialect_field {
    const char *name;
    enum dialect_kind kind;
    size_t arg; /* NUMBER: field; BOOL, TEXT: offset in struct api_request */
    bool (*read)(struct dialect_read *r, struct json v);
};

/* The rest of a row behind its name. Only readers include this header. */
#define AT(member) offsetof(struct api_request, member)
#define NUMBER(field) DIALECT_KIND_NUMBER, API_FIELD_##field, NULL
#define READ(function) DIALECT_KIND_READ, 0, function
#define REFUSED DIALECT_KIND_REFUSED, 0, NULL
#define IGNORED DIALECT_KIND_IGNORED, 0, NULL

/* The body as an object. */
BASE_USE_RESULT bool dialect_read_body(struct dialect_read *r, struct json *out);
/* Every member of v (an object) by its row. */
BASE_USE_RESULT bool dialect_read_object(struct dialect_read *r, struct json v,
                                         const struct dialect_field *fields, size_t count);

/* ERR_REQUEST "PATH: WHAT expected, got KIND"; false. */
bool dialect_read_wrong(struct dialect_read *r, struct json v, const char *what);
/* ERR_REQUEST or ERR_UNSUPPORTED "PATH: sentence"; false. */
bool dialect_read_fail(struct dialect_read *r, enum err_code code, struct json v,
                       const char *format, ...) BASE_PRINTF(4, 5);
/* ERR_REQUEST "PATH.MEMBER: WHAT" ("messages[0].role", "required"): a member that v lacks, or that
 * is of a wrong kind; false. */
bool dialect_read_member(struct dialect_read *r, struct json v, const char *member,
                         const char *what);
/* "NAME: required"; false. */
bool dialect_read_missing(struct dialect_read *r, const char *name);
str dialect_read_path(struct dialect_read *r, struct json v);
/* An unfinished last turn that ends in a call whose arguments are not whole: the call is_open. */
void dialect_read_open(struct dialect_read *r);
/* A warning: its code in BEHAVIOUR 5.13, and the path of v. */
void dialect_read_note_path(struct dialect_read *r, const char *code, struct json v);

/* Values by kind; a wrong kind or range is an error. */
BASE_USE_RESULT bool dialect_read_text(struct dialect_read *r, struct json v, str *out);
/* The same; absent or null: *out stays as it is. */
BASE_USE_RESULT bool dialect_read_text_or_none(struct dialect_read *r, struct json v, str *out);
BASE_USE_RESULT bool dialect_read_bool(struct dialect_read *r, struct json v, bool *out);
BASE_USE_RESULT bool dialect_read_int(struct dialect_read *r, struct json v, int64_t low,
                                      int64_t high, int64_t *out);
BASE_USE_RESULT bool dialect_read_number(struct dialect_read *r, struct json v,
                                         enum api_field field);
/* A string or an array of 1 to limits->stop_max of them. */
BASE_USE_RESULT bool dialect_read_stop(struct dialect_read *r, struct json v);
/* Index in names[count], or an error that lists them. */
BASE_USE_RESULT bool dialect_read_choice(struct dialect_read *r, struct json v,
                                         const char *const *names, size_t count, size_t *out);
BASE_USE_RESULT bool dialect_read_effort(struct dialect_read *r, struct json v);
/* Seconds as a number or text of one, or a duration; negative = for ever. */
BASE_USE_RESULT bool dialect_read_keep_alive(struct dialect_read *r, struct json v);
/* Identity from a standard field: what lies outside the set becomes "u-" and a hash. */
BASE_USE_RESULT bool dialect_read_agent(struct dialect_read *r, struct json v);
BASE_USE_RESULT bool dialect_read_session(struct dialect_read *r, struct json v);
/* How long a cloud is to keep the prompt: so long its session stays with it. */
BASE_USE_RESULT bool dialect_read_retention(struct dialect_read *r, struct json v);
BASE_USE_RESULT bool dialect_read_cache(struct dialect_read *r, struct json v);
/* The headers Shoal-* and then the body's object shoal: the last word on what they set. */
BASE_USE_RESULT bool dialect_read_extensions(struct dialect_read *r, struct json body);
/* Defaults are set, fields are read: the request is complete and passes api_request_check. */
BASE_USE_RESULT bool dialect_read_finish(struct dialect_read *r);

/* An array in the arena, zeroed; NULL with ERR_LIMIT. */
void *dialect_read_array(struct dialect_read *r, size_t count, size_t size);
/* The request's messages, at least so many, each by read_one. */
BASE_USE_RESULT bool dialect_read_messages(struct dialect_read *r, struct json v, uint32_t least,
                                           bool (*read_one)(struct dialect_read *r, struct json v,
                                                            struct api_message *out));

#endif
