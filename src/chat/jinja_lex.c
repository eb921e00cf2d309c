/* Source to tokens. The grammar of tags, numbers and strings and the rules of whitespace control
 * are those of Jinja2 3.1's lexer with trim_blocks and lstrip_blocks:
 * - before "{%-", "{{-", "{#-" all blanks go; before "{%" and "{#" (not "{{", not with "+") those
 *   between the line's start and the tag;
 * - after "-%}", "-}}", "-#}" all blanks go; after "%}" and "#}" (not with "+") one newline. */
#include <string.h>

#include "base/buf.h"
#include "chat/jinja_ast.h"
#include "chat/jinja_case.h"

static bool fail(struct jinja_lexer *l, struct err *e, const char *what)
{
    return err_set(e, ERR_FORMAT, "template line %u: %s", l->line, what);
}

static str rest_of(const struct jinja_lexer *l) { return str_from(l->source, l->pos); }

static bool at_text(const struct jinja_lexer *l, const char *text)
{
    return str_starts(rest_of(l), str_of(text));
}

static void advance(struct jinja_lexer *l, size_t len)
{
    for (size_t i = 0; i < len; i++)
        l->line += l->source.p[l->pos + i] == '\n';
    l->pos += len;
}

/* Length of the blanks at the start or end of s, Unicode ones included. */
static size_t blanks_ahead(str s)
{
    size_t at = 0, len;
    uint32_t c;
    while (at < s.len && (len = str_utf8_decode(str_from(s, at), &c)) != 0 &&
           jinja_case_is_blank(c))
        at += len;
    return at;
}

static size_t blanks_behind(str s)
{
    size_t end = s.len;
    while (end > 0) {
        size_t at = end - 1;
        uint32_t c;
        while (at > 0 && ((uint8_t)s.p[at] & 0xc0) == 0x80)
            at--;
        if (str_utf8_decode(str_from(s, at), &c) == 0 || !jinja_case_is_blank(c))
            break;
        end = at;
    }
    return s.len - end;
}

bool jinja_lex_init(struct jinja_lexer *l, str source, struct arena *a, struct err *e)
{
    if (source.len > JINJA_SOURCE_MAX)
        return err_set(e, ERR_LIMIT, "template: %zu bytes, at most %zu", source.len,
                       JINJA_SOURCE_MAX);
    size_t valid = str_utf8_valid(source);
    if (valid != source.len)
        return err_set(e, ERR_FORMAT, "template: no valid UTF-8 at byte %zu", valid);
    char *p = arena_alloc(a, source.len + 1);
    if (p == NULL)
        return err_set(e, ERR_LIMIT, "template: out of memory for the source");
    size_t n = 0;
    for (size_t i = 0; i < source.len; i++) {
        if (source.p[i] == '\r' && i + 1 < source.len && source.p[i + 1] == '\n')
            continue;
        p[n++] = source.p[i] == '\r' ? '\n' : source.p[i];
    }
    if (n && p[n - 1] == '\n') /* keep_trailing_newline is off */
        n--;
    *l = (struct jinja_lexer){.source = {p, n}, .line = 1, .inside = JINJA_TOKEN_END,
                              .is_line_start = true, .arena = a};
    return true;
}

/* ---- Outside of tags ---- */

/* "-%}" and the like at the position: its length with what it swallows, or 0. */
static size_t close_len(const struct jinja_lexer *l, const char *close, bool is_print)
{
    str s = rest_of(l);
    size_t sign = s.len && (s.p[0] == '-' || (s.p[0] == '+' && !is_print)) ? 1 : 0;
    if (!str_starts(str_from(s, sign), str_of(close)))
        return 0;
    str after = str_from(s, sign + 2);
    if (sign && s.p[0] == '-')
        return 3 + blanks_ahead(after);
    return sign + 2 + (sign == 0 && !is_print && str_starts(after, STR("\n")));
}

static void closed(struct jinja_lexer *l, size_t len)
{
    advance(l, len);
    l->is_line_start = l->source.p[l->pos - 1] == '\n';
    l->inside = JINJA_TOKEN_END;
}

static bool skip_comment(struct jinja_lexer *l, struct err *e)
{
    size_t start = l->pos, end = str_find(rest_of(l), STR("#}"));
    if (end == STR_NONE)
        return fail(l, e, "a comment is not closed by '#}'");
    if (end > 0 && (l->source.p[start + end - 1] == '-' || l->source.p[start + end - 1] == '+'))
        end--;
    advance(l, end);
    closed(l, close_len(l, "#}", false));
    return true;
}

