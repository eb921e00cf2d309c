#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

/* Sentences go to frames and JSON, which take UTF-8 only; what they quote may be any bytes of a
 * file, and vsnprintf cuts anywhere. Of a long one a UTF-8 border and "..." are the end. */
static void err_mend(char *text, int wanted)
{
    str all = str_of(text);
    for (size_t at = str_utf8_valid(all); at < all.len; at += str_utf8_valid(str_from(all, at)))
        text[at] = '?';
    if (wanted < ERR_TEXT_MAX)
        return;
    size_t at = ERR_TEXT_MAX - 4;
    while (at > 0 && ((unsigned char)text[at] & 0xc0u) == 0x80u)
        at--;
    memcpy(text + at, "...", 4);
}

bool err_set(struct err *e, enum err_code code, const char *format, ...)
{
    char text[ERR_TEXT_MAX]; /* e's own text may be among the arguments */
    va_list args;
    va_start(args, format);
    err_mend(text, vsnprintf(text, sizeof text, format, args));
    va_end(args);
    e->code = code;
    memcpy(e->text, text, strlen(text) + 1);
    return false;
}

bool err_set_errno(struct err *e, int error_number, const char *format, ...)
{
    char head[ERR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    err_mend(head, vsnprintf(head, sizeof head, format, args));
    va_end(args);
    char reason[96];
    const char *why = strerror_r(error_number, reason, sizeof reason);
    return err_set(e, error_number == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", head, why);
}

bool err_wrap(struct err *e, const char *format, ...)
{
    char head[ERR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    err_mend(head, vsnprintf(head, sizeof head, format, args));
    va_end(args);
    return err_set(e, e->code, "%s: %s", head, e->text);
}

const char *err_name(enum err_code code)
{
    static const char *const names[] = {
#define X(name, text) text,
        ERR_CODES(X)
#undef X
    };
    must((size_t)code < countof(names));
    return names[code];
}
