/* config_keys - the section `keys` of the configuration, and keys given by -key-file.
 *
 * Owns:      what an entry may hold (BEHAVIOUR 3.3), reading a key's file or variable once, its
 *            digest.
 * Not:       YAML (config_yaml), comparing keys (serve/limits).
 * Invariant: a key's text is nowhere in the file and nowhere kept; a file that others may read is
 *            refused. All problems of the section are told, each with its place.
 * Thread:    main, at start.
 * Limits:    LIMITS_KEYS_MAX keys, CONFIG_KEYS_FILE_MAX bytes of a file.
 */
#ifndef SHOAL_CLI_CONFIG_KEYS_H
#define SHOAL_CLI_CONFIG_KEYS_H

#include "cli/config.h"
#include "serve/limits.h"

#define CONFIG_KEYS_FILE_MAX 4096

struct config_keys {
    struct limits_key *keys;
    uint32_t count;
};

/* The key in a file's first line; ERR_CONFIG when others than its owner may read it. */
BASE_USE_RESULT bool config_keys_read(str *out, const char *path, struct arena *a, struct err *e);
/* All keys of `keys`, then one per path of files (scopes infer and read). False: every problem of
 * the section is told (config_tell), e has the first; or e has one of a file or of memory. */
BASE_USE_RESULT bool config_keys_load(struct config_keys *out, const struct config *c,
                                      const struct config_value *files, struct arena *a,
                                      struct err *e);

#endif
