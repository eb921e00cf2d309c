/* config_yaml - YAML text as a tree of nodes with their places.
 *
 * Owns:      the subset: no anchors, aliases, tags, second documents; no key twice.
 * Not:       which keys exist and what they may hold (config).
 * Invariant: every node knows line and column (from 1). Scalars are texts, quoted or not.
 * Thread:    any; the tree lives in the caller's arena.
 * Limits:    CONFIG_YAML_DEPTH, the caller's size limit.
 */
#ifndef SHOAL_CLI_CONFIG_YAML_H
#define SHOAL_CLI_CONFIG_YAML_H

#include "base/arena.h"
#include "base/err.h"

#define CONFIG_YAML_DEPTH 16

enum config_yaml_kind { CONFIG_YAML_SCALAR, CONFIG_YAML_LIST, CONFIG_YAML_MAP };

struct config_yaml {
    enum config_yaml_kind kind;
    bool is_null; /* an unquoted scalar that is empty, ~ or null */
    str text;     /* of a scalar */
    str key;      /* its name in the map above */
    uint32_t line, column, key_line, key_column;
    struct config_yaml *first, *next; /* children in order */
    uint32_t count;
};

/* *root NULL: an empty document. ERR_CONFIG "14:3: aliases are not allowed": place first. */
bool config_yaml_parse(struct config_yaml **root, str text, struct arena *a,
                       struct err *e) BASE_USE_RESULT;

#endif
