#include "base/str.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

str str_of(const char *z) { return z ? (str){z, strlen(z)} : (str){NULL, 0}; }

bool str_eq(str a, str b) { return a.len == b.len && (a.len == 0 || !memcmp(a.p, b.p, a.len)); }
bool str_eq_z(str a, const char *z) { return str_eq(a, str_of(z)); }

int str_cmp(str a, str b)
{
    size_t n = base_min(a.len, b.len);
    int r = n ? memcmp(a.p, b.p, n) : 0;
    return r ? r : (a.len > b.len) - (a.len < b.len);
}

bool str_starts(str s, str prefix)
{
    return s.len >= prefix.len && str_eq(str_sub(s, 0, prefix.len), prefix);
}

bool str_ends(str s, str suffix)
{
    return s.len >= suffix.len && str_eq(str_from(s, s.len - suffix.len), suffix);
}

size_t str_find(str s, str what)
{
    if (what.len == 0)
        return 0;
    if (s.len < what.len)
        return STR_NONE;
    const char *at = memmem(s.p, s.len, what.p, what.len);
    return at ? (size_t)(at - s.p) : STR_NONE;
}

size_t str_find_byte(str s, char c)
{
    const char *at = s.len ? memchr(s.p, c, s.len) : NULL;
    return at ? (size_t)(at - s.p) : STR_NONE;
}

str str_sub(str s, size_t from, size_t len)
{
    from = base_min(from, s.len);
    return (str){s.p ? s.p + from : NULL, base_min(len, s.len - from)};
}

static bool str_is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

str str_trim(str s)
{
    while (s.len && str_is_blank(s.p[0]))
        s = str_from(s, 1);
    while (s.len && str_is_blank(s.p[s.len - 1]))
        s.len--;
    return s;
}

bool str_split(str *rest, char sep, str *head)
{
    if (rest->len == 0)
        return false;
    size_t at = str_find_byte(*rest, sep);
    *head = str_sub(*rest, 0, at);
    *rest = at == STR_NONE ? (str){NULL, 0} : str_from(*rest, at + 1);
    return true;
}

bool str_glob(str pattern, str s)
{
    size_t p = 0, i = 0, star = STR_NONE, retry = 0;
    while (i < s.len) {
        if (p < pattern.len && pattern.p[p] == '*') {
            star = p++;
            retry = i;
        } else if (p < pattern.len && (pattern.p[p] == '?' || pattern.p[p] == s.p[i])) {
            p++;
            i++;
        } else if (star != STR_NONE) {
            p = star + 1;
            i = ++retry;
        } else {
            return false;
        }
    }
    while (p < pattern.len && pattern.p[p] == '*')
        p++;
    return p == pattern.len;
}

bool str_to_u64(str s, uint64_t *out)
{
    uint64_t v = 0;
    if (s.len == 0)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        if (__builtin_mul_overflow(v, 10u, &v) ||
            __builtin_add_overflow(v, (uint64_t)(s.p[i] - '0'), &v))
            return false;
    }
    *out = v;
    return true;
}

bool str_to_i64(str s, int64_t *out)
{
    bool negative = s.len && s.p[0] == '-';
    uint64_t v;
    if (!str_to_u64(negative ? str_from(s, 1) : s, &v))
        return false;
    if (v > (uint64_t)INT64_MAX + (negative ? 1u : 0u))
        return false;
    *out = negative ? (int64_t)(0u - v) : (int64_t)v;
    return true;
}

bool str_to_double(str s, double *out)
{
    char text[1024]; /* the longest decimal that matters to a double has 767 digits */
    if (s.len == 0 || s.len >= sizeof text)
        return false;
    for (size_t i = 0; i < s.len; i++)
        if (!strchr("0123456789+-.eE", s.p[i]))
            return false;
    memcpy(text, s.p, s.len);
    text[s.len] = 0;
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (*end || end == text || !isfinite(v))
        return false;
    *out = v;
    return true;
}

/* Splits "12.5MiB" into number and unit. */
static bool str_number_unit(str s, double *number, str *unit)
{
    size_t at = 0;
    while (at < s.len && ((s.p[at] >= '0' && s.p[at] <= '9') || s.p[at] == '.'))
        at++;
    *unit = str_from(s, at);
    return str_to_double(str_sub(s, 0, at), number);
}

