/* reload - the configuration of a running server, read again: SIGHUP, POST /v1/admin/reload.
 *
 * Owns:      the configuration in use and its memory, the order of a reload, what changed.
 * Not:       keys and their ranges (config), what a part is good for (its row's functions).
 * Invariant: all or nothing. Every part reads the new values before one of them is applied, so a
 *            file with a mistake anywhere changes nothing; it is told with line and key, and the
 *            old configuration stays. Requests that have begun keep the values they began with.
 *
 *     config_load --> part 1 read, part 2 read, ... --all good--> part 1 apply, part 2 apply, ...
 *          \________________\_____ refused: nothing has changed
 *
 * Thread:    the loop's.
 * Limits:    RELOAD_PARTS_MAX parts; two configurations in memory at once.
 */
#ifndef SHOAL_CLI_RELOAD_H
#define SHOAL_CLI_RELOAD_H

#include "cli/config.h"

#define RELOAD_PARTS_MAX 32

struct cmd_context;
struct models_leg;
struct reload_part;
struct server;

struct reload_age; /* one configuration with what was made of it */

/* What the parts act on; all of it outlives the reloads. */
struct reload_target {
    const struct cmd_context *c; /* flags of the command line, which win over any file */
    struct server *server;
    struct models_leg *models;
    const struct reload_part *parts; /* in the order of reading; ends with name == NULL */
};

/* A part of the configuration that may change while the server runs: one row of the parts. */
struct reload_part {
    const char *name;
    /* Makes of the new configuration what apply takes, in memory of a; changes nothing else. False:
     * a sentence that names line and key. */
    bool (*read)(void **out, const struct reload_target *t, const struct config *config,
                 struct arena *a, struct err *e);
    /* Cannot fail; takes `made`. The configuration and what was made in its memory live until the
     * next reload has been applied, and as long as somebody keeps them by reload_keep. */
    void (*apply)(const struct reload_target *t, void *made, struct reload_age *age);
    /* Instead of apply, when another part refused: gives back what does not lie in that memory.
     * NULL: nothing does. */
    void (*drop)(void *made);
};
/* The memory that read was given, and its configuration, stay until reload_unkeep: for what serves
 * requests that began under it. */
void reload_keep(struct reload_age *age);
void reload_unkeep(void *age);

struct reload;
/* config: what the server runs on so far. */
BASE_USE_RESULT bool reload_open(struct reload **out, const struct reload_target *t,
                                 const struct config *config, struct err *e);
void reload_close(struct reload *r); /* after the server's close; NULL is allowed */

/* Once. *report: {"changed":[KEY],"needs_restart":[KEY]}. False: nothing was changed; problems has
 * one line each (it may be empty), e the first. */
BASE_USE_RESULT bool reload_run(struct reload *r, struct buf *report, struct buf *problems,
                                struct err *e);

#endif
