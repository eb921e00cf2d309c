#include "serve/normalise.h"

#include <string.h>

static char at(str s, size_t i) { return i < s.len ? s.p[i] : 0; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Two digits below `below`. */
static bool is_pair(str s, size_t i, int below)
{
    return is_digit(at(s, i)) && is_digit(at(s, i + 1)) &&
           (at(s, i) - '0') * 10 + at(s, i + 1) - '0' < below;
}

/* What may stand before a time: nothing that makes it a longer number, a word, an address; but the
 * T of 2026-11-30T14:41. */
static bool may_begin(str s, size_t i)
{
    char before = i ? s.p[i - 1] : ' ';
    bool is_iso = before == 'T' && i > 1 && is_digit(s.p[i - 2]);
    return is_iso || !(is_digit(before) || is_letter(before) || strchr(":._", before));
}

/* Length of " AM", "pm" and the like, or 0. */
static size_t half_of_day(str s, size_t i)
{
    size_t gap = at(s, i) == ' ';
    char half = at(s, i + gap), m = at(s, i + gap + 1);
    bool is = half && strchr("AaPp", half) && (m == 'm' || m == 'M');
    return is && !is_letter(at(s, i + gap + 2)) ? gap + 2 : 0;
}

/* H:MM, HH:MM:SS, HH:MM:SS.fff: its length, or 0. */
static size_t time_of_day(str s, size_t i)
{
    size_t hour = is_pair(s, i, 24) ? 2 : is_digit(at(s, i)) && at(s, i + 1) == ':' ? 1 : 0;
    size_t end = i + hour;
    if (!hour || !may_begin(s, i) || at(s, end) != ':' || !is_pair(s, end + 1, 60))
        return 0;
    end += 3;
    if (at(s, end) == ':' && is_pair(s, end + 1, 61)) {
        end += 3;
        if (at(s, end) == '.' && is_digit(at(s, end + 1)))
            for (end++; is_digit(at(s, end));)
                end++;
    }
    char behind = at(s, end);
    bool ends = !is_digit(behind) && behind != ':' && behind != '_' &&
                (!is_letter(behind) || behind == 'Z' || half_of_day(s, end));
    return ends ? end - i : 0;
}

static void round_time(char *p, size_t len, size_t half)
{
    for (size_t i = 0; i < len; i++)
        if (is_digit(p[i]))
            p[i] = '0';
    for (size_t i = len; i < len + half; i++)
        p[i] = p[i] == 'P' ? 'A' : p[i] == 'p' ? 'a' : p[i];
}

static uint32_t count_times(str s)
{
    uint32_t count = 0;
    for (size_t i = 0, len; i < s.len; i += len ? len : 1) {
        len = time_of_day(s, i);
        count += len > 0;
    }
    return count;
}

static bool round_part(struct api_part *p, struct arena *a)
{
    char *text = arena_alloc_text(a, p->text.len + 1);
    if (!text)
        return false;
    memcpy(text, p->text.p, p->text.len);
    for (size_t i = 0, len; i < p->text.len; i += len ? len : 1) {
        len = time_of_day(p->text, i);
        if (len)
            round_time(text + i, len, half_of_day(p->text, i + len));
    }
    p->text.p = text;
    return true;
}

/* Counts first: most texts have no time and are not copied. */
static uint32_t round_message(struct api_message *m, struct arena *a)
{
    uint32_t sum = 0;
    struct api_part *parts = NULL;
    for (uint32_t i = 0; i < m->parts_count; i++) {
        uint32_t count = m->parts[i].kind == API_PART_TEXT ? count_times(m->parts[i].text) : 0;
        if (!count)
            continue;
        if (!parts) {
            parts = ARENA_ARRAY(a, struct api_part, m->parts_count);
            if (!parts)
                return sum;
            memcpy(parts, m->parts, m->parts_count * sizeof *parts);
            m->parts = parts;
        }
        if (!round_part(&parts[i], a))
            return sum;
        sum += count;
    }
    return sum;
}

static bool is_ours(const struct api_message *m)
{
    if (m->role != API_ROLE_SYSTEM && m->role != API_ROLE_DEVELOPER)
        return false;
    for (uint32_t i = 0; i < m->parts_count; i++)
        if (m->parts[i].kind == API_PART_TEXT && count_times(m->parts[i].text))
            return true;
    return false;
}

uint32_t normalise_clock(struct api_request *rq, struct arena *a)
{
    struct api_message *own = NULL;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < rq->messages_count; i++) {
        if (!is_ours(&rq->messages[i]))
            continue;
        if (!own) {
            own = ARENA_ARRAY(a, struct api_message, rq->messages_count);
            if (!own)
                return 0;
            memcpy(own, rq->messages, rq->messages_count * sizeof *own);
            rq->messages = own;
        }
        sum += round_message(&own[i], a);
    }
    return sum;
}