bool str_to_size(str s, uint64_t *out)
{
    double number;
    str unit;
    if (!str_number_unit(str_trim(s), &number, &unit))
        return false;
    unit = str_trim(unit);
    static const char units[] = "KMGTP";
    double factor = 1;
    if (unit.len && unit.p[0] != 'B' && unit.p[0] != 'b') {
        char c = (char)(unit.p[0] & ~0x20);
        const char *at = strchr(units, c);
        if (!at || !c)
            return false;
        factor = ldexp(1.0, 10 * (int)(at - units + 1));
        unit = str_from(unit, 1);
        if (unit.len && unit.p[0] == 'i')
            unit = str_from(unit, 1);
    }
    if (unit.len > 1 || (unit.len == 1 && (unit.p[0] & ~0x20) != 'B'))
        return false;
    double v = number * factor;
    if (!(v >= 0 && v < 0x1p63))
        return false;
    *out = (uint64_t)v;
    return true;
}

bool str_to_duration_ms(str s, int64_t *out)
{
    static const struct { const char *unit; double ms; } units[] = {
        {"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000},
    };
    bool negative = s.len && s.p[0] == '-';
    if (negative)
        s = str_from(s, 1);
    double total = 0;
    if (s.len == 0)
        return false;
    for (size_t parts = 0; s.len; parts++) {
        double number;
        str rest, unit;
        if (!str_number_unit(s, &number, &rest))
            return false;
        size_t at = 0;
        while (at < rest.len && rest.p[at] >= 'a' && rest.p[at] <= 'z')
            at++;
        unit = str_sub(rest, 0, at);
        s = str_from(rest, at);
        size_t i = 0;
        while (i < countof(units) && !str_eq_z(unit, units[i].unit))
            i++;
        if (i == countof(units) || (unit.len == 0 && (parts || s.len)))
            return false;
        total += number * units[i].ms;
    }
    if (total > 9e15)
        return false;
    *out = (int64_t)(negative ? -total : total);
    return true;
}

static char str_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c; }

bool str_eq_nocase(str a, str b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++)
        if (str_lower(a.p[i]) != str_lower(b.p[i]))
            return false;
    return true;
}

#define STR_DISTANCE_MAX 64

/* The table of Wagner and Fischer, one row at a time. */
uint32_t str_distance(str a, str b, uint32_t limit)
{
    uint32_t row[STR_DISTANCE_MAX + 1];
    if (a.len > STR_DISTANCE_MAX || b.len > STR_DISTANCE_MAX)
        return limit + 1;
    for (uint32_t j = 0; j <= b.len; j++)
        row[j] = j;
    for (uint32_t i = 1; i <= a.len; i++) {
        uint32_t corner = row[0];
        row[0] = i;
        for (uint32_t j = 1; j <= b.len; j++) {
            uint32_t replace = corner + (str_lower(a.p[i - 1]) != str_lower(b.p[j - 1]));
            uint32_t other = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            corner = row[j];
            row[j] = replace < other ? replace : other;
        }
    }
    return row[b.len] > limit ? limit + 1 : row[b.len];
}

size_t str_utf8_decode(str s, uint32_t *code_point)
{
    const unsigned char *p = (const unsigned char *)s.p;
    if (s.len == 0)
        return 0;
    uint32_t c = p[0];
    if (c < 0x80) {
        *code_point = c;
        return 1;
    }
    size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (c < 0xc2 || c > 0xf4 || s.len < n)
        return 0;
    c &= 0x7fu >> n;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0u) != 0x80u)
            return 0;
        c = c << 6 | (p[i] & 0x3fu);
    }
    if (c < lowest[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    *code_point = c;
    return n;
}

size_t str_utf8_encode(char out[4], uint32_t c)
{
    must(c <= 0x10ffff && !(c >= 0xd800 && c < 0xe000));
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80u | (c & 0x3fu));
    static const uint32_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(lead[n] | c);
    return n;
}

size_t str_utf8_valid(str s)
{
    size_t at = 0;
    while (at < s.len) {
        uint32_t c;
        size_t n = str_utf8_decode(str_from(s, at), &c);
        if (n == 0)
            break;
        at += n;
    }
    return at;
}

size_t str_utf8_complete(str s)
{
    /* At most the last three bytes can be the begin of a sequence that goes on. */
    for (size_t back = 1; back <= 3 && back <= s.len; back++) {
        unsigned char c = (unsigned char)s.p[s.len - back];
        if ((c & 0xc0u) == 0x80u)
            continue;
        size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        return need > back ? s.len - back : s.len;
    }
    return s.len;
}
