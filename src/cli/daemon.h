/* daemon - the server at -addr, as commands see it: is it there, one question, one answer.
 *
 * Owns:      its address and our key, HTTP/1.0 exchanges that block, whether over TLS, starting one
 *            in the background with its log and pid file.
 * Not:       what is asked (cmd_ps, cmd_stop, run_remote), the server itself (serve).
 * Invariant: nothing waits longer than its timeout. Only the address that the user named is asked.
 * Thread:    main.
 * Limits:    DAEMON_REPLY_MAX bytes of an answer.
 */
#ifndef SHOAL_CLI_DAEMON_H
#define SHOAL_CLI_DAEMON_H

#include "cli/cmd.h"

#define DAEMON_REPLY_MAX ((size_t)16 << 20)
#define DAEMON_HEALTH_MS 700 /* silent for so long: nobody is there (BEHAVIOUR 2.2, run) */

struct daemon {
    str address; /* "127.0.0.1:11500", "unix:/path" */
    str key;     /* "" = none */
    bool is_tls;         /* of a TCP address */
    const char *trusted; /* our configuration's own certificate, or NULL */
};
struct daemon_question {
    const char *method, *path;
    str body;
    int64_t timeout_ms; /* from the first byte to the last */
};
struct daemon_answer {
    int status;
    struct buf body; /* the asker's: buf_deinit */
};

/* -addr, SHOAL_ADDR, 127.0.0.1:11500; -key-file, SHOAL_KEY. Both texts are NUL-ended. TLS where the
 * address begins with https://, or where tls.cert is set and it does not begin with http://. */
BASE_USE_RESULT bool daemon_find(const struct cmd_context *c, struct daemon *d, struct err *e);
/* ERR_CONNECT: nobody listens there; ERR_DEADLINE; ERR_UPSTREAM: it is no HTTP server, or not over
 * TLS, or its certificate is not trusted. */
BASE_USE_RESULT bool daemon_ask(const struct daemon *d, const struct daemon_question *q,
                                struct daemon_answer *out, struct err *e);
/* The same where a server is needed: ERR_CONNECT says that none is there. */
BASE_USE_RESULT bool daemon_ask_server(const struct daemon *d, const struct daemon_question *q,
                                       struct daemon_answer *out, struct err *e);
/* Of an answer that is not 2xx: its own sentence. Returns false. */
bool daemon_refused(const struct daemon_answer *a, struct err *e);
bool daemon_is_there(const struct daemon *d); /* somebody is, whatever it speaks */
/* Sends a question; *fd then gives the answer: status line, header, body until the end. The
 * caller closes it. */
BASE_USE_RESULT bool daemon_send(const struct daemon *d, const struct daemon_question *q, int *fd,
                                 struct err *e);

/* Starts `serve` at this address with further arguments (NULL-ended), its output in
 * ~/.shoal/serve.log, its pid in ~/.shoal/run/PORT.pid; waits until it answers, at most 20 s. */
BASE_USE_RESULT bool daemon_start(const struct cmd_context *c, const struct daemon *d,
                                  const char *const *args, struct err *e);
/* The process that listens on this TCP port of the machine, if it is ours to see; 0: not known. */
int daemon_port_owner(uint16_t port);
/* Path of its pid file; "" for a unix socket. */
str daemon_pid_path(const struct daemon *d, struct arena *a);

#endif
