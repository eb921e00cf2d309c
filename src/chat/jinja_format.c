/* str.format: "{}", "{0}", "{name.attr[key]!r:spec}", with the common part of Python's format
 * specification: [[fill]align][sign][#][0][width][,][.precision][type]. Nested fields, and the
 * types that depend on a locale, are refused by name. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "chat/jinja_eval.h"

#define WIDTH_MAX 4096

struct spec {
    str fill;
    char align, sign, type, group;
    bool alternate;
    int64_t width, precision; /* -1: none */
};

struct format {
    struct jinja_call *c;
    struct jinja_build b;
    uint32_t automatic; /* number of the next "{}" */
    uint32_t origin;    /* of what is put in */
};

static bool refuse(struct format *f, enum err_code code, const char *what)
{
    return jinja_eval_fail(f->c->s, code, "'format': %s", what);
}

static int64_t read_number(str s, size_t *at)
{
    int64_t n = -1;
    for (; *at < s.len && isdigit((uint8_t)s.p[*at]); (*at)++)
        n = (n < 0 ? 0 : n) * 10 + (s.p[*at] - '0') > WIDTH_MAX
                ? WIDTH_MAX + 1 : (n < 0 ? 0 : n) * 10 + (s.p[*at] - '0');
    return n;
}

/* [[fill]align][sign][#][0]: bytes read. */
static size_t read_flags(str s, struct spec *out)
{
    uint32_t code;
    size_t at = 0, len = s.len ? str_utf8_decode(s, &code) : 0;
    if (len && len < s.len && strchr("<>^=", s.p[len])) {
        out->fill = str_sub(s, 0, len);
        at = len;
    }
    if (at < s.len && strchr("<>^=", s.p[at]))
        out->align = s.p[at++];
    if (at < s.len && strchr("+- ", s.p[at]))
        out->sign = s.p[at++];
    if (at < s.len && s.p[at] == '#')
        out->alternate = s.p[at++] == '#';
    if (at < s.len && s.p[at] == '0') {
        at++;
        if (out->align == 0) {
            out->fill = STR("0");
            out->align = '=';
        }
    }
    return at;
}

static bool read_spec(struct format *f, str s, struct spec *out)
{
    *out = (struct spec){.fill = STR(" "), .width = -1, .precision = -1};
    size_t at = read_flags(s, out);
    out->width = read_number(s, &at);
    if (at < s.len && (s.p[at] == ',' || s.p[at] == '_'))
        out->group = s.p[at++];
    if (at < s.len && s.p[at] == '.') {
        at++;
        out->precision = read_number(s, &at);
        if (out->precision < 0)
            return refuse(f, ERR_FORMAT, "a precision is missing");
    }
    if (at < s.len)
        out->type = s.p[at++];
    if (at < s.len || (out->type && !strchr("sdxXobeEfFgG%", out->type)))
        return refuse(f, ERR_UNSUPPORTED, "this format specification is not supported");
    if (out->width > WIDTH_MAX || out->precision > WIDTH_MAX)
        return refuse(f, ERR_LIMIT, "a width or precision beyond 4096");
    return true;
}

/* body behind its sign, filled up to the width. */
static void padded(struct format *f, const struct spec *p, str sign, struct jinja_str body,
                   char align)
{
    size_t len = jinja_text_length(f->b.h, body) + sign.len;
    size_t space = p->width > (int64_t)len ? (size_t)p->width - len : 0;
    size_t before = align == '^' ? space / 2 : align == '<' ? 0 : space;
    for (size_t i = 0; i < before && align != '='; i++)
        jinja_text_add(&f->b, p->fill, f->origin);
    jinja_text_add(&f->b, sign, f->origin);
    for (size_t i = 0; i < before && align == '='; i++)
        jinja_text_add(&f->b, p->fill, f->origin);
    jinja_text_add_str(&f->b, body);
    for (size_t i = before; i < space; i++)
        jinja_text_add(&f->b, p->fill, f->origin);
}

/* Digits before the point or exponent in groups of three (hexadecimal and binary: four). */
static size_t grouped(char *out, size_t size, const char *digits, char separator, size_t group)
{
    size_t whole = strspn(digits, "0123456789abcdefABCDEF"), n = 0;
    for (size_t i = 0; digits[i] && n + 2 < size; i++) {
        if (i && i < whole && (whole - i) % group == 0)
            out[n++] = separator;
        out[n++] = digits[i];
    }
    out[n] = 0;
    return n;
}

