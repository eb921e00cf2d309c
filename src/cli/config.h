/* config - every setting, in one table; the only reader of the environment.
 *
 * Owns:      the rows (config.c): key, type, range, default, flag; their values after config_load.
 * Not:       YAML syntax (config_yaml), a text judged by its row (config_spec), flags that are no
 *            settings (the commands), what a value is good for (whoever reads it by its key).
 * Invariant: per key: flag > SHOAL_ environment > file > default. A value is in range, or
 *            config_load has failed with its place. Keys of features that are not built take their
 *            default alone; anything else is refused by name wherever it comes from.
 * Thread:    load at start; afterwards immutable.
 * Limits:    file 1 MiB, depth 16, 20 problems told.
 */
#ifndef SHOAL_CLI_CONFIG_H
#define SHOAL_CLI_CONFIG_H

#include "base/buf.h"
#include "cli/config_spec.h"

#define CONFIG_FILE_MAX ((size_t)1 << 20)
#define CONFIG_PROBLEMS_MAX 20

/* One row of the table. */
struct config_row {
    const char *key; /* "engine.threads": SHOAL_ENGINE_THREADS */
    struct config_spec spec;
    const char *standard; /* default as text; NULL: none */
    const char *flag;     /* name of its flag, NULL: none */
    const char *commands; /* that take the flag: "serve run" */
    bool is_later;        /* not built: anything but the default is refused by name */
    const char *help;
};
/* All rows; ends with key == NULL. */
extern const struct config_row config_rows[];
const struct config_row *config_find_row(str key);

struct config_flag { /* a setting given on the command line, already known to be its flag */
    const struct config_row *row;
    str text;
};
struct config;
struct config_input {
    const char *path; /* of -config; NULL: SHOAL_CONFIG, else ~/.shoal/config.yaml if it exists */
    const struct config_flag *flags;
    uint32_t flags_count;
};
/* False: e has the first problem; problems holds all of them, one a line, or is empty when the file
 * could not be read at all. The config lives in a. */
bool config_load(struct config **out, const struct config_input *in, struct arena *a,
                 struct buf *problems, struct err *e) BASE_USE_RESULT;
/* Only defaults, environment and the given YAML text, named in messages (tests, fuzzing). */
bool config_load_text(struct config **out, const char *name, str yaml, struct arena *a,
                      struct buf *problems, struct err *e) BASE_USE_RESULT;

/* A problem of a section: the line "config.yaml:14:3: KEY: ..." more in the problems that
 * config_load was given, which live until the last section is read. An e without an error gets it.
 * n NULL: a sentence that has no place. */
void config_tell(const struct config *c, const struct config_yaml *n, const char *key,
                 const struct err *why, struct err *e);
uint32_t config_told(const struct config *c); /* problems so far */
/* After the last one: says how many were left out. */
void config_problems_end(const struct config *c);
/* Is that key's value the same in both, wherever it comes from? */
bool config_is_same(const struct config *a, const struct config *b, const struct config_row *r);
/* The file that was read, "" if none; the sha256 of its text in hex. */
str config_file(const struct config *c);
str config_file_sha256(const struct config *c);

/* A key that is no row, or of another type, is our mistake. */
const struct config_value *config_value(const struct config *c, const char *key);
int64_t config_number(const struct config *c, const char *key);
bool config_bool(const struct config *c, const char *key);
str config_text(const struct config *c, const char *key);
/* Is it this word: config_is(c, "engine.threads", "auto"). */
bool config_is(const struct config *c, const char *key, const char *word);

/* Other variables we read; a name that is not in the list of config.c is our mistake. Empty when
 * unset. */
str config_env(const char *name);
/* A variable that the configuration names (key_env); empty when unset. */
str config_secret(str name, struct arena *a);
/* $HOME, else the user's entry in the password file, else empty. */
str config_home(struct arena *a);

#endif
