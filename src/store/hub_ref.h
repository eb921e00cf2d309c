/* hub_ref - how a model on a hub is written down, and which names of a hub may become files here.
 *
 * Owns:      the forms owner/repo[@REV][:QUANT], hf.co/..., https://HOST/owner/repo/blob/REV/FILE.
 * Not:       asking the hub (hub_net), choosing files (hub_pick).
 * Invariant: a parsed owner, repository or revision holds no "..", no control character and no
 *            character that means something in an URL. A base name that passed is one visible
 *            name: no '/', NUL, leading dot, and short enough for our own additions.
 * Thread:    any; pure functions.
 * Limits:    HUB_REF_MAX bytes a reference, HUB_REF_NAME_MAX a file name.
 */
#ifndef SHOAL_STORE_HUB_REF_H
#define SHOAL_STORE_HUB_REF_H

#include "base/arena.h"
#include "base/err.h"

#define HUB_REF_MAX 1024u
#define HUB_REF_NAME_MAX 240u /* with ".", ".state" around it: a name of 247 */

struct hub_ref {
    str origin;   /* "https://host[:port]" of an address; empty: the configured hubs */
    str repo;     /* "owner/name" */
    str revision; /* "main" when not given */
    str quant;    /* what a file's name must contain; empty: not given */
    str file;     /* a file of the repository; empty: not given */
};
/* Views into text. ERR_USAGE names the part that is wrong and the forms. */
bool hub_ref_parse(struct hub_ref *out, str text, struct err *e) BASE_USE_RESULT;
/* Sound as a revision, given by a flag: as in the parsed form. */
bool hub_ref_is_revision(str s);

/* The last part of a path that a hub told, if it can be a file's name in our store.
 * ERR_FORMAT says what is wrong with it. */
bool hub_ref_base(str *out, str path, struct err *e) BASE_USE_RESULT;

#endif