static bool put_digits(struct format *f, const struct spec *p, bool is_negative,
                       const char *prefix, const char *digits)
{
    char text[512], sign[8];
    size_t group = strchr("xXob", p->type) && p->type ? 4 : 3, n;
    if (p->group && p->fill.p[0] == '0' && p->align == '=')
        return refuse(f, ERR_UNSUPPORTED, "zeros with groups are not supported");
    if (p->group)
        n = grouped(text, sizeof text, digits, p->group, group);
    else
        n = (size_t)snprintf(text, sizeof text, "%s", digits);
    if (n >= sizeof text - 2)
        return refuse(f, ERR_LIMIT, "a number of more than 500 characters");
    snprintf(sign, sizeof sign, "%s%s", is_negative ? "-" : p->sign == '+' ? "+"
             : p->sign == ' ' ? " " : "", prefix);
    struct jinja_build b = jinja_text_begin(f->b.h);
    jinja_text_add(&b, (str){text, n}, f->origin);
    padded(f, p, str_of(sign), jinja_text_end(&b), p->align ? p->align : '>');
    return true;
}

static bool put_int(struct format *f, const struct spec *p, int64_t i)
{
    char digits[80];
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    const char *prefix = "";
    if (p->precision >= 0)
        return refuse(f, ERR_FORMAT, "an integer takes no precision");
    if (p->type == 'x' || p->type == 'X' || p->type == 'o')
        snprintf(digits, sizeof digits, p->type == 'x' ? "%lx" : p->type == 'X' ? "%lX" : "%lo",
                 (unsigned long)u);
    else if (p->type != 'b')
        snprintf(digits, sizeof digits, "%lu", (unsigned long)u);
    else {
        size_t n = 0;
        for (int bit = 63; bit >= 0; bit--)
            if (n || u >> bit & 1 || bit == 0)
                digits[n++] = (char)('0' + (u >> bit & 1));
        digits[n] = 0;
    }
    if (p->alternate)
        prefix = p->type == 'x' ? "0x" : p->type == 'X' ? "0X" : p->type == 'o' ? "0o"
                 : p->type == 'b' ? "0b" : "";
    return put_digits(f, p, i < 0, prefix, digits);
}

static bool put_float(struct format *f, const struct spec *p, double v)
{
    char digits[512], layout[8] = "%.*f";
    bool is_negative = signbit(v) && !isnan(v);
    int precision = p->precision < 0 ? 6 : (int)base_min((size_t)p->precision, 300), n;
    v = fabs(v);
    if (p->alternate)
        return refuse(f, ERR_UNSUPPORTED, "'#' for a float is not supported");
    if (!isfinite(v)) {
        snprintf(digits, sizeof digits, "%s", isnan(v) ? "nan" : "inf");
    } else if (p->type == 0 && p->precision < 0) {
        digits[jinja_print_float(digits, v)] = 0;
    } else if (p->type == 0) {
        return refuse(f, ERR_UNSUPPORTED, "a precision without a type is not supported");
    } else {
        layout[3] = p->type == '%' ? 'f' : p->type;
        if (strchr("gG", p->type) && precision == 0)
            precision = 1;
        n = snprintf(digits, sizeof digits - 2, layout, precision, p->type == '%' ? v * 100 : v);
        if (n < 0 || (size_t)n >= sizeof digits - 2)
            return refuse(f, ERR_LIMIT, "a number of more than 500 characters");
        if (p->type == '%')
            snprintf(digits + n, 2, "%%");
    }
    return put_digits(f, p, is_negative, "", digits);
}

static bool put_text(struct format *f, const struct spec *p, struct jinja_str s)
{
    if (p->sign || p->group || p->alternate || p->align == '=' || (p->type && p->type != 's'))
        return refuse(f, ERR_FORMAT, "this specification does not suit a string");
    if (p->precision >= 0) {
        int64_t len = (int64_t)jinja_text_length(f->b.h, s);
        s = jinja_text_slice(f->b.h, s, 0, p->precision < len ? p->precision : len, 1);
    }
    padded(f, p, STR(""), s, p->align ? p->align : '<');
    return true;
}

static bool put_value(struct format *f, struct jinja_value v, str conversion, str text)
{
    struct spec spec;
    struct jinja_str s;
    int64_t i = 0;
    if (conversion.len && !str_eq_z(conversion, "s") && !str_eq_z(conversion, "r"))
        return refuse(f, ERR_UNSUPPORTED, "only the conversions !s and !r are supported");
    if (str_eq_z(conversion, "r")) {
        struct jinja_build b = jinja_text_begin(f->b.h);
        if (!jinja_print_repr(&b, v))
            return refuse(f, ERR_LIMIT, "the value nests too deep");
        v = jinja_value_str(jinja_text_end(&b));
    } else if (conversion.len && !jinja_eval_str(f->c->s, v, &s)) {
        return false;
    } else if (conversion.len) {
        v = jinja_value_str(s);
    }
    if (text.len == 0)
        return jinja_print_str(&f->b, v) || refuse(f, ERR_LIMIT, "the value nests too deep");
    f->origin = v.kind == JINJA_STRING ? jinja_text_taint(v.u.s) : v.origin;
    if (!read_spec(f, text, &spec))
        return false;
    if (v.kind == JINJA_STRING)
        return put_text(f, &spec, v.u.s);
    bool is_int = jinja_op_int(v, &i), wants_float = spec.type && strchr("eEfFgG%", spec.type);
    if (v.kind == JINJA_FLOAT || (is_int && wants_float)) {
        if (spec.type && !wants_float)
            return refuse(f, ERR_FORMAT, "this specification does not suit a float");
        return put_float(f, &spec, is_int ? (double)i : v.u.f);
    }
    if (v.kind == JINJA_BOOL && spec.type == 0)
        return refuse(f, ERR_UNSUPPORTED, "a boolean needs a type, as in {:d}");
    if (is_int && spec.type != 's')
        return put_int(f, &spec, i);
    return refuse(f, ERR_FORMAT, "this value takes no specification");
}

