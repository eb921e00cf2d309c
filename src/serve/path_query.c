#include "serve/path_query.h"

#include <stdlib.h>
#include <string.h>

static str path_query_decode(str value, struct arena *a)
{
    char *text = arena_alloc_text(a, value.len + 1);
    size_t len = 0;
    for (size_t i = 0; text && i < value.len; i++) {
        char digits[3] = {0}, *end = digits;
        bool is_code = value.p[i] == '%' && i + 2 < value.len;
        if (is_code)
            memcpy(digits, value.p + i + 1, 2);
        unsigned long code = is_code ? strtoul(digits, &end, 16) : 0;
        text[len++] = end == digits + 2 ? (char)code : value.p[i] == '+' ? ' ' : value.p[i];
        i += end == digits + 2 ? 2 : 0;
    }
    return (str){text, len};
}

str path_query(const struct http_conn *c, str name, struct arena *a)
{
    str rest = http_conn_request(c)->query, pair, key;
    while (str_split(&rest, '&', &pair))
        if (str_split(&pair, '=', &key) && str_eq(key, name))
            return path_query_decode(pair, a);
    return (str){NULL, 0};
}
