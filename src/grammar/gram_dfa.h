/* gram_dfa - regular expressions as one byte automaton, its states made when they are needed.
 *
 * Owns:      reading patterns, the program (immutable), tables of states.
 * Not:       strings and their escapes (gram_walk), which patterns there are (gram_schema).
 * Invariant: a step is a table look-up, or once per state and class of bytes the work of one walk
 *            through the program: linear time for any pattern, no backtracking. A dead state is
 *            never entered: from each state something can still be accepted.
 *            Text is UTF-8; a class never matches half a character.
 *
 *     "a|b+$"  --tree--> program: range, split, begin, end, accept  --sets of nodes--> table
 *     several expressions in one automaton must all accept
 *
 * Syntax:    classes, \d \w \s \D \W \S (ASCII), groups (also named), alternation, * + ? {n,m} and
 *            their lazy forms, ^ $ at both ends of the text, \t \n \r \f \v \0 \xHH \uHHHH \u{H}
 *            \cX. Refused by name: look-around, back-references, \b, \p, flags, possessive forms.
 * Thread:    a finished program may be read by any; a table belongs to one thread.
 * Limits:    GRAM_DFA_*; bytes_max of a table.
 */
#ifndef SHOAL_GRAMMAR_GRAM_DFA_H
#define SHOAL_GRAMMAR_GRAM_DFA_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#define GRAM_DFA_PATTERN_MAX 65536u  /* bytes */
#define GRAM_DFA_NESTING_MAX 200u
#define GRAM_DFA_REPEAT_MAX 10000u
#define GRAM_DFA_NODES_MAX (1u << 19)
#define GRAM_DFA_PARTS_MAX 8u
#define GRAM_DFA_DEAD UINT32_MAX     /* no such byte here */
#define GRAM_DFA_FULL (UINT32_MAX - 1) /* the table is at its limit: the step is not known */
#define GRAM_DFA_FAR UINT32_MAX      /* length not known or endless */

struct gram_dfa;
struct gram_dfa_table;

/* NULL: no memory. Free with gram_dfa_free (NULL is fine). */
struct gram_dfa *gram_dfa_new(void);
void gram_dfa_free(struct gram_dfa *d);
/* A further expression that must accept: the whole text, or (is_search) some part of it.
 * ERR_REQUEST "offset 7: ..." for what it cannot read, ERR_LIMIT for what is too large. */
BASE_USE_RESULT bool gram_dfa_add(struct gram_dfa *d, str pattern, bool is_search, struct err *e);

/* How long texts may be that it reads, in code points; it decides with them whether anything is
 * accepted at all. {0, GRAM_DFA_FAR}: any. */
struct gram_dfa_span {
    uint32_t min, max;
};
/* Ends building. Small automata get their whole table now, so that no step is ever made twice.
 * ERR_REQUEST: nothing is accepted. ERR_LIMIT: lengths that need a table, but it is too large. */
BASE_USE_RESULT bool gram_dfa_finish(struct gram_dfa *d, struct gram_dfa_span span, struct err *e);
size_t gram_dfa_size(const struct gram_dfa *d);

/* The whole table, or NULL if it is too large: the caller makes one of its own then. */
struct gram_dfa_table *gram_dfa_whole(const struct gram_dfa *d);
/* NULL: no memory. d outlives it. */
struct gram_dfa_table *gram_dfa_table_new(const struct gram_dfa *d, size_t bytes_max);
void gram_dfa_table_free(struct gram_dfa_table *t);
size_t gram_dfa_table_size(const struct gram_dfa_table *t);
/* Work so far: grows with each node of the program that a step looked at. */
uint64_t gram_dfa_table_work(const struct gram_dfa_table *t);

uint32_t gram_dfa_start(struct gram_dfa_table *t);
/* A state, DEAD or FULL. */
uint32_t gram_dfa_next(struct gram_dfa_table *t, uint32_t state, uint8_t byte);
bool gram_dfa_accepts(const struct gram_dfa_table *t, uint32_t state);
/* Accepts, and no byte may follow. */
bool gram_dfa_is_last(const struct gram_dfa_table *t, uint32_t state);
/* Accepts whatever follows. */
bool gram_dfa_is_open(const struct gram_dfa_table *t, uint32_t state);
/* Whether, count code points into the text, the span can still be kept. */
bool gram_dfa_fits(const struct gram_dfa_table *t, uint32_t state, uint32_t count);

#endif
