/* serve_banner - what `serve` says of itself at start, and with -dry-run instead of starting.
 *
 * Owns:      the lines: models, legs, routes, cache, addresses, the first path of each dialect.
 * Not:       what is served (cmd_serve), what a model needs (cmd_plan).
 * Invariant: `listening  URL` is a line for each address, which other programs wait for; with
 *            -dry-run it is `would serve URL`, and each model's context, places and pool are told.
 * Thread:    main.
 */
#ifndef SHOAL_CLI_SERVE_BANNER_H
#define SHOAL_CLI_SERVE_BANNER_H

#include "cli/cmd.h"
#include "serve/legs.h"

struct serve_banner {
    const struct cmd_context *c;
    const struct library_entry *models; /* loaded at start */
    uint32_t models_count;
    const struct legs_config *legs;
    const struct api_load *load; /* its tier */
    const str *addresses;
    uint32_t addresses_count;
    bool is_dry, has_tls;
};

/* To out. Only with is_dry it can fail: a model file that is not sound, as the load would say. */
BASE_USE_RESULT bool serve_banner_add(struct buf *out, const struct serve_banner *b,
                                      struct err *e);

#endif
