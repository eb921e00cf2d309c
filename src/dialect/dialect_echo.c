#include "dialect/dialect_echo.h"

void dialect_echo_init(struct dialect_echo *e, str said)
{
    str opening = str_sub(said, 0, DIALECT_ECHO_OPENING);
    *e = (struct dialect_echo){.said = said};
    e->is_on = said.len >= DIALECT_ECHO_MIN && said.len <= DIALECT_ECHO_MAX &&
               str_find(str_from(said, 1), opening) == STR_NONE;
}

bool dialect_echo_take(struct dialect_echo *e, str *piece, str *before)
{
    size_t n = 0, held = e->at;
    while (n < piece->len && e->at < e->said.len && piece->p[n] == e->said.p[e->at]) {
        n++;
        e->at++;
    }
    *before = (str){"", 0};
    e->is_cut = e->at == e->said.len;
    e->is_on = n == piece->len && !e->is_cut;
    if (e->is_cut)
        *piece = str_from(*piece, n);
    else if (!e->is_on)
        *before = str_sub(e->said, 0, held);
    return !e->is_on;
}

str dialect_echo_release(struct dialect_echo *e)
{
    str held = e->is_on ? str_sub(e->said, 0, e->at) : (str){"", 0};
    e->is_on = false;
    return held;
}
