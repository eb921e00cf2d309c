/* dialect_echo - does an upstream that was asked to go on begin anew?
 *
 * Owns:      how much of the text that was said already it has repeated so far.
 * Not:       which upstreams are asked to go on (route/leg), what happens to one that cannot.
 * Invariant: what repeats the whole of it from its start is cut; what begins alike and then goes
 *            another way is told from its first byte.
 *
 *     said      One day the fox
 *     comes     One d|ay the| fox ran on      -> " ran on"
 *     comes     One h|ound                    -> "One hound"
 *
 * Thread:    its owner's.
 * Limits:    texts of DIALECT_ECHO_MIN to DIALECT_ECHO_MAX bytes whose opening stands in them once:
 *            a short one, or the first lines of a refrain, may well be said again.
 */
#ifndef SHOAL_DIALECT_DIALECT_ECHO_H
#define SHOAL_DIALECT_DIALECT_ECHO_H

#include "base/str.h"

#define DIALECT_ECHO_MIN 64u
#define DIALECT_ECHO_OPENING 32u
#define DIALECT_ECHO_MAX ((size_t)256 << 10)

struct dialect_echo {
    str said;
    size_t at;   /* bytes of said that came again */
    bool is_on;  /* all that came so far is said's beginning */
    bool is_cut; /* the whole of it came: cut */
};

/* said lives as long as e. One that is outside of the limits is not looked for. */
void dialect_echo_init(struct dialect_echo *e, str said);
/* While is_on. True: tell *before, then *piece, of which only the end may be left; false: nothing
 * yet. */
BASE_USE_RESULT bool dialect_echo_take(struct dialect_echo *e, str *piece, str *before);
/* No more text comes, or another kind of it: what was held back, to be told. */
str dialect_echo_release(struct dialect_echo *e);

#endif