/* Length of "{% WORD" and the blanks around WORD, when that stands here; *sign becomes its sign. */
static size_t open_word(str s, const char *word, char *sign)
{
    if (!str_starts(s, STR("{%")))
        return 0;
    *sign = s.len > 2 && (s.p[2] == '-' || s.p[2] == '+') ? s.p[2] : 0;
    size_t at = *sign ? 3 : 2;
    at += blanks_ahead(str_from(s, at));
    if (!str_starts(str_from(s, at), str_of(word)))
        return 0;
    at += strlen(word);
    return at + blanks_ahead(str_from(s, at));
}

/* Data before a tag with this sign, without the blanks that the tag takes. */
static str before_tag(const struct jinja_lexer *l, str data, char sign, bool is_print)
{
    if (sign == '-')
        return str_sub(data, 0, data.len - blanks_behind(data));
    if (sign == '+' || is_print)
        return data;
    size_t line = data.len;
    while (line > 0 && data.p[line - 1] != '\n')
        line--;
    if (line == 0 && !l->is_line_start)
        return data;
    str last = str_from(data, line);
    return blanks_ahead(last) == last.len ? str_sub(data, 0, line) : data;
}

static bool raw_data(struct jinja_lexer *l, size_t len, struct jinja_token *t, struct err *e)
{
    char sign = 0;
    advance(l, len);
    closed(l, close_len(l, "%}", false) - str_starts(rest_of(l), STR("%}\n")));
    for (size_t at = 0; at < rest_of(l).len; at++) {
        size_t end = open_word(str_from(rest_of(l), at), "endraw", &sign);
        if (end == 0)
            continue;
        struct jinja_lexer ahead = *l;
        ahead.pos += at + end;
        size_t close = close_len(&ahead, "%}", false);
        if (close == 0)
            continue;
        str data = before_tag(l, str_sub(rest_of(l), 0, at), sign, false);
        *t = (struct jinja_token){JINJA_TOKEN_DATA, l->line, data};
        advance(l, at + end);
        closed(l, close);
        return true;
    }
    return fail(l, e, "'raw' is not closed by '{% endraw %}'");
}

/* Where the next tag begins, or the end. */
static size_t find_tag(str s)
{
    for (size_t at = 0; at + 1 < s.len; at++) {
        const char *p = memchr(s.p + at, '{', s.len - at - 1);
        if (p == NULL)
            break;
        at = (size_t)(p - s.p);
        if (p[1] == '%' || p[1] == '{' || p[1] == '#')
            return at;
    }
    return s.len;
}

/* Data up to the next tag; the tag itself is left for the next call. */
static bool outside(struct jinja_lexer *l, struct jinja_token *t, struct err *e)
{
    if (l->pos >= l->source.len) {
        *t = (struct jinja_token){JINJA_TOKEN_END, l->line, {NULL, 0}};
        return true;
    }
    if (!l->is_pending) {
        str s = rest_of(l);
        size_t len = find_tag(s);
        char sign = len + 2 < s.len && (s.p[len + 2] == '-' || s.p[len + 2] == '+')
                        ? s.p[len + 2] : 0;
        str data = str_sub(s, 0, len);
        if (len < s.len)
            data = before_tag(l, data, sign, s.p[len + 1] == '{');
        *t = (struct jinja_token){JINJA_TOKEN_DATA, l->line, data};
        advance(l, len);
        l->is_pending = true;
        return true;
    }
    l->is_pending = false;
    char sign = 0;
    size_t len = open_word(rest_of(l), "raw", &sign);
    struct jinja_lexer ahead = *l;
    ahead.pos += len;
    if (len && close_len(&ahead, "%}", false) && !str_starts(rest_of(&ahead), STR("+")))
        return raw_data(l, len, t, e);
    char kind = l->source.p[l->pos + 1];
    *t = (struct jinja_token){kind == '{' ? JINJA_TOKEN_PRINT_BEGIN : JINJA_TOKEN_BLOCK_BEGIN,
                              l->line, {NULL, 0}};
    advance(l, 2);
    if (at_text(l, "-") || at_text(l, "+"))
        advance(l, 1);
    if (kind == '#') {
        *t = (struct jinja_token){JINJA_TOKEN_DATA, l->line, {NULL, 0}};
        return skip_comment(l, e);
    }
    l->inside = t->kind;
    return true;
}

