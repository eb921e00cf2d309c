/* doctor - the parts of `shoal doctor`: recorded clients replayed, and the rules of each protocol.
 *
 * Owns:      the recordings in the binary, an endpoint with a stub leg in this process, the
 *            judgement of a reply.
 * Not:       the checks of the machine and the configuration (cmd_doctor), the stub's words
 *            (stub_upstream).
 * Invariant: nothing outside this process is asked; every recording goes over a leg of every
 *            protocol as text, thinking and a call. A reply is judged by its bytes alone.
 * Thread:    main.
 * Limits:    DOCTOR_REPLY_MAX bytes of a reply, DOCTOR_RECORDINGS_MAX files of -replay, of
 *            DOCTOR_FILE_MAX bytes each.
 */
#ifndef SHOAL_CLI_DOCTOR_H
#define SHOAL_CLI_DOCTOR_H

#include "cli/cmd.h"

#define DOCTOR_REPLY_MAX ((size_t)16 << 20)
#define DOCTOR_FILE_MAX ((size_t)16 << 20)
#define DOCTOR_RECORDINGS_MAX 1000u

struct doctor_recording {
    const char *client; /* "codex" */
    const char *text;   /* {"path","body"} */
};
/* Ends with a row of NULLs; made by tools/make_doctor.py. */
extern const struct doctor_recording doctor_data[];

/* One line of what is found. */
enum doctor_state { DOCTOR_STATE_OK, DOCTOR_STATE_WARN, DOCTOR_STATE_FAIL };
struct doctor_report {
    void (*add)(void *ctx, enum doctor_state s, str name, str detail);
    void *ctx;
};

/* A line per client, its first fault in words. directory: more recordings, or empty. False: the
 * endpoint could not be opened. */
BASE_USE_RESULT bool doctor_replay(struct cmd_context *c, str directory,
                                   const struct doctor_report *out, struct err *e);

/* What a reply must be. */
struct doctor_wish {
    str dialect;   /* "anthropic" */
    bool stream;
    str text;      /* all that must be said, or empty: not compared */
    bool has_call; /* it ends with a call */
};
/* ERR_FORMAT naming the rule that is broken. */
BASE_USE_RESULT bool doctor_rules_check(const struct doctor_wish *w, str body, struct err *e);

#endif
