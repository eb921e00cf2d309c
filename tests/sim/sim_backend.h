/* sim_backend - a device without numbers: pages hold tokens, an answer is a hash of what it sees.
 *
 * Owns:      the pages' contents, checks on every step it gets, injected failures.
 * Not:       which answer is right: sim_answer says it from the plain list of tokens, and the
 *            scheduler's bookkeeping has to lead to the same.
 * Invariant: a row reads only pages of its own table, and each slot must hold the position it
 *            stands for. A wrong page, a stale copy, a missing row changes the hash or stops the
 *            test.
 * Thread:    one.
 */
#ifndef SHOAL_TESTS_SIM_BACKEND_H
#define SHOAL_TESTS_SIM_BACKEND_H

#include "base/chrono.h"
#include "tensor/backend.h"

/* Bytes of a page of any group: id and position of each token. */
#define SIM_PAGE_SIZE ((size_t)KV_PAGE_TOKENS * 2 * sizeof(int32_t))

struct device {
    struct kv_layout layout;
    struct step_limits limits;
    uint32_t vocab;
    int32_t eos;
    uint32_t eos_rate;     /* one token of so many is the end */
    uint32_t pages[KV_GROUPS_MAX];
    struct sim_slot *slots[KV_GROUPS_MAX];
    struct step_out out;
    bool is_lost;          /* the next submit fails */
    uint64_t rows, steps;
    struct chrono_fake *clock; /* a step takes step_ns + rows * row_ns of it; NULL: no time */
    int64_t step_ns, row_ns;
    int64_t page_ns, pages_ns; /* a copy of a page takes page_ns of it; all of them so far */
    void (*on_broken)(const char *what, int64_t a, int64_t b); /* does not return */
};

extern const struct backend sim_backend;

void sim_device_init(struct device *d);
void sim_device_deinit(struct device *d);

/* The answer after tokens[count] (position count - 1 is the row). adjust: a sum over the entries of
 * sim_adjust_hash, so that their order does not matter; eos_banned: the end cannot be drawn. */
struct sim_question {
    const int32_t *tokens;
    uint32_t count;
    uint64_t adjust, seed;
    uint32_t position;
    bool eos_banned;
};
int32_t sim_answer(const struct device *d, const struct sim_question *q);
uint64_t sim_adjust_hash(int32_t id, float factor, float add);

#endif
