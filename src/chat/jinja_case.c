#include "chat/jinja_case.h"

static bool in_runs(const struct jinja_case_run *runs, uint32_t count, uint32_t c)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (c > runs[mid].last)
            low = mid + 1;
        else
            high = mid;
    }
    return low < count && c >= runs[low].first;
}

struct case_table {
    const struct jinja_case_range *ranges;
    uint32_t ranges_count;
    const struct jinja_case_long *longs;
    uint32_t longs_count;
};

static struct case_table table_of(enum jinja_case_kind kind)
{
    switch (kind) {
    case JINJA_CASE_LOWER:
        return (struct case_table){jinja_case_data_lower, jinja_case_data_lower_count,
                                   jinja_case_data_lower_long, jinja_case_data_lower_long_count};
    case JINJA_CASE_UPPER:
        return (struct case_table){jinja_case_data_upper, jinja_case_data_upper_count,
                                   jinja_case_data_upper_long, jinja_case_data_upper_long_count};
    case JINJA_CASE_TITLE:
        break;
    }
    return (struct case_table){jinja_case_data_title, jinja_case_data_title_count,
                               jinja_case_data_title_long, jinja_case_data_title_long_count};
}

static uint32_t map_ascii(enum jinja_case_kind kind, uint32_t c)
{
    if (kind == JINJA_CASE_LOWER)
        return c >= 'A' && c <= 'Z' ? c + 32 : c;
    return c >= 'a' && c <= 'z' ? c - 32 : c;
}

uint32_t jinja_case_map(enum jinja_case_kind kind, uint32_t c, uint32_t out[3])
{
    if (c < 0x80) {
        out[0] = map_ascii(kind, c);
        return 1;
    }
    struct case_table t = table_of(kind);
    for (uint32_t i = 0; i < t.longs_count && t.longs[i].from <= c; i++) {
        if (t.longs[i].from != c)
            continue;
        uint32_t n = 0;
        for (; n < 3 && t.longs[i].to[n]; n++)
            out[n] = t.longs[i].to[n];
        return n;
    }
    uint32_t low = 0, high = t.ranges_count;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (c > t.ranges[mid].last)
            low = mid + 1;
        else
            high = mid;
    }
    out[0] = c;
    if (low < t.ranges_count && c >= t.ranges[low].first &&
        (c - t.ranges[low].first) % t.ranges[low].stride == 0)
        out[0] = (uint32_t)((int32_t)c + t.ranges[low].delta);
    return 1;
}

bool jinja_case_is_cased(uint32_t c)
{
    return in_runs(jinja_case_data_cased, jinja_case_data_cased_count, c);
}

bool jinja_case_is_ignorable(uint32_t c)
{
    return in_runs(jinja_case_data_ignorable, jinja_case_data_ignorable_count, c);
}

bool jinja_case_is_blank(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool jinja_case_is_printable(uint32_t c)
{
    if (c < 0x7f)
        return c >= 0x20;
    return !in_runs(jinja_case_data_hidden, jinja_case_data_hidden_count, c);
}
