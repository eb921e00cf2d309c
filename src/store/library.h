/* library - which models are there, under which names.
 *
 * Owns:      the list of models of our own store and of other programs' stores, finding one by
 *            name, the record of files already checked.
 * Not:       what a model file holds (the caller's check), other stores' layouts
 *            (library_foreign), downloads (pull), which settings and variables say where (cli).
 * Invariant: stores are read, never written, but for the own store's `.checked`. One broken file
 *            is an entry that says why and hides nothing. Own models shadow equal names. What a
 *            pull has begun is an entry too, until it is whole.
 * Thread:    one at a time; a library is a picture of the moment it was opened.
 * Limits:    LIBRARY_ENTRIES_MAX models, LIBRARY_FILES_MAX directory entries per store.
 */
#ifndef SHOAL_STORE_LIBRARY_H
#define SHOAL_STORE_LIBRARY_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#define LIBRARY_ENTRIES_MAX 16384u
#define LIBRARY_FILES_MAX 100000u
#define LIBRARY_NEAR_MAX 10

enum library_source {
    LIBRARY_SOURCE_SHOAL,
    LIBRARY_SOURCE_OLLAMA,
    LIBRARY_SOURCE_HF,
    LIBRARY_SOURCE_LMSTUDIO,
    LIBRARY_SOURCE_DIR,
};

struct library_entry {
    str name;  /* "Qwen3-8B-Q4_K_M", "llama3:8b", "owner/repo" */
    str path;  /* the file, piece 1 of a set, or the directory; NUL-ended */
    str file_name;
    enum library_source source;
    bool is_safetensors; /* a directory with config.json */
    bool is_directory;   /* any other one: a path that was asked for, and no model */
    str broken;          /* why it cannot be used; empty: it can */
    bool is_partial;     /* a download that is not finished; broken says so too */
    uint64_t size;       /* of all pieces */
    uint64_t received;   /* is_partial: so much of it */
    int64_t modified_ns; /* of the newest piece */
    str projector, draft; /* mmproj and mtp- file that belong to it; empty: none */
    str params, system;   /* Ollama: path of its default parameters and system text */
};

struct library_options {
    str own;        /* directory of our store; it need not exist */
    bool own_only;
    str home;       /* where the usual places of the others begin */
    str ollama, hf, lmstudio; /* a directory, "auto" for the usual places, or "off" */
    str ollama_models, hf_hub_cache, hf_home; /* variables that move those places; or empty */
    const str *dirs;
    uint32_t dirs_count;
    /* Can the file, set or directory be used? False: a sentence in e. NULL: not asked. Its
     * answers are kept in the own store under tag, which names the checker's version, as long as
     * path, size and time of all pieces stay. */
    bool (*check)(void *ctx, const struct library_entry *entry, struct err *e);
    void *ctx;
    const char *tag;
};

struct library;
/* ERR_MEMORY, ERR_LIMIT. A store that cannot be read is a note, not an error. */
bool library_open(struct library **out, const struct library_options *o,
                  struct err *e) BASE_USE_RESULT;
void library_close(struct library *l); /* NULL is allowed */

/* Newest first, then by name. Entries live until close. */
uint32_t library_count(const struct library *l);
const struct library_entry *library_at(const struct library *l, uint32_t i);
/* Things to tell: a store that could not be read, as sentences. */
uint32_t library_note_count(const struct library *l);
str library_note(const struct library *l, uint32_t i);

struct library_query {
    str name;
    const str *aliases; /* glob, model, glob, model, ... */
    uint32_t aliases_count;
    bool is_cli; /* also an existing path, and a unique beginning of a name */
};
/* Exact name or file name without regard to case; ":latest" added or removed; aliases; a unique
 * beginning. *out may be broken: the caller says so. A path that is in no store gives an entry of
 * its own, made in a. ERR_NOT_FOUND names up to LIBRARY_NEAR_MAX near ones, ERR_REQUEST the
 * candidates of an ambiguous name. */
bool library_find(const struct library *l, const struct library_query *q, struct arena *a,
                  struct library_entry *out, struct err *e) BASE_USE_RESULT;

/* Every file of an entry: pieces in order, or what lies in its directory; of an unfinished one also
 * its parts and journals. NUL-ended, in a. ERR_IO, ERR_MEMORY. */
bool library_files(const struct library_entry *entry, struct arena *a, const str **out,
                   uint32_t *count, struct err *e) BASE_USE_RESULT;

const char *library_source_name(enum library_source s); /* "shoal" "ollama" "hf" "lmstudio" "dir" */

#endif