/* ---- Inside of tags ---- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Digits with single underscores between them. */
static size_t digits_len(str s, const char *digits)
{
    size_t at = 0;
    while (at < s.len) {
        size_t to = at + (at > 0 && s.p[at] == '_');
        if (to >= s.len || strchr(digits, s.p[to]) == NULL || s.p[to] == 0)
            break;
        at = to + 1;
    }
    return at;
}

#define DECIMAL "0123456789"
static size_t float_len(str s)
{
    size_t at = digits_len(s, DECIMAL), more;
    bool has_point = false;
    if (at == 0)
        return 0;
    if (at + 1 < s.len && s.p[at] == '.') {
        more = digits_len(str_from(s, at + 1), DECIMAL);
        has_point = more != 0;
        at += has_point ? 1 + more : 0;
    }
    if (at < s.len && (s.p[at] == 'e' || s.p[at] == 'E')) {
        size_t sign = at + 1 < s.len && (s.p[at + 1] == '+' || s.p[at + 1] == '-');
        more = digits_len(str_from(s, at + 1 + sign), DECIMAL);
        if (more)
            return at + 1 + sign + more;
    }
    return has_point ? at : 0;
}

static size_t integer_len(str s)
{
    static const char *const digits[] = {"01", "01234567", "0123456789abcdefABCDEF"};
    if (s.len > 2 && s.p[0] == '0') {
        const char *base = strchr("bBoOxX", s.p[1]);
        if (base && s.p[1]) {
            str after = str_from(s, 2);
            size_t under = after.p[0] == '_';
            size_t len = digits_len(str_from(after, under), digits[(base - "bBoOxX") / 2]);
            if (len)
                return 2 + under + len;
        }
    }
    return s.p[0] == '0' ? digits_len(s, "0") : digits_len(s, DECIMAL);
}

static bool hex_escape(struct jinja_lexer *l, str s, size_t digits, uint32_t *c, struct err *e)
{
    *c = 0;
    for (size_t i = 0; i < digits; i++) {
        char d = i < s.len ? s.p[i] : 0;
        uint32_t v = is_digit(d) ? (uint32_t)(d - '0')
                     : d >= 'a' && d <= 'f' ? (uint32_t)(d - 'a' + 10)
                     : d >= 'A' && d <= 'F' ? (uint32_t)(d - 'A' + 10) : 16;
        if (v == 16)
            return fail(l, e, "a string has an escape with too few digits");
        *c = *c << 4 | v;
    }
    if (*c > 0x10ffff || (*c >= 0xd800 && *c < 0xe000))
        return fail(l, e, "a string has an escape that is no character");
    return true;
}

/* One escape behind its backslash: bytes read, or 0 on error. */
static size_t unescape(struct jinja_lexer *l, str s, struct buf *out, struct err *e)
{
    static const char plain[] = "nrtabfv\\'\"", to[] = "\n\r\t\a\b\f\v\\'\"";
    const char *p = s.p[0] ? strchr(plain, s.p[0]) : NULL;
    char bytes[4];
    uint32_t c = 0;
    size_t len = 0;
    if (p) {
        buf_add_byte(out, to[p - plain]);
        return 1;
    }
    if (s.p[0] == '\n')
        return 1;
    if (s.p[0] == 'x' || s.p[0] == 'u' || s.p[0] == 'U') {
        size_t digits = s.p[0] == 'x' ? 2 : s.p[0] == 'u' ? 4 : 8;
        if (!hex_escape(l, str_from(s, 1), digits, &c, e))
            return 0;
        len = 1 + digits;
    } else if (s.p[0] >= '0' && s.p[0] <= '7') {
        for (; len < 3 && len < s.len && s.p[len] >= '0' && s.p[len] <= '7'; len++)
            c = c << 3 | (uint32_t)(s.p[len] - '0');
    } else if (s.p[0] == 'N') {
        return fail(l, e, "a string has an escape \\N{...}, which is not supported"), 0;
    } else { /* Python keeps the backslash of an escape that it does not know */
        buf_add_byte(out, '\\');
        buf_add_byte(out, s.p[0]);
        return 1;
    }
    buf_add(out, (str){bytes, str_utf8_encode(bytes, c)});
    return len;
}

