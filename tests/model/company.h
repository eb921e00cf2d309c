/* company - the numerics contract, 1, for one model: a token's logits and draw have the same bits
 * whatever else is in the step, however its prompt was cut, wherever its prefix came from, on any
 * number of threads.
 *
 * Owns:      the sequences, the axes, the comparison. The truth is each sequence alone, its prompt
 *            in one piece, its reply token by token, on one thread.
 * Not:       which models and levels (the tests), loading and running (model_run).
 *
 *     short: alone | forked, restored prefix | a batch with chunks of 1, 7, 32, all | the same cut
 *            otherwise, the reply in one step, on two threads
 *     long:  also every chunk alone, batches of 8 and all in two cuts, on one and two threads
 *
 * Thread:    one. A difference fails the test with its place.
 * Limits:    COMPANY_SEQS sequences of 1 to 300 tokens.
 */
#ifndef SHOAL_TESTS_MODEL_COMPANY_H
#define SHOAL_TESTS_MODEL_COMPANY_H

#include "model/model_run.h"

#define COMPANY_SEQS 13u

struct company {
    const char *path;  /* of the GGUF file */
    const char *backend; /* NULL: as model_run_open chooses */
    const char *level; /* NULL: the best of this machine */
    enum act act;
    bool is_kv_int8;
    bool is_one_thread; /* leaves the second thread out, and what is tried on it */
    uint32_t count;    /* the first so many sequences; the third is the first longer than a block */
    bool is_long;
};

void company_check(const struct company *c);
bool company_is_long(void); /* TEST_TIER */

#endif
