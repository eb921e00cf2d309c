/* A pattern, a line feed, a text: a table made at once and one made as the text comes accept the
 * same, and from each state that is entered the text can still become one that is accepted. */
#include <stdlib.h>

#include "grammar/gram_dfa.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t run(struct gram_dfa_table *t, str text)
{
    uint32_t s = gram_dfa_start(t);
    for (size_t i = 0; i < text.len && s < GRAM_DFA_FULL; i++)
        s = gram_dfa_next(t, s, (uint8_t)text.p[i]);
    return s;
}

static bool has_way(struct gram_dfa_table *t, uint32_t s)
{
    if (gram_dfa_accepts(t, s))
        return true;
    for (uint32_t b = 0; b < 256; b++)
        if (gram_dfa_next(t, s, (uint8_t)b) != GRAM_DFA_DEAD)
            return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    str pattern = {NULL, 0}, text = str_view(data, size);
    struct err e;
    bool is_search = size && data[0] & 1;
    str_split(&text, '\n', &pattern);
    struct gram_dfa *d = gram_dfa_new();
    if (!d || pattern.len > 2000 || !gram_dfa_add(d, pattern, is_search, &e) ||
        !gram_dfa_finish(d, (struct gram_dfa_span){0, GRAM_DFA_FAR}, &e)) {
        gram_dfa_free(d);
        return 0;
    }
    struct gram_dfa_table *lazy = gram_dfa_table_new(d, (size_t)1 << 20);
    struct gram_dfa_table *whole = gram_dfa_whole(d);
    uint32_t a = run(lazy, text), b = whole ? run(whole, text) : a;
    bool known = a != GRAM_DFA_FULL;
    bool yes = a < GRAM_DFA_FULL && gram_dfa_accepts(lazy, a);
    if (known && whole && yes != (b < GRAM_DFA_FULL && gram_dfa_accepts(whole, b)))
        abort();
    if (a < GRAM_DFA_FULL && !has_way(lazy, a))
        abort();
    gram_dfa_table_free(lazy);
    gram_dfa_free(d);
    return 0;
}