static bool string(struct jinja_lexer *l, struct jinja_token *t, struct err *e)
{
    str s = rest_of(l);
    size_t end = 1;
    while (end < s.len && s.p[end] != s.p[0])
        end += s.p[end] == '\\' ? 2 : 1;
    if (end >= s.len)
        return fail(l, e, "a string is not closed");
    str inside = str_sub(s, 1, end - 1);
    *t = (struct jinja_token){JINJA_TOKEN_STRING, l->line, inside};
    if (str_find_byte(inside, '\\') != STR_NONE) {
        struct buf out;
        buf_init(&out, inside.len + 8);
        bool ok = true;
        for (size_t i = 0, len = 1; i < inside.len && ok; i += len) {
            len = 1;
            if (inside.p[i] != '\\')
                buf_add_byte(&out, inside.p[i]);
            else
                ok = (len = unescape(l, str_from(inside, i + 1), &out, e) + 1) > 1;
        }
        t->text = ok ? arena_copy(l->arena, buf_view(&out)) : (str){NULL, 0};
        buf_deinit(&out);
        if (!ok)
            return false;
        if (t->text.p == NULL)
            return err_set(e, ERR_LIMIT, "template line %u: out of memory", l->line);
    }
    advance(l, end + 1);
    return true;
}

static bool operator_token(struct jinja_lexer *l, struct jinja_token *t, struct err *e)
{
    static const char *const operators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                            "*", "%", "~", "[", "]", "(", ")", "{", "}", ">",
                                            "<", "=", ".", ":", "|", ",", ";"};
    size_t i = 0;
    while (i < countof(operators) && !at_text(l, operators[i]))
        i++;
    if (i == countof(operators))
        return fail(l, e, "a character that begins nothing inside a tag");
    const char *op = operators[i];
    if (strchr("[({", op[0])) {
        if (l->brackets_count == countof(l->brackets))
            return err_set(e, ERR_LIMIT, "template line %u: brackets nest deeper than %u", l->line,
                           JINJA_NESTING_MAX);
        l->brackets[l->brackets_count++] = op[0] == '(' ? ')' : op[0] == '[' ? ']' : '}';
    } else if (strchr("])}", op[0])) {
        if (l->brackets_count == 0 || l->brackets[l->brackets_count - 1] != op[0])
            return err_set(e, ERR_FORMAT, "template line %u: unexpected '%s'", l->line, op);
        l->brackets_count--;
    }
    *t = (struct jinja_token){JINJA_TOKEN_OPERATOR, l->line, str_of(op)};
    advance(l, t->text.len);
    return true;
}

static bool inside(struct jinja_lexer *l, struct jinja_token *t, struct err *e)
{
    advance(l, blanks_ahead(rest_of(l)));
    str s = rest_of(l);
    bool is_print = l->inside == JINJA_TOKEN_PRINT_BEGIN;
    if (s.len == 0)
        return fail(l, e, is_print ? "'{{' is not closed by '}}'" : "'{%' is not closed by '%}'");
    size_t len = l->brackets_count ? 0 : close_len(l, is_print ? "}}" : "%}", is_print);
    if (len) {
        *t = (struct jinja_token){is_print ? JINJA_TOKEN_PRINT_END : JINJA_TOKEN_BLOCK_END,
                                  l->line, {NULL, 0}};
        closed(l, len);
        return true;
    }
    *t = (struct jinja_token){.line = l->line};
    if (is_digit(s.p[0])) {
        bool after_dot = l->pos > 0 && l->source.p[l->pos - 1] == '.';
        len = after_dot ? 0 : float_len(s);
        t->kind = len ? JINJA_TOKEN_FLOAT : JINJA_TOKEN_INTEGER;
        len = len ? len : integer_len(s);
    } else if (is_word(s.p[0])) {
        t->kind = JINJA_TOKEN_NAME;
        while (len < s.len && is_word(s.p[len]))
            len++;
    } else if (s.p[0] == '"' || s.p[0] == '\'') {
        return string(l, t, e);
    } else if ((uint8_t)s.p[0] >= 0x80) {
        return fail(l, e, "a name with a character outside ASCII is not supported");
    } else {
        return operator_token(l, t, e);
    }
    t->text = str_sub(s, 0, len);
    advance(l, len);
    return true;
}

bool jinja_lex_next(struct jinja_lexer *l, struct jinja_token *t, struct err *e)
{
    return l->inside == JINJA_TOKEN_END ? outside(l, t, e) : inside(l, t, e);
}
