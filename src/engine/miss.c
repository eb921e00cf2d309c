#include "engine/miss.h"

#include <string.h>

#define MISS_AGAIN 8u        /* bytes that must be equal behind a number or a word */
#define MISS_WORD_MIN 4u     /* letters of a nonce */
#define MISS_DIGITS_MAX 12u  /* of a counter; what is longer is random */
#define MISS_BACK 48u        /* a date begins at most so far before the difference */
#define MISS_OBJECTS 8u      /* nested objects that are tried around the difference */

const char *miss_reason_name(enum miss_reason r)
{
    static const char *const names[] = {
#define X(name, text) text,
        MISS_REASONS(X)
#undef X
    };
    return names[r];
}

const char *miss_hint_name(enum miss_hint h)
{
    static const char *const names[] = {
#define X(name, text) text,
        MISS_HINTS(X)
#undef X
    };
    return names[h];
}

bool miss_is(const struct miss_case *c)
{
    return (uint64_t)c->cached * 10 < (uint64_t)c->expected * 9;
}

enum miss_reason miss_reason(const struct miss_case *c)
{
    if (c->is_disabled)
        return MISS_REASON_DISABLED;
    if (c->is_other_scope)
        return MISS_REASON_SCOPE;
    if ((uint64_t)c->common * 10 >= (uint64_t)c->expected * 9)
        return MISS_REASON_EVICTED;
    return c->has_changed ? MISS_REASON_CONTENT_CHANGED : MISS_REASON_TEMPLATE_CHANGED;
}

/* --- letters ------------------------------------------------------------------------------- */

