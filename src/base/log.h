/* log - one line per event to a descriptor, and the last lines kept for a crash.
 *
 * Owns:      the only global mutable state of the program: level, form, descriptor, ring.
 * Not:       rotating files, metrics; texts of prompts (they may only come with `logging.content`).
 * Invariant: a line is written by one write() call, so lines of several threads do not mix. Bytes
 *            that could steer a terminal or break a line are escaped, invalid UTF-8 too.
 * Thread:    any; one lock, held for a copy and one write.
 * Limits:    LOG_LINE_MAX bytes a line, cut with "..."; LOG_RING_LINES lines are kept.
 */
#ifndef SHOAL_BASE_LOG_H
#define SHOAL_BASE_LOG_H

#include "base/str.h"

#define LOG_LINE_MAX 1024
#define LOG_RING_LINES 256

enum log_level {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARN,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG,
    LOG_LEVEL_TRACE,
};
enum log_form { LOG_FORM_TEXT, LOG_FORM_JSON };

struct log_options {
    enum log_level level;
    enum log_form form;
    int fd;           /* -1: the ring only */
    const char *name; /* "serve", "engine": stands in each line; a literal */
};
/* At start: registers the ring with must(). Before it, lines go to the ring only. */
/* Again: other options. The descriptor that lines went to so far, -1 for none. */
int log_init(const struct log_options *o);

void log_error(const char *format, ...) BASE_PRINTF(1, 2);
void log_warn(const char *format, ...) BASE_PRINTF(1, 2);
void log_info(const char *format, ...) BASE_PRINTF(1, 2);
void log_debug(const char *format, ...) BASE_PRINTF(1, 2);

/* Fields of a line: log_fields(LOG_LEVEL_INFO, "request", fields, count): key=value in the text
 * form, members in JSON. A value that is not a number is quoted. */
struct log_field {
    const char *key;
    str text;       /* text.p != NULL: a text */
    int64_t number; /* else this */
};
void log_fields(enum log_level level, const char *event, const struct log_field *fields,
                size_t count);

/* Writes the kept lines, oldest first; safe in a signal handler and in must(). */
void log_dump(int fd);

bool log_level_parse(str name, enum log_level *out);

#endif
