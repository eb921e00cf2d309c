/* inspect - what a file, plan, prompt or text looks like from inside; for `shoal inspect`.
 *
 * Owns:      the text and JSON forms of these views.
 * Not:       flags and which view is asked for (cmd_inspect); making what is shown (fmt, tensor,
 *            chat, text).
 * Invariant: reads headers only, never weights;
 *            the cache's view asks a running server. Untrusted texts are printed escaped.
 * Thread:    main.
 * Limits:    INSPECT_OUT_MAX bytes of output.
 */
#ifndef SHOAL_CLI_INSPECT_H
#define SHOAL_CLI_INSPECT_H

#include "cli/cmd.h"

#define INSPECT_OUT_MAX ((size_t)1 << 30)

struct inspect {
    struct cmd_context *c;
    struct library_entry model;
    struct buf out;
    bool as_json;
};

/* Each fills in->out. False: the model cannot be read (ERR_FORMAT, ...), or does not suit. */
bool inspect_file(struct inspect *in, struct err *e) BASE_USE_RESULT;
bool inspect_plan(struct inspect *in, struct err *e) BASE_USE_RESULT;
bool inspect_tokens(struct inspect *in, struct err *e) BASE_USE_RESULT;
bool inspect_prompt(struct inspect *in, struct err *e) BASE_USE_RESULT;
bool inspect_output(struct inspect *in, struct err *e) BASE_USE_RESULT; /* model may be none */

bool inspect_cache(struct inspect *in, struct err *e) BASE_USE_RESULT;  /* asks a server */

#endif
