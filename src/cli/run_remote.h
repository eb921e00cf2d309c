/* run_remote - a running server as a provider, for a conversation in the terminal.
 *
 * Owns:      one request at a time to POST /api/chat, its lines read as events.
 * Not:       the conversation (run_local), finding and starting the server (daemon).
 * Invariant: only what the user gave is sent: the rest has the server's and the model's defaults.
 *            Bytes that are no such reply end the request with one ERROR.
 * Thread:    main, on the conversation's loop.
 * Limits:    RUN_REMOTE_LINE_MAX bytes of one line; one request at a time.
 */
#ifndef SHOAL_CLI_RUN_REMOTE_H
#define SHOAL_CLI_RUN_REMOTE_H

#include "api/api_provider.h"
#include "cli/daemon.h"
#include "wire/loop.h"

#define RUN_REMOTE_LINE_MAX ((size_t)4 << 20)

struct run_remote;
/* keep_alive: as given, or "". All views outlive it. */
BASE_USE_RESULT bool run_remote_open(struct run_remote **out, struct loop *l,
                                     const struct daemon *d, str keep_alive, struct err *e);
void run_remote_close(struct run_remote *r); /* NULL is allowed */
struct api_provider run_remote_provider(struct run_remote *r);

#endif
