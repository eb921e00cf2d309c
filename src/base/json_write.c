#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* --- structure --- */

static void json_begin_value(struct json_writer *w)
{
    if (w->wants_comma)
        buf_add_byte(w->out, ',');
    w->wants_comma = true;
}

static void json_open_with(struct json_writer *w, char bracket)
{
    json_begin_value(w);
    buf_add_byte(w->out, bracket);
    w->wants_comma = false;
}

static void json_close_with(struct json_writer *w, char bracket)
{
    buf_add_byte(w->out, bracket);
    w->wants_comma = true;
}

void json_open_object(struct json_writer *w) { json_open_with(w, '{'); }
void json_close_object(struct json_writer *w) { json_close_with(w, '}'); }
void json_open_array(struct json_writer *w) { json_open_with(w, '['); }
void json_close_array(struct json_writer *w) { json_close_with(w, ']'); }

void json_key(struct json_writer *w, str key)
{
    json_put_text(w, key);
    buf_add_byte(w->out, ':');
    w->wants_comma = false;
}

void json_key_z(struct json_writer *w, const char *key) { json_key(w, str_of(key)); }

/* --- text --- */

/* Bytes that stand in a string as they are; the longest run is copied at once. */
static size_t json_plain_len(str s)
{
    size_t i = 0;
    while (i < s.len) {
        unsigned char c = (unsigned char)s.p[i];
        uint32_t code_point;
        size_t n = 1;
        if (c < 0x20 || c == '"' || c == '\\')
            break;
        if (c >= 0x80 && !(n = str_utf8_decode(str_from(s, i), &code_point)))
            break;
        i += n;
    }
    return i;
}

bool json_add_escaped(struct buf *out, str s)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    while (s.len) {
        size_t plain = json_plain_len(s);
        buf_add(out, str_sub(s, 0, plain));
        s = str_from(s, plain);
        if (s.len == 0)
            break;
        unsigned char c = (unsigned char)s.p[0];
        const char *known = c ? strchr(from, c) : NULL;
        if (c >= 0x80)
            buf_add_z(out, "\xef\xbf\xbd");
        else if (known)
            buf_add(out, str_view((const char[]){'\\', to[known - from]}, 2));
        else
            buf_printf(out, "\\u%04x", c);
        s = str_from(s, 1);
    }
    return !out->full;
}

void json_put_text(struct json_writer *w, str text)
{
    json_begin_value(w);
    buf_add_byte(w->out, '"');
    json_add_escaped(w->out, text);
    buf_add_byte(w->out, '"');
}

void json_put_text_z(struct json_writer *w, const char *text) { json_put_text(w, str_of(text)); }

/* --- numbers and the rest --- */

void json_put_raw(struct json_writer *w, str json)
{
    json_begin_value(w);
    buf_add(w->out, json);
}

void json_put_bool(struct json_writer *w, bool v)
{
    json_put_raw(w, v ? STR("true") : STR("false"));
}

void json_put_null(struct json_writer *w) { json_put_raw(w, STR("null")); }

/* By hand: a streamed event holds several, and printf was a tenth of what one costs. */
static void json_put_digits(struct json_writer *w, bool is_negative, uint64_t v)
{
    char text[24], *p = text + sizeof text;
    do
        *--p = (char)('0' + v % 10);
    while (v /= 10);
    if (is_negative)
        *--p = '-';
    json_put_raw(w, str_view(p, (size_t)(text + sizeof text - p)));
}