static char byte_at(str s, size_t i) { return i < s.len ? s.p[i] : 0; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
static bool is_word(char c) { return is_digit(c) || is_letter(c) || c == '-' || c == '_'; }

static size_t digits(str s, size_t from)
{
    size_t n = 0;
    while (is_digit(byte_at(s, from + n)))
        n++;
    return n;
}

/* --- dates and times of day ---------------------------------------------------------------- */

/* Length of the name of a month or a day of the week at `from`, long or cut to three; or 0. */
static size_t name_of_day(str s, size_t from)
{
    static const char *const names[] = {
        "January", "February", "March", "April", "May", "June", "July", "August", "September",
        "October", "November", "December", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday",
        "Saturday", "Sunday"};
    size_t len = 0;
    while (is_letter(byte_at(s, from + len)))
        len++;
    if (from && is_letter(s.p[from - 1]))
        return 0;
    for (size_t i = 0; i < countof(names); i++) {
        str name = str_of(names[i]);
        if ((len == 3 || len == name.len) && str_eq_nocase(str_sub(s, from, len),
                                                           str_sub(name, 0, len)))
            return len;
    }
    return 0;
}

/* 9:05, 09:05:30.250 */
static size_t time_of_day(str s, size_t from)
{
    size_t hour = digits(s, from), at = from + hour;
    if (hour < 1 || hour > 2 || byte_at(s, at) != ':' || digits(s, at + 1) != 2)
        return 0;
    at += 3;
    if (byte_at(s, at) == ':' && digits(s, at + 1) == 2)
        at += 3;
    if (byte_at(s, at) == '.' && digits(s, at + 1))
        at += 1 + digits(s, at + 1);
    return at - from;
}

/* 2026-11-30, 30.11.2026, 11/30/26 */
static size_t date_of_numbers(str s, size_t from)
{
    size_t a = digits(s, from), b = digits(s, from + a + 1), c = digits(s, from + a + b + 2);
    char sign = byte_at(s, from + a);
    bool is_sign = sign == '-' || sign == '/' || sign == '.';
    bool fits = a >= 1 && a <= 4 && b >= 1 && b <= 2 && c >= 1 && c <= 4 && (a == 4 || c >= 2);
    return is_sign && fits && byte_at(s, from + a + 1 + b) == sign ? a + b + c + 2 : 0;
}

/* November 30, 2026; 30 November 2026; Monday. */
static size_t date_of_names(str s, size_t from)
{
    size_t at = from, day = digits(s, at);
    if (day > 2)
        return 0;
    at += day ? day + 1 : 0;
    size_t name = name_of_day(s, at);
    if (!name)
        return 0;
    at += name;
    for (int i = 0; i < 2; i++) { /* day and year, or the year */
        size_t gap = byte_at(s, at) == ',' ? 2 : 1;
        if (!is_blank(byte_at(s, at + gap - 1)) || !digits(s, at + gap))
            break;
        at += gap + digits(s, at + gap);
    }
    return at - from;
}

/* Seconds or milliseconds since 1970, of the years 2001 to 2033. */
static size_t unix_time(str s, size_t from)
{
    size_t n = digits(s, from);
    return (n == 10 || n == 13) && byte_at(s, from) == '1' ? n : 0;
}

static bool is_time(str s, size_t at)
{
    static size_t (*const forms[])(str, size_t) = {time_of_day, date_of_numbers, date_of_names,
                                                   unix_time};
    for (size_t from = at > MISS_BACK ? at - MISS_BACK : 0; from <= at && from < s.len; from++) {
        if (from && is_digit(s.p[from - 1]))
            continue;
        for (size_t k = 0; k < countof(forms); k++)
            if (from + forms[k](s, from) > at)
                return true;
    }
    return false;
}

/* --- numbers and words --------------------------------------------------------------------- */

struct run {
    size_t from, to;
};

static struct run run_of(str s, size_t at, bool (*is)(char))
{
    struct run r = {at, at};
    while (r.from > 0 && is(s.p[r.from - 1]))
        r.from--;
    while (r.to < s.len && is(s.p[r.to]))
        r.to++;
    return r;
}

static bool goes_on(const struct miss_texts *t, size_t was, size_t now)
{
    return str_eq(str_sub(t->was, was, MISS_AGAIN), str_sub(t->now, now, MISS_AGAIN));
}

static bool is_counter(const struct miss_texts *t)
{
    struct run was = run_of(t->was, t->at, is_digit), now = run_of(t->now, t->at, is_digit);
    size_t a = was.to - was.from, b = now.to - now.from;
    return a && b && a <= MISS_DIGITS_MAX && b <= MISS_DIGITS_MAX && goes_on(t, was.to, now.to);
}

static bool has_digit(str s, struct run r)
{
    for (size_t i = r.from; i < r.to; i++)
        if (is_digit(s.p[i]))
            return true;
    return false;
}

static bool is_nonce(const struct miss_texts *t)
{
    struct run was = run_of(t->was, t->at, is_word), now = run_of(t->now, t->at, is_word);
    size_t len = was.to - was.from;
    return len >= MISS_WORD_MIN && len == now.to - now.from && goes_on(t, was.to, now.to) &&
           (has_digit(t->was, was) || has_digit(t->now, now));
}

/* --- objects ------------------------------------------------------------------------------- */

/* The object that begins at `from`, or "" if it does not end. */
static str object_at(str s, size_t from)
{
    uint32_t depth = 0;
    bool is_text = false;
    for (size_t i = from; i < s.len; i++) {
        char c = s.p[i];
        if (is_text) {
            i += c == '\\';
            is_text = c != '"';
        } else if (c == '"') {
            is_text = true;
        } else if (c == '{') {
            depth++;
        } else if (c == '}' && --depth == 0) {
            return str_sub(s, from, i + 1 - from);
        }
    }
    return STR("");
}

static bool is_same_bytes(str a, str b)
{
    int32_t counts[256] = {0};
    for (size_t i = 0; i < a.len; i++)
        counts[(uint8_t)a.p[i]] += !is_blank(a.p[i]);
    for (size_t i = 0; i < b.len; i++)
        counts[(uint8_t)b.p[i]] -= !is_blank(b.p[i]);
    for (size_t i = 0; i < countof(counts); i++)
        if (counts[i])
            return false;
    return true;
}

/* Around the difference, from the innermost object outwards. */
static bool is_reserialised(const struct miss_texts *t)
{
    uint32_t closed = 0, tried = 0;
    for (size_t i = t->at; i > 0 && tried < MISS_OBJECTS; i--) {
        char c = t->was.p[i - 1];
        if (c == '}') {
            closed++;
        } else if (c == '{' && closed) {
            closed--;
        } else if (c == '{') {
            str was = object_at(t->was, i - 1), now = object_at(t->now, i - 1);
            if (was.len && now.len && is_same_bytes(was, now))
                return true;
            tried++;
        }
    }
    return false;
}

/* --- reasoning ----------------------------------------------------------------------------- */

static bool has(str s, str what) { return what.len && str_find(s, what) != STR_NONE; }

/* Behind the last opener no closer: the text ends inside reasoning. */
static bool is_thinking(str before, str open, str close)
{
    bool is = false;
    for (size_t i = 0; i < before.len; i++) {
        if (str_starts(str_from(before, i), open))
            is = true;
        else if (str_starts(str_from(before, i), close))
            is = false;
    }
    return is;
}

/* What is read now stood further on in what was read then, behind some reasoning. */
static bool is_reasoning_dropped(const struct miss_texts *t)
{
    str open = str_trim(t->think_open), close = str_trim(t->think_close);
    str was = str_from(t->was, t->at), now = str_sub(str_trim(str_from(t->now, t->at)), 0, 16);
    size_t at = now.len >= 4 ? str_find(was, now) : STR_NONE;
    if (!open.len || !close.len || at == STR_NONE || at == 0)
        return false;
    str gone = str_sub(was, 0, at);
    return has(gone, close) || has(gone, open) || is_thinking(str_sub(t->was, 0, t->at), open,
                                                             close);
}

enum miss_hint miss_hint(const struct miss_texts *t)
{
    if (is_reasoning_dropped(t))
        return MISS_HINT_REASONING_DROPPED;
    if (is_reserialised(t))
        return MISS_HINT_RESERIALISED_CALL;
    if (t->tools_differ)
        return MISS_HINT_TOOLS_CHANGED;
    if (is_time(t->was, t->at) && is_time(t->now, t->at))
        return MISS_HINT_CLOCK;
    if (is_counter(t))
        return MISS_HINT_COUNTER;
    return is_nonce(t) ? MISS_HINT_NONCE : MISS_HINT_NONE;
}
