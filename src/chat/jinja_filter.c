/* The table of filters, and those over one text or value. Sequences: jinja_seq.c; numbers:
 * jinja_number.c; JSON: jinja_json.c. */
#include <string.h>

#include "chat/jinja_case.h"
#include "chat/jinja_eval.h"

static bool self_text(struct jinja_call *c, struct jinja_str *out)
{
    return jinja_eval_str(c->s, c->self, out);
}

/* Argument i as text. */
static bool arg_text(struct jinja_call *c, uint32_t i, struct jinja_str *out)
{
    return jinja_eval_str(c->s, c->arg[i], out);
}

static bool truth_of(const struct jinja_call *c, uint32_t i)
{
    return jinja_call_has(c, i) && jinja_value_truth(c->arg[i]);
}

static bool filter_default(struct jinja_call *c, struct jinja_value *out)
{
    bool use = c->self.kind == JINJA_UNDEFINED || (truth_of(c, 1) && !jinja_value_truth(c->self));
    *out = !use ? c->self : jinja_call_has(c, 0) ? c->arg[0]
                                                 : jinja_value_str((struct jinja_str){0});
    return true;
}

static bool filter_change(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_str s;
    if (!self_text(c, &s))
        return false;
    *out = jinja_value_str(jinja_text_change(c->s->h, s, (enum jinja_change)c->which));
    return true;
}

/* Words of the title filter begin behind blanks, '-' and opening brackets; unlike str.title() the
 * rest of a word stays in small letters whatever it holds. */
static bool is_between_words(str s, size_t at, size_t *len)
{
    uint32_t c;
    *len = str_utf8_decode(str_from(s, at), &c);
    return jinja_case_is_blank(c) || (c && c < 0x80 && strchr("-({[<", (int)c));
}

static bool filter_title(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_str s;
    struct jinja_heap *h = c->s->h;
    if (!self_text(c, &s))
        return false;
    str bytes = jinja_text_bytes(s);
    struct jinja_build b = jinja_text_begin(h);
    for (size_t at = 0, end, len; at < bytes.len && h->stop == JINJA_STOP_NONE; at = end) {
        bool is_between = is_between_words(bytes, at, &len);
        end = at + len;
        struct jinja_str part = jinja_text_cut(s, at, end);
        if (is_between) {
            jinja_text_add_str(&b, part);
            continue;
        }
        jinja_text_add_str(&b, jinja_text_change(h, part, JINJA_CHANGE_UPPER));
        for (at = end; end < bytes.len && !is_between_words(bytes, end, &len);)
            end += len;
        part = jinja_text_cut(s, at, end);
        jinja_text_add_str(&b, jinja_text_change(h, part, JINJA_CHANGE_LOWER));
    }
    *out = jinja_value_str(jinja_text_end(&b));
    return true;
}

static bool filter_trim(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_str s, chars = {0};
    bool has_chars = jinja_call_has(c, 0) && c->arg[0].kind != JINJA_NONE;
    if (!self_text(c, &s) || (has_chars && !arg_text(c, 0, &chars)))
        return false;
    str set = has_chars ? jinja_text_bytes(chars) : (str){NULL, 0};
    *out = jinja_value_str(jinja_text_strip(c->s->h, s, set, JINJA_SIDE_BOTH));
    return true;
}

static bool filter_replace(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_str s, old, with;
    int64_t count = -1;
    if (!self_text(c, &s) || !arg_text(c, 0, &old) || !arg_text(c, 1, &with))
        return false;
    if (jinja_call_has(c, 2) && c->arg[2].kind != JINJA_NONE && !jinja_op_int(c->arg[2], &count))
        return jinja_eval_fail(c->s, ERR_FORMAT, "'replace': an integer expected as count");
    *out = jinja_value_str(
        jinja_text_replace(c->s->h, s, jinja_text_bytes(old), with, count));
    return true;
}

static bool filter_string(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_str s;
    bool ok = self_text(c, &s);
    *out = jinja_value_str(s);
    return ok;
}

/* Nothing is ever escaped here, so safe text is text. */
static bool filter_safe(struct jinja_call *c, struct jinja_value *out)
{
    return filter_string(c, out);
}

static bool filter_length(struct jinja_call *c, struct jinja_value *out)
{
    size_t len;
    bool ok = jinja_eval_len(c->s, c->self, &len);
    *out = jinja_value_int((int64_t)len);
    return ok;
}

static bool indent_of(struct jinja_call *c, struct jinja_str *out)
{
    int64_t width = 4;
    if (jinja_call_has(c, 0) && c->arg[0].kind == JINJA_STRING) {
        *out = c->arg[0].u.s;
        return true;
    }
    if (jinja_call_has(c, 0) && !jinja_op_int(c->arg[0], &width))
        return jinja_eval_fail(c->s, ERR_FORMAT, "'indent': an integer or a string expected as "
                               "width");
    struct jinja_build b = jinja_text_begin(c->s->h);
    for (int64_t i = 0; i < width && c->s->h->stop == JINJA_STOP_NONE; i++)
        jinja_text_add(&b, STR(" "), 0);
    *out = jinja_text_end(&b);
    return jinja_eval_ok(c->s);
}