void json_put_i64(struct json_writer *w, int64_t v)
{
    json_put_digits(w, v < 0, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void json_put_u64(struct json_writer *w, uint64_t v) { json_put_digits(w, false, v); }

void json_put_key_text(struct json_writer *w, const char *key, str text)
{
    json_key_z(w, key);
    if (text.len)
        json_put_text(w, text);
    else
        json_put_null(w);
}

void json_put_key_bool(struct json_writer *w, const char *key, bool v)
{
    json_key_z(w, key);
    json_put_bool(w, v);
}

void json_put_key_i64(struct json_writer *w, const char *key, int64_t v)
{
    json_key_z(w, key);
    json_put_i64(w, v);
}

void json_put_key_u64(struct json_writer *w, const char *key, uint64_t v)
{
    json_key_z(w, key);
    json_put_u64(w, v);
}

void json_put_double(struct json_writer *w, double v)
{
    char text[JSON_NUMBER_MAX];
    json_put_raw(w, isfinite(v) ? str_view(text, json_format_double(text, v)) : STR("null"));
}

void json_put_float(struct json_writer *w, float v)
{
    char text[JSON_NUMBER_MAX];
    json_put_raw(w, isfinite(v) ? str_view(text, json_format_float(text, v)) : STR("null"));
}

/* --- shortest floats ---
 *
 * printf rounds correctly, so the first precision whose text reads back is the shortest, with two
 * exceptions: subnormal numbers need fewer digits than DBL_DIG promises (start at 1), and below a
 * power of two the numbers lie twice as dense, so the nearest text of a length may read back as the
 * neighbour while the next one upwards does not. */

struct json_decimal {
    char digits[20]; /* without trailing zeros, at least one */
    int count, exponent; /* d.ddd x 10^exponent */
};

static bool json_reads_back(const char *text, double v, bool is_float)
{
    if (is_float) /* bits: the comparison of floats would also do, but warns */
        return base_bits_of(strtof(text, NULL)) == base_bits_of((float)v);
    double d = strtod(text, NULL);
    return !memcmp(&d, &v, sizeof d);
}

/* text is "d.ddde[+-]xx"; adds one in the last digit; false if all digits are nines. */
static bool json_next_decimal(char *text)
{
    for (char *p = strchr(text, 'e') - 1; p >= text; p--) {
        if (*p == '.')
            continue;
        if (*p < '9') {
            ++*p;
            return true;
        }
        *p = '0';
    }
    return false;
}

static bool json_is_power_of_two(double v)
{
    int exponent;
    return frexp(v, &exponent) <= 0.5;
}

static struct json_decimal json_shortest(double v, bool is_float)
{
    char text[JSON_NUMBER_MAX];
    bool is_subnormal = v < (is_float ? 0x1p-126 : 0x1p-1022);
    int most = is_float ? 9 : 17, few = is_subnormal ? 1 : is_float ? 6 : 15;
    for (int digits = few;; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, v);
        if (digits == most || json_reads_back(text, v, is_float))
            break;
        if (json_is_power_of_two(v) && json_next_decimal(text) &&
            json_reads_back(text, v, is_float))
            break;
    }
    struct json_decimal d = {.exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10)};
    for (const char *p = text; *p != 'e'; p++)
        if (*p != '.')
            d.digits[d.count++] = *p;
    while (d.count > 1 && d.digits[d.count - 1] == '0')
        d.count--;
    return d;
}

/* As Python's repr: positional from 1e-4 to below 1e16, with ".0" if whole. */
static size_t json_layout(char out[JSON_NUMBER_MAX], bool negative, const struct json_decimal *d)
{
    int n;
    const char *sign = negative ? "-" : "", *digits = d->digits;
    int e = d->exponent, count = d->count;
    if (e < -4 || e >= 16)
        n = snprintf(out, JSON_NUMBER_MAX, "%s%c%s%.*se%c%02d", sign, digits[0],
                     count > 1 ? "." : "", count - 1, digits + 1, e < 0 ? '-' : '+', abs(e));
    else if (e < 0)
        n = snprintf(out, JSON_NUMBER_MAX, "%s0.%.*s%.*s", sign, -e - 1, "000", count, digits);
    else if (e + 1 >= count)
        n = snprintf(out, JSON_NUMBER_MAX, "%s%.*s%.*s.0", sign, count, digits, e + 1 - count,
                     "0000000000000000");
    else
        n = snprintf(out, JSON_NUMBER_MAX, "%s%.*s.%.*s", sign, e + 1, digits, count - e - 1,
                     digits + e + 1);
    must(n > 0 && n < JSON_NUMBER_MAX);
    return (size_t)n;
}

size_t json_format_double(char out[JSON_NUMBER_MAX], double v)
{
    must(isfinite(v));
    struct json_decimal d = {.digits = "0", .count = 1};
    if (fabs(v) > 0)
        d = json_shortest(fabs(v), false);
    return json_layout(out, signbit(v), &d);
}

size_t json_format_float(char out[JSON_NUMBER_MAX], float v)
{
    must(isfinite(v));
    struct json_decimal d = {.digits = "0", .count = 1};
    if (fabsf(v) > 0)
        d = json_shortest(fabs((double)v), true);
    return json_layout(out, signbit(v), &d);
}
