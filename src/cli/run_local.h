/* run_local - a conversation: with a private engine child, or through a running server.
 *
 * Owns:      the loop, the child, the conversation so far, printing a reply as it comes.
 * Not:       flags (cmd_run), line editing (run_repl), the child's life (serve/engine_leg), the
 *            server (daemon, run_remote).
 * Invariant: a turn is in the conversation only when its reply ended well, or was cancelled after
 *            something of it was shown. stdout gets the answer alone; everything else goes to
 *            stderr. Reasoning is shown dimmed on a terminal, else left out.
 * Thread:    main.
 * Limits:    RUN_LOCAL_TEXT_MAX bytes of conversation.
 */
#ifndef SHOAL_CLI_RUN_LOCAL_H
#define SHOAL_CLI_RUN_LOCAL_H

#include "api/api_frame.h"
#include "cli/config.h"
#include "wire/loop.h"

#define RUN_LOCAL_TEXT_MAX ((size_t)256 << 20)

struct daemon;
struct run_local;
struct run_local_options {
    struct api_load load;   /* path, name, what the flags say */
    struct api_request chat; /* sampling, think, tokens_max: copied into each request */
    bool has_seed;          /* chat.seed is to be used; else each turn draws its own */
    str system;             /* "" = none */
    int64_t engine_stall_ms, load_stall_ms;
    bool timings;           /* a line after each reply */
    const struct daemon *daemon; /* NULL: a private child, loaded by load */
    str keep_alive;         /* for the server; "" = its own */
};

/* Starts the child; the load goes on while the user types. */
BASE_USE_RESULT bool run_local_open(struct run_local **out, const struct run_local_options *o,
                                    struct err *e);
void run_local_close(struct run_local *r); /* NULL is allowed */

/* Asks, prints the reply, waits for its end. False: ERR_CANCELLED after SIGINT. */
BASE_USE_RESULT bool run_local_ask(struct run_local *r, str text, struct err *e);
/* Forgets the conversation; the system text stays. */
void run_local_clear(struct run_local *r);
/* Numbers of the last reply and of the conversation, on stdout. */
void run_local_print_stats(const struct run_local *r);

struct loop *run_local_loop(struct run_local *r);
/* SIGINT came since the last call. */
bool run_local_take_interrupt(struct run_local *r);
/* The child is lost for good: e says why. */
bool run_local_has_failed(const struct run_local *r, struct err *e);

/* Identity of this build, the same in parent and child: HELLO compares it. */
str run_local_build_id(struct arena *a);

/* Sets of a load what the configuration says for every command; the rest of l stays. engine.ngl:
 * 0 layers mean the CPU, any other number a GPU; ERR_CONFIG when engine.backend contradicts. Text
 * in l is the configuration's. */
bool run_local_load(const struct config *c, struct api_load *l, struct err *e) BASE_USE_RESULT;

#endif
