#include "cli/config_spec.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/file.h"
#include "cli/config.h"

#define CONFIG_SPEC_SHOWN 40 /* bytes of a wrong value in a message */

static bool config_spec_has_word(const char *words, str text)
{
    str rest = str_of(words), word;
    while (str_split(&rest, ' ', &word))
        if (str_eq(word, text))
            return true;
    return false;
}

/* "auto, off or " before the type's own wish. */
static void config_spec_add_words(struct buf *out, const char *words, const char *last)
{
    str rest = str_of(words), word;
    for (bool is_first = true; str_split(&rest, ' ', &word); is_first = false) {
        const char *between = is_first ? "" : rest.len == 0 && !last ? " or " : ", ";
        buf_printf(out, "%s%.*s", between, STR_ARG(word));
    }
    if (last)
        buf_printf(out, "%s%s", words ? " or " : "", last);
}

static const char *config_spec_wish(const struct config_spec *s, char *text, size_t size)
{
    switch (s->type) {
    case CONFIG_TYPE_WORD:
        return NULL;
    case CONFIG_TYPE_BOOL:
        return "true or false";
    case CONFIG_TYPE_INT:
        snprintf(text, size, "integer %lld..%lld", (long long)s->min, (long long)s->max);
        return text;
    case CONFIG_TYPE_REAL:
        snprintf(text, size, "number %lld..%lld", (long long)s->min, (long long)s->max);
        return text;
    case CONFIG_TYPE_DURATION:
        return "duration such as 300ms, 10s, 5m, 1h30m";
    case CONFIG_TYPE_SIZE:
        return "size such as 512MiB, 4G";
    case CONFIG_TYPE_TEXT:
        return "text";
    case CONFIG_TYPE_PATH:
        return "path";
    case CONFIG_TYPE_LIST:
    case CONFIG_TYPE_PATHS:
        return "list of texts";
    case CONFIG_TYPE_MAP:
        return "map of texts";
    case CONFIG_TYPE_SECTION:
        return "section";
    }
    return NULL;
}

bool config_spec_refuse(const struct config_spec *s, const char *got, str text, struct err *e)
{
    char range[64];
    struct buf b;
    buf_init(&b, 1024);
    config_spec_add_words(&b, s->words, config_spec_wish(s, range, sizeof range));
    buf_add_z(&b, " expected, got ");
    if (got) {
        buf_add_z(&b, got);
    } else {
        str shown = str_sub(text, 0, CONFIG_SPEC_SHOWN);
        shown.len = str_utf8_complete(shown);
        buf_printf(&b, "\"%.*s%s\"", STR_ARG(shown), shown.len < text.len ? "..." : "");
    }
    err_set(e, ERR_CONFIG, "%s", b.p ? b.p : "no memory");
    buf_deinit(&b);
    return false;
}

static bool config_spec_in_range(const struct config_spec *s, double v)
{
    if (s->min == 0 && s->max == 0)
        return true;
    return v >= (double)s->min && v <= (double)s->max;
}

static bool config_spec_parse_number(const struct config_spec *s, str text,
                                     struct config_value *out)
{
    uint64_t size;
    switch (s->type) {
    case CONFIG_TYPE_BOOL:
        out->number = str_eq_z(text, "true");
        return out->number || str_eq_z(text, "false");
    case CONFIG_TYPE_INT:
        return str_to_i64(text, &out->number) && config_spec_in_range(s, (double)out->number);
    case CONFIG_TYPE_REAL:
        return str_to_double(text, &out->real) && config_spec_in_range(s, out->real);
    case CONFIG_TYPE_DURATION:
        return str_to_duration_ms(text, &out->number) &&
               config_spec_in_range(s, (double)out->number);
    case CONFIG_TYPE_SIZE:
        if (!str_to_size(text, &size) || size > INT64_MAX)
            return false;
        out->number = (int64_t)size;
        return config_spec_in_range(s, (double)size);
    case CONFIG_TYPE_WORD:
    case CONFIG_TYPE_MAP:
    case CONFIG_TYPE_SECTION:
        return false;
    case CONFIG_TYPE_TEXT:
    case CONFIG_TYPE_PATH:
    case CONFIG_TYPE_LIST:
    case CONFIG_TYPE_PATHS:
        return true;
    }
    return false;
}

bool config_spec_path(str *out, str text, struct arena *a, struct err *e)
{
    *out = file_expand_home(a, text, config_home(a));
    return out->len || !text.len || a->is_full ||
           err_set(e, ERR_CONFIG, "%.*s: there is no home directory that ~ could stand for",
                   STR_ARG(text));
}

bool config_spec_parse(const struct config_spec *s, str text, struct arena *a,
                       struct config_value *out, struct err *e)
{
    *out = (struct config_value){.is_set = true, .source = out->source};
    out->is_word = config_spec_has_word(s->words, text);
    bool is_path = s->type == CONFIG_TYPE_PATH || s->type == CONFIG_TYPE_PATHS;
    if (!out->is_word && !config_spec_parse_number(s, text, out))
        return config_spec_refuse(s, NULL, text, e);
    if (text.len == 0 && is_path)
        return config_spec_refuse(s, NULL, text, e);
    if (!is_path || out->is_word)
        out->text = arena_copy(a, text);
    else if (!config_spec_path(&out->text, text, a, e))
        return false;
    if (s->type == CONFIG_TYPE_LIST || s->type == CONFIG_TYPE_PATHS) {
        str *item = ARENA_NEW(a, str);
        if (item)
            *item = out->text;
        out->items = item;
        out->items_count = 1;
    }
    return !a->is_full || err_set(e, ERR_MEMORY, "the configuration is too large");
}
