#include "chat/output_scan.h"

#include <string.h>

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool bad(struct output_scan *s)
{
    s->at = OUTPUT_SCAN_BAD;
    return false;
}

static void put(struct buf *out, const char *p, size_t len)
{
    if (out)
        buf_add_bytes(out, p, len);
}

static bool in_object(const struct output_scan *s)
{
    return s->depth && (s->is_object[(s->depth - 1) / 64] >> ((s->depth - 1) % 64) & 1u);
}

static void after_value(struct output_scan *s)
{
    s->at = s->depth ? OUTPUT_SCAN_NEXT : OUTPUT_SCAN_DONE;
}

static bool open(struct output_scan *s, char byte)
{
    if (s->depth == OUTPUT_SCAN_DEPTH_MAX)
        return bad(s);
    uint64_t bit = UINT64_C(1) << (s->depth % 64), *word = &s->is_object[s->depth / 64];
    *word = byte == '{' ? *word | bit : *word & ~bit;
    s->depth++;
    s->at = byte == '{' ? OUTPUT_SCAN_FIRST_KEY : OUTPUT_SCAN_FIRST;
    return true;
}

static bool close(struct output_scan *s, char byte)
{
    if (s->depth == 0 || (byte == '}') != in_object(s))
        return bad(s);
    s->depth--;
    after_value(s);
    return true;
}

/* ---- Numbers: -? (0 | digits) (. digits)? ((e|E) (+|-)? digits)? ---- */

enum { NUMBER_SIGN, NUMBER_ZERO, NUMBER_INT, NUMBER_DOT, NUMBER_FRACTION, NUMBER_E, NUMBER_E_SIGN,
       NUMBER_EXPONENT };

static bool number_is_whole(const struct output_scan *s)
{
    return s->number == NUMBER_ZERO || s->number == NUMBER_INT || s->number == NUMBER_FRACTION ||
           s->number == NUMBER_EXPONENT;
}

static bool number_byte(struct output_scan *s, char c)
{
    bool mantissa = s->number == NUMBER_ZERO || s->number == NUMBER_INT;
    if (is_digit(c) && s->number == NUMBER_SIGN)
        s->number = c == '0' ? NUMBER_ZERO : NUMBER_INT;
    else if (is_digit(c) && s->number == NUMBER_DOT)
        s->number = NUMBER_FRACTION;
    else if (is_digit(c) && (s->number == NUMBER_E || s->number == NUMBER_E_SIGN))
        s->number = NUMBER_EXPONENT;
    else if (c == '.' && mantissa)
        s->number = NUMBER_DOT;
    else if ((c == 'e' || c == 'E') && (mantissa || s->number == NUMBER_FRACTION))
        s->number = NUMBER_E;
    else if ((c == '+' || c == '-') && s->number == NUMBER_E)
        s->number = NUMBER_E_SIGN;
    else
        return is_digit(c) && (s->number == NUMBER_INT || s->number == NUMBER_FRACTION ||
                               s->number == NUMBER_EXPONENT);
    return true;
}

/* ---- Strings ---- */

static void put_control(struct buf *out, char c)
{
    static const char hex[] = "0123456789abcdef";
    char text[6] = {'\\', 'u', '0', '0', hex[(uint8_t)c >> 4], hex[(uint8_t)c & 15]};
    if (c == '\n' || c == '\t' || c == '\r') {
        text[1] = c == '\n' ? 'n' : c == '\t' ? 't' : 'r';
        put(out, text, 2);
    } else {
        put(out, text, 6);
    }
}

/* Behind a backslash. What is no escape was meant as two characters: "\d". */
static void escape_byte(struct output_scan *s, char c, struct buf *out)
{
    char pair[2] = {'\\', c};
    s->escape = 0;
    if (c == 'u') {
        s->escape = 2;
        return;
    }
    if (!c || !strchr("\"\\/bfnrt", c)) {
        put(out, "\\\\", 2);
        if ((uint8_t)c < 0x20)
            put_control(out, c);
        else
            put(out, &c, 1);
        return;
    }
    put(out, pair, 2);
}

/* \u and up to four digits are written together, or as the characters that they are. */
static bool unicode_byte(struct output_scan *s, char c, struct buf *out)
{
    uint32_t have = s->escape - 2u;
    if (is_hex(c)) {
        s->digits[have] = c;
        s->escape++;
        if (have + 1 == 4) {
            put(out, "\\u", 2);
            put(out, s->digits, 4);
            s->escape = 0;
        }
        return true;
    }
    put(out, "\\\\u", 3);
    put(out, s->digits, have);
    s->escape = 0;
    return false; /* c is looked at again */
}

