/* family - a small GGUF file per model family, for tests that need no weights but zeros.
 *
 * Owns:      the keys of each file, writing it with the tensors a plan wants.
 * Not:       what a family is (src/arch); weights with values (tests/model).
 * Thread:    one.
 * Limits:    FAMILY_KEYS_MAX keys, files of some MB in memory.
 */
#ifndef SHOAL_TESTS_UNIT_ARCH_FAMILY_H
#define SHOAL_TESTS_UNIT_ARCH_FAMILY_H

#include "arch/arch.h"

#define FAMILY_KEYS_MAX 24u
#define FAMILY_NOTED_MAX 8u

struct family_key {
    const char *key;  /* without the architecture: ".block_count" */
    char type;        /* u: u32, f: f32, b: bool, s: text; 0: none */
    double number;
    const char *text;
};

struct family {
    const char *name;      /* of the plan's golden */
    const char *arch_name; /* row of arch_table */
    const char *file_name; /* general.architecture */
    struct family_key keys[FAMILY_KEYS_MAX];
    const char *noted[FAMILY_NOTED_MAX]; /* optional tensors it has */
};

extern const struct family families[];
extern const size_t families_count;

/* What differs from a good file. */
struct family_change {
    const char *file_name;         /* another architecture */
    const struct family_key *key;  /* replaces or adds that key; type 0 takes it away */
    const char *without, *wider;   /* a tensor: left out; one column more */
    const char *extra;             /* a tensor more */
};

/* A file in memory: the family's keys and the plan's tensors, or only those that read_hparams looks
 * at if plan is NULL. change may be NULL. The path is valid until family_drop. */
const char *family_file(const struct family *f, const struct plan *plan,
                        const struct family_change *change, int *fd);
void family_drop(int fd);

#endif
