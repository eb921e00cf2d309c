/* library_scan - from a directory's files to models: sets, projectors, drafts, safetensors.
 *
 * Owns:      the list while it grows; what is a model and what belongs to one.
 * Not:       where to look (library, library_foreign), whether a file is sound (library).
 * Invariant: a set `BASE-NNNNN-of-NNNNN.gguf` is one entry, broken when a piece is missing. Names
 *            that begin with mmproj or mtp- or contain imatrix are never models.
 * Thread:    as library.
 * Limits:    LIBRARY_ENTRIES_MAX entries, LIBRARY_FILES_MAX files a directory tree.
 */
#ifndef SHOAL_STORE_LIBRARY_SCAN_H
#define SHOAL_STORE_LIBRARY_SCAN_H

#include "store/library.h"

#define LIBRARY_SCAN_PIECES_MAX 512u
#define LIBRARY_SCAN_NOTES_MAX 16u

/* "BASE-00001-of-00003.gguf"; false: the name is not that of a piece. */
struct library_scan_piece {
    str base;
    uint32_t number, total;
};
bool library_scan_parse_piece(str name, struct library_scan_piece *out) BASE_USE_RESULT;
bool library_scan_is_auxiliary(str name); /* mmproj..., mtp-..., ...imatrix...: never a model */

/* An entry and what is needed to know whether it changed. */
struct library_scan_model {
    struct library_entry entry;
    uint64_t digest_low, digest_high; /* over path, size and time of each piece */
};

struct library_scan {
    struct arena *arena;
    struct library_scan_model *models;
    uint32_t count, size;
    str notes[LIBRARY_SCAN_NOTES_MAX];
    uint32_t notes_count;
    struct err *e;
};

struct library_scan_dir {
    str path;
    enum library_source source;
    uint32_t depth; /* directories below path that are looked into */
    str dir_name;   /* name of a safetensors model at path itself; empty: the directory's */
};
/* Adds the models of a directory tree. A directory that is not there adds nothing; one that cannot
 * be read adds a note. False: memory or a limit, told in s->e. */
bool library_scan_dir(struct library_scan *s, const struct library_scan_dir *d) BASE_USE_RESULT;

/* A new model with zeroed fields but its source, or NULL (s->e). */
struct library_scan_model *library_scan_add(struct library_scan *s,
                                            enum library_source source);
/* Adds a piece's path, size and time to the model's. */
void library_scan_add_piece(struct library_scan_model *m, str path, uint64_t size,
                            int64_t modified_ns);
void library_scan_note(struct library_scan *s, const struct err *why);

#endif
