/* config_rules - limits of keys and agents in the configuration; the section `agents`.
 *
 * Owns:      the fields of agents.GLOB, which keys carry too (BEHAVIOUR 3.3), their ranges.
 * Not:       a key's own fields (config_keys), what the rules do (serve/quota).
 * Invariant: a field of a feature that is not built is refused by name.
 * Thread:    main, at start; the loop's, at a reload.
 * Limits:    CONFIG_RULES_AGENTS_MAX globs.
 */
#ifndef SHOAL_CLI_CONFIG_RULES_H
#define SHOAL_CLI_CONFIG_RULES_H

#include "cli/config.h"
#include "serve/limits.h"

#define CONFIG_RULES_AGENTS_MAX 4096u

/* Reads the field if it is one of the rules'; *is_known: it is. False: a sentence without the
 * field's name. */
BASE_USE_RESULT bool config_rules_field(struct quota_rules *r, const struct config_yaml *n,
                                        struct arena *a, bool *is_known, struct err *e);

struct config_agents {
    struct limits_agents *agents;
    uint32_t count;
};
/* False: every problem is told (config_tell), e has the first. */
BASE_USE_RESULT bool config_rules_agents(struct config_agents *out, const struct config *c,
                                         struct arena *a, struct err *e);

#endif
