/* config_spec - what a value may be, and the value that a text means by it.
 *
 * Owns:      types, ranges, words; the sentence that says what was expected.
 * Not:       which keys there are and where their texts come from (config), maps and sections (the
 *            config_* of their kind).
 * Invariant: a value that was accepted is in its range; a word that is not built is refused as
 *            such.
 * Thread:    load at start.
 * Limits:    those of the arena.
 */
#ifndef SHOAL_CLI_CONFIG_SPEC_H
#define SHOAL_CLI_CONFIG_SPEC_H

#include "base/arena.h"
#include "base/err.h"

struct config_yaml;

enum config_type {
    CONFIG_TYPE_WORD, /* only the words of the spec */
    CONFIG_TYPE_BOOL,
    CONFIG_TYPE_INT,
    CONFIG_TYPE_REAL,
    CONFIG_TYPE_DURATION, /* number: ms */
    CONFIG_TYPE_SIZE,     /* number: bytes */
    CONFIG_TYPE_TEXT,
    CONFIG_TYPE_PATH, /* "~/" becomes the home directory */
    CONFIG_TYPE_LIST, /* of texts; a single text is a list of one */
    CONFIG_TYPE_PATHS,
    CONFIG_TYPE_MAP,     /* text to text; items alternate */
    CONFIG_TYPE_SECTION, /* members of their own */
};

/* What a value may be; also used by the flags of commands. */
struct config_spec {
    enum config_type type;
    const char *words;       /* "auto off": accepted beside the type, or NULL */
    int64_t min, max;        /* INT, DURATION, SIZE, REAL; both 0: any from 0 on */
};

enum config_source {
    CONFIG_SOURCE_DEFAULT,
    CONFIG_SOURCE_FILE,
    CONFIG_SOURCE_ENV,
    CONFIG_SOURCE_FLAG,
};

struct config_value {
    enum config_source source;
    bool is_set;  /* false: no default and nowhere given */
    bool is_word; /* text is one of the spec's words */
    str text;     /* as given; a path with its home */
    int64_t number;
    double real;
    const str *items;
    uint32_t items_count;
    const struct config_yaml *section; /* node of a section, list or map; NULL: not from a file */
};

/* Scalar text by a spec: ERR_CONFIG "integer 0..65536 expected, got "many"". */
bool config_spec_parse(const struct config_spec *s, str text, struct arena *a,
                       struct config_value *out, struct err *e) BASE_USE_RESULT;
/* False, always: what was expected instead of the text, or of what `got` says unless it is NULL. */
bool config_spec_refuse(const struct config_spec *s, const char *got, str text, struct err *e);
/* The path with its home. False: it begins with ~ and there is none. */
bool config_spec_path(str *out, str text, struct arena *a, struct err *e) BASE_USE_RESULT;

#endif
