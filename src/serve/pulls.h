/* pulls - models fetched from a hub and deleted because a client asked over HTTP.
 *
 * Owns:      a thread per download, one for deletions, who listens to which download, the rules of
 *            hub.http_pull and hub.allow.
 * Not:       the download itself (store/pull), deletion (store/library_remove), forms (path_pull).
 * Invariant: clients that ask for the same reference while it is fetched share one download; when
 *            the last of them is gone it stops, and keeps what came for the next one. Each client
 *            gets exactly one DONE or FAILED, as the last news, unless it left before.
 *
 *     loop: pulls_start --> thread: pull_run --queue of news, wake--> loop: client.on_news
 *
 * Thread:    the loop's.
 * Limits:    PULLS_MAX downloads at once, PULLS_NEWS_MAX news on their way each (progress is left
 *            out where the loop is late), PULLS_DELETES_MAX deletions.
 */
#ifndef SHOAL_SERVE_PULLS_H
#define SHOAL_SERVE_PULLS_H

#include "api/api_event.h"
#include "base/list.h"
#include "serve/limits.h"
#include "store/library.h"
#include "store/pull.h"
#include "wire/loop.h"

#define PULLS_MAX 8u
#define PULLS_NEWS_MAX 64u
#define PULLS_DELETES_MAX 64u

/* Views live as long as the limits that let a request in. */
struct pulls_options {
    bool is_on;             /* hub.http_pull */
    const str *allow;       /* hub.allow: globs of owner/name */
    uint32_t allow_count;
    struct pull_options pull; /* store, net, connections, piece_size, supports */
    struct library_options library;
    const str *aliases;     /* glob, model, ... */
    uint32_t aliases_count; /* strings */
};

enum pulls_kind { PULLS_PROGRESS, PULLS_NOTE, PULLS_DONE, PULLS_FAILED };
struct pulls_news {
    enum pulls_kind kind;
    enum pull_phase phase;       /* PROGRESS */
    char digest[65];             /* PROGRESS: of the file, in hex; "": not published */
    uint64_t done, size;         /* PROGRESS: bytes of the file */
    char text[ERR_TEXT_MAX];     /* PROGRESS: its name; NOTE: a sentence */
    const struct api_error *error; /* FAILED; until on_news returns */
};

/* Whoever waits; the caller's memory, until its last news or pulls_leave. */
struct pulls_client {
    struct list link;
    void (*on_news)(void *ctx, const struct pulls_news *n);
    void *ctx;
};

struct pulls;
BASE_USE_RESULT bool pulls_open(struct pulls **out, struct loop *l, void (*on_change)(void *ctx),
                                void *ctx, struct err *e);
/* Every download ends soon: FAILED, what came is kept. New ones are refused. */
void pulls_stop(struct pulls *p);
/* Stops and waits for all threads. No client listens any more. NULL is allowed. */
void pulls_close(struct pulls *p);

/* News come later, never from inside. ERR_UNSUPPORTED: hub.http_pull is off; ERR_REQUEST: no
 * reference; ERR_AUTH "forbidden": not among hub.allow (an address of another host needs a glob
 * with "://", for https://host/owner/name); ERR_OVERLOADED: PULLS_MAX run. limits is kept. */
BASE_USE_RESULT bool pulls_start(struct pulls *p, const struct pulls_options *o,
                                 struct limits *limits, str reference, struct pulls_client *client,
                                 struct api_error *e);
struct pulls_deletion_query {
    str name;
    const str *loaded; /* names of models in memory */
    size_t loaded_count;
};
/* Deletes a model of our own store, found by its whole name; not a loaded one: ERR_REQUEST
 * "conflict". As pulls_start, with DONE and FAILED only; it is not stopped by pulls_leave. */
BASE_USE_RESULT bool pulls_delete(struct pulls *p, const struct pulls_options *o,
                                  struct limits *limits,
                                  const struct pulls_deletion_query *q,
                                  struct pulls_client *client, struct api_error *e);
void pulls_leave(struct pulls *p, struct pulls_client *client);

#endif