static void string_byte(struct output_scan *s, char c, struct buf *out)
{
    if (s->escape == 1) {
        escape_byte(s, c, out);
        return;
    }
    if (s->escape >= 2 && unicode_byte(s, c, out))
        return;
    if (c == '\\') {
        s->escape = 1;
    } else if (c == '"') {
        put(out, &c, 1);
        if (s->at == OUTPUT_SCAN_IN_KEY)
            s->at = OUTPUT_SCAN_COLON;
        else
            after_value(s);
    } else if ((uint8_t)c < 0x20) {
        put_control(out, c);
    } else {
        put(out, &c, 1);
    }
}

/* ---- Between them ---- */

static bool value_byte(struct output_scan *s, char c)
{
    if (c == '{' || c == '[')
        return open(s, c);
    if (c == '"') {
        s->at = OUTPUT_SCAN_IN_STRING;
        return true;
    }
    if (c == '-' || is_digit(c)) {
        s->at = OUTPUT_SCAN_IN_NUMBER;
        s->number = c == '-' ? NUMBER_SIGN : c == '0' ? NUMBER_ZERO : NUMBER_INT;
        return true;
    }
    s->word = c == 't' ? "true" : c == 'f' ? "false" : c == 'n' ? "null" : NULL;
    s->word_len = 1;
    s->at = OUTPUT_SCAN_IN_WORD;
    return s->word ? true : bad(s);
}

static bool between_byte(struct output_scan *s, char c)
{
    switch (s->at) {
    case OUTPUT_SCAN_VALUE:
        return value_byte(s, c);
    case OUTPUT_SCAN_FIRST:
        return c == ']' ? close(s, c) : value_byte(s, c);
    case OUTPUT_SCAN_FIRST_KEY: case OUTPUT_SCAN_KEY:
        if (c == '}' && s->at == OUTPUT_SCAN_FIRST_KEY)
            return close(s, c);
        s->at = OUTPUT_SCAN_IN_KEY;
        return c == '"' ? true : bad(s);
    case OUTPUT_SCAN_COLON:
        s->at = OUTPUT_SCAN_VALUE;
        return c == ':' ? true : bad(s);
    case OUTPUT_SCAN_NEXT:
        if (c != ',')
            return c == '}' || c == ']' ? close(s, c) : bad(s);
        s->at = in_object(s) ? OUTPUT_SCAN_KEY : OUTPUT_SCAN_VALUE;
        return true;
    case OUTPUT_SCAN_IN_KEY: case OUTPUT_SCAN_IN_STRING: case OUTPUT_SCAN_IN_NUMBER:
    case OUTPUT_SCAN_IN_WORD: case OUTPUT_SCAN_DONE: case OUTPUT_SCAN_BAD:
        break;
    }
    return bad(s);
}

bool output_scan_byte(struct output_scan *s, char c, struct buf *out)
{
    if (s->at == OUTPUT_SCAN_DONE || s->at == OUTPUT_SCAN_BAD)
        return false;
    if (s->at == OUTPUT_SCAN_IN_KEY || s->at == OUTPUT_SCAN_IN_STRING) {
        string_byte(s, c, out);
        return true;
    }
    if (s->at == OUTPUT_SCAN_IN_WORD) {
        if (c != s->word[s->word_len])
            return bad(s);
        put(out, &c, 1);
        if (s->word[++s->word_len] == 0)
            after_value(s);
        return true;
    }
    if (s->at == OUTPUT_SCAN_IN_NUMBER) {
        if (number_byte(s, c)) {
            put(out, &c, 1);
            return true;
        }
        if (!number_is_whole(s))
            return bad(s);
        after_value(s);
        if (s->at == OUTPUT_SCAN_DONE)
            return false;
    }
    if (is_blank(c)) {
        if (s->depth)
            put(out, &c, 1);
        return true;
    }
    if (!between_byte(s, c))
        return false;
    put(out, &c, 1);
    return true;
}

bool output_scan_end(struct output_scan *s)
{
    if (s->at == OUTPUT_SCAN_IN_NUMBER && s->depth == 0 && number_is_whole(s))
        s->at = OUTPUT_SCAN_DONE;
    return s->at == OUTPUT_SCAN_DONE;
}
