/* serve_settings - what `shoal serve` makes of its configuration, at start and at each reload.
 *
 * Owns:      which key goes into which option of the server, the models and the log; the parts
 *            that a reload changes.
 * Not:       the server's life (cmd_serve), the order of a reload (reload), ranges (config).
 * Invariant: one function per module fills its options, so that a start and a reload cannot differ.
 * Thread:    main, at start; the loop's, at a reload.
 * Limits:    none of its own.
 */
#ifndef SHOAL_CLI_SERVE_SETTINGS_H
#define SHOAL_CLI_SERVE_SETTINGS_H

#include "base/log.h"
#include "cli/config_keys.h"
#include "cli/config_models.h"
#include "cli/reload.h"
#include "serve/server.h"

/* Keys and everything else of o that a reload may change; in a. Here and in serve_settings_models
 * the problems of a section are all told (config_tell), and e has the first. */
BASE_USE_RESULT bool serve_settings_server(struct server_options *o, const struct cmd_context *c,
                                           const struct config *config, struct arena *a,
                                           struct err *e);
/* Aliases, models, times of the children; the rest of o stays. */
BASE_USE_RESULT bool serve_settings_models(struct models_leg_next *o, const struct config *config,
                                           struct arena *a, struct err *e);
/* A share, 0 to 1. */
uint32_t serve_settings_permille(const struct config *config, const char *key);
/* Reads the files of tls.cert and tls.key; *out NULL: neither is set. */
BASE_USE_RESULT bool serve_settings_tls(struct tls **out, const struct config *config,
                                        struct err *e);
/* Opens the log's file, if there is one. */
BASE_USE_RESULT bool serve_settings_log(struct log_options *o, const struct config *config,
                                        struct err *e);

/* For reload_open. */
extern const struct reload_part serve_settings_parts[];

#endif
