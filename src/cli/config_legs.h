/* config_legs - the sections `legs` and `routes` of the configuration.
 *
 * Owns:      what an entry may hold (BEHAVIOUR 9.1, 9.2), reading a leg's key once, the checks over
 *            all of them: unknown legs, doubles, a leg that leads back to this server.
 * Not:       YAML (config_yaml), what a leg is good for (serve/legs, route/router).
 * Invariant: all problems are told, each with the place of its entry or field; a key is nowhere in
 *            the file.
 * Thread:    main at start; the loop's on a reload.
 * Limits:    LEGS_MAX legs, LEGS_ROUTES_MAX routes, ROUTER_LEGS_MAX legs of a route.
 */
#ifndef SHOAL_CLI_CONFIG_LEGS_H
#define SHOAL_CLI_CONFIG_LEGS_H

#include "cli/config.h"
#include "serve/legs.h"

/* Views into a and into the configuration. False: every problem is told (config_tell), e has the
 * first: ERR_CONFIG "config.yaml:12:5: legs.claude.url: ...". */
BASE_USE_RESULT bool config_legs_load(struct legs_config *out, const struct config *c,
                                      struct arena *a, struct err *e);

#endif