/* The argument that "0", "name" or "" stands for. */
static bool argument(struct format *f, str name, struct jinja_value *out)
{
    const struct jinja_args *args = f->c->args;
    int64_t number;
    if (name.len == 0 || str_to_i64(name, &number)) {
        if (name.len == 0)
            number = f->automatic++;
        if (number < 0 || number >= args->plain_count)
            return refuse(f, ERR_FORMAT, "there are fewer arguments than fields");
        *out = args->plain[number];
        return true;
    }
    for (uint32_t i = 0; i < args->named_count; i++)
        if (str_eq(args->named[i].name, name)) {
            *out = args->named[i].value;
            return true;
        }
    return refuse(f, ERR_FORMAT, "a field names no argument");
}

static size_t word_len(str s, const char *ends)
{
    size_t n = 0;
    while (n < s.len && !(s.p[n] && strchr(ends, s.p[n])))
        n++;
    return n;
}

/* name.attr[key]: one step after the other, as the sandbox looks attributes up. */
static bool field_value(struct format *f, str field, struct jinja_value *out)
{
    size_t at = word_len(field, ".[");
    if (!argument(f, str_sub(field, 0, at), out))
        return false;
    while (at < field.len) {
        bool is_item = field.p[at] == '[';
        str rest = str_from(field, at + 1);
        size_t len = word_len(rest, is_item ? "]" : ".[");
        str key = str_sub(rest, 0, len);
        int64_t number;
        if (key.len == 0 || (is_item && len == rest.len))
            return refuse(f, ERR_FORMAT, "a field ends early");
        at += 1 + len + is_item;
        struct jinja_value index = str_to_i64(key, &number) ? jinja_value_int(number)
                                                            : jinja_value_text(f->b.h, key, 0);
        if (is_item ? !jinja_eval_item(f->c->s, *out, index, out)
                    : !jinja_eval_attr(f->c->s, *out, key, out))
            return false;
    }
    return true;
}

static bool put_field(struct format *f, str field)
{
    struct jinja_value v;
    size_t colon = word_len(field, ":"), bang = word_len(str_sub(field, 0, colon), "!");
    str conversion = str_sub(field, bang + 1, colon > bang ? colon - bang - 1 : 0);
    if (str_find_byte(field, '{') != STR_NONE)
        return refuse(f, ERR_UNSUPPORTED, "fields inside fields are not supported");
    if (bang < colon && conversion.len == 0)
        return refuse(f, ERR_FORMAT, "a conversion is missing behind '!'");
    return field_value(f, str_sub(field, 0, bang), &v) &&
           put_value(f, v, conversion, str_from(field, colon + 1));
}

bool jinja_format_method(struct jinja_call *c, struct jinja_value *out)
{
    struct format f = {.c = c, .b = jinja_text_begin(c->s->h)};
    struct jinja_str s = c->self.u.s;
    str text = jinja_text_bytes(s);
    for (size_t at = 0; at < text.len && c->s->h->stop == JINJA_STOP_NONE;) {
        size_t plain = word_len(str_from(text, at), "{}");
        jinja_text_charge(c->s->h, 1);
        jinja_text_add_str(&f.b, jinja_text_cut(s, at, at + plain));
        at += plain;
        if (at == text.len)
            break;
        if (at + 1 < text.len && text.p[at + 1] == text.p[at]) {
            jinja_text_add_str(&f.b, jinja_text_cut(s, at, at + 1));
            at += 2;
            continue;
        }
        size_t len = word_len(str_from(text, at + 1), "}");
        if (text.p[at] == '}' || at + 1 + len >= text.len)
            return refuse(&f, ERR_FORMAT, "a single '{' or '}'");
        if (!put_field(&f, str_sub(text, at + 1, len)))
            return false;
        at += len + 2;
    }
    *out = jinja_value_str(jinja_text_end(&f.b));
    return true;
}
