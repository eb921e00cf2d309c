/* err - what went wrong, for programs a code, for people one sentence.
 *
 * Owns:      the error codes (one X-macro) and struct err with its sentence of at most 240 bytes.
 * Not:       API status codes (dialect), exit codes (cli).
 * Invariant: a function that can fail for a reason outside the program returns bool, true = done,
 *            and takes struct err *e last. e is never NULL. On success *e is untouched.
 *            A sentence names the object and the number; it never holds prompt text. It is UTF-8:
 *            other bytes that it was to quote are '?' in it.
 * Thread:    any; a struct err belongs to its caller.
 * Limits:    ERR_TEXT_MAX bytes; longer sentences are cut at a UTF-8 border and end in "...".
 */
#ifndef SHOAL_BASE_ERR_H
#define SHOAL_BASE_ERR_H

#include "base/base.h"

#define ERR_TEXT_MAX 240

/* Whether another leg may help depends on the code alone (route/router). */
#define ERR_CODES(X)                                                                     \
    X(NONE, "none")                                                                      \
    X(USAGE, "usage")               /* a flag or argument of the command line */        \
    X(CONFIG, "config")             /* a key of the configuration */                    \
    X(IO, "io")                     /* a system call on a file or socket failed */      \
    X(NOT_FOUND, "not_found")       /* no such model, file, context */                  \
    X(FORMAT, "format")             /* bytes that break their format */                 \
    X(UNSUPPORTED, "unsupported")   /* valid, but not something we do */                \
    X(REQUEST, "request")           /* a field of a request is wrong */                 \
    X(CONTEXT, "context")           /* prompt longer than the model's context */        \
    X(LIMIT, "limit")               /* a configured limit was reached */                \
    X(MEMORY, "memory")             /* does not fit the budget */                       \
    X(OVERLOADED, "overloaded")     /* queue full */                                    \
    X(DEADLINE, "deadline")         /* a named wait ran out */                          \
    X(AUTH, "auth")                 /* key missing, wrong or without the scope */       \
    X(CONNECT, "connect")           /* an upstream cannot be reached */                 \
    X(UPSTREAM, "upstream")         /* an upstream answered with a failure */           \
    X(ENGINE, "engine")             /* the engine child died or is wedged */            \
    X(DEVICE, "device")             /* a device is lost or cannot do it */              \
    X(CANCELLED, "cancelled")       /* the client went away or asked to stop */         \
    X(INTERNAL, "internal")         /* a self-check failed */

enum err_code {
#define X(name, text) ERR_##name,
    ERR_CODES(X)
#undef X
};

struct err {
    enum err_code code;
    char text[ERR_TEXT_MAX];
};

/* Sets code and sentence, out of e's own text, too; returns false for `return err_set(e, ...)`. */
bool err_set(struct err *e, enum err_code code, const char *format, ...) BASE_PRINTF(3, 4);

/* As err_set with ": strerror(error_number)" at the end and ERR_IO (ENOENT: ERR_NOT_FOUND). */
bool err_set_errno(struct err *e, int error_number, const char *format, ...) BASE_PRINTF(3, 4);

/* Puts "prefix: " before the sentence; the code stays. Returns false. */
bool err_wrap(struct err *e, const char *format, ...) BASE_PRINTF(2, 3);

/* The code's name as in logs and JSON: "not_found". */
const char *err_name(enum err_code code);

#endif