/* Lines are joined by "\n" whatever ended them; the first keeps its place unless first is set, and
 * empty ones theirs unless blank is. A newline at the end makes no line. */
static bool filter_indent(struct jinja_call *c, struct jinja_value *out)
{
    struct jinja_str s, indent, line;
    if (c->self.kind != JINJA_STRING)
        return jinja_eval_fail(c->s, ERR_FORMAT, "'indent': a string expected, not '%s'",
                               jinja_value_type(c->self));
    if (!self_text(c, &s) || !indent_of(c, &indent))
        return false;
    struct jinja_build b = jinja_text_begin(c->s->h);
    bool first = truth_of(c, 1), blank = truth_of(c, 2), is_first = true, more = true;
    jinja_text_add_str(&b, first ? indent : (struct jinja_str){0});
    struct jinja_str all = jinja_text_concat(c->s->h, s, jinja_text_of(c->s->h, STR("\n"), 0));
    for (uint32_t at = 0; more && c->s->h->stop == JINJA_STOP_NONE; is_first = false) {
        uint32_t start = at, end;
        more = jinja_text_line(all, &at, false, &line);
        if (!more)
            break;
        if (!is_first) {
            jinja_text_add(&b, STR("\n"), start ? jinja_text_origin(all, start - 1, &end) : 0);
            if (line.len || blank)
                jinja_text_add_str(&b, indent);
        }
        jinja_text_add_str(&b, line);
    }
    *out = jinja_value_str(jinja_text_end(&b));
    return true;
}

/* Sorted by nothing but sense; a template's compiler looks rows up once per use. */
static const struct jinja_callee rows[] = {
    {"default", "default_value boolean", 0, filter_default, 0},
    {"d", "default_value boolean", 0, filter_default, 0},
    {"lower", "", 0, filter_change, JINJA_CHANGE_LOWER},
    {"upper", "", 0, filter_change, JINJA_CHANGE_UPPER},
    {"capitalize", "", 0, filter_change, JINJA_CHANGE_CAPITALIZE},
    {"title", "", 0, filter_title, 0},
    {"trim", "chars", 0, filter_trim, 0},
    {"replace", "old new count", 2, filter_replace, 0},
    {"string", "", 0, filter_string, 0},
    {"safe", "", 0, filter_safe, 0},
    {"length", "", 0, filter_length, 0},
    {"count", "", 0, filter_length, 0},
    {"indent", "width first blank", 0, filter_indent, 0},
    {"first", "", 0, jinja_seq_first, 0},
    {"last", "", 0, jinja_seq_last, 0},
    {"join", "d attribute", 0, jinja_seq_join, 0},
    {"list", "", 0, jinja_seq_list, 0},
    {"items", "", 0, jinja_seq_items, 0},
    {"unique", "case_sensitive attribute", 0, jinja_seq_unique, 0},
    {"map", "...", 0, jinja_seq_map, 0},
    {"select", "...", 0, jinja_seq_select, 0},
    {"reject", "...", 0, jinja_seq_select, 1},
    {"selectattr", "...", 0, jinja_seq_select, 2},
    {"rejectattr", "...", 0, jinja_seq_select, 3},
    {"sort", "reverse case_sensitive attribute", 0, jinja_seq_sort, 0},
    {"dictsort", "case_sensitive by reverse", 0, jinja_seq_dictsort, 0},
    {"min", "case_sensitive attribute", 0, jinja_seq_extreme, 0},
    {"max", "case_sensitive attribute", 0, jinja_seq_extreme, 1},
    {"sum", "attribute start", 0, jinja_seq_sum, 0},
    {"reverse", "", 0, jinja_seq_reverse, 0},
    {"int", "default base", 0, jinja_number_int, 0},
    {"float", "default", 0, jinja_number_float, 0},
    {"round", "precision method", 0, jinja_number_round, 0},
    {"abs", "", 0, jinja_number_abs, 0},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, jinja_json_dump, 0},
    {"from_json", "", 0, jinja_json_load, 0},
};

int32_t jinja_filter_row(str name)
{
    for (size_t i = 0; i < countof(rows); i++)
        if (str_eq_z(name, rows[i].name))
            return (int32_t)i;
    return -1;
}

bool jinja_filter_run(struct jinja_state *s, int32_t row, struct jinja_value self,
                      const struct jinja_args *args, struct jinja_value *out)
{
    must(row >= 0 && (size_t)row < countof(rows));
    return jinja_eval_call(s, &rows[row], self, args, out);
}
