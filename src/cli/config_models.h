/* config_models - the section `models` of the configuration: what one model is served with.
 *
 * Owns:      what an entry may hold (BEHAVIOUR 3.3, 7.1), its ranges, reading its template's file.
 * Not:       YAML (config_yaml), which models there are (store), when a value counts (models_leg).
 * Invariant: a field of a feature that is not built is refused by name. All problems are told, each
 *            with its place: "config.yaml:14:3: models.NAME.ctx: ...".
 * Thread:    main, at start; the loop's, at a reload.
 * Limits:    CONFIG_MODELS_MAX entries, CONFIG_MODELS_TEMPLATE_MAX bytes of a template.
 */
#ifndef SHOAL_CLI_CONFIG_MODELS_H
#define SHOAL_CLI_CONFIG_MODELS_H

#include "cli/config.h"
#include "serve/models_leg.h"

#define CONFIG_MODELS_MAX 1024u
#define CONFIG_MODELS_TEMPLATE_MAX ((size_t)1 << 20)

struct config_models {
    struct models_leg_setting *settings;
    uint32_t count;
    const str *aliases; /* those of `aliases`, then those of each model: glob, model, ... */
    uint32_t aliases_count;
};
/* Everything lives in a or in c. False: every problem is told (config_tell), e has the first. */
BASE_USE_RESULT bool config_models_load(struct config_models *out, const struct config *c,
                                        struct arena *a, struct err *e);

#endif
