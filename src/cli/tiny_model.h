/* tiny_model - a model of a megabyte that says letters: something for an engine to fail with.
 *
 * Owns:      its shape, weights and vocabulary.
 * Not:       reading it (fmt, arch), the models of the tests (tests/model/make_tiny.py).
 * Invariant: the same bytes at each call. The output rows of all tokens but small letters and the
 *            blank are zero, so that greedily it says ASCII, a byte a token, and never an end: a
 *            reply is as long as it may be.
 * Thread:    any.
 * Limits:    TINY_MODEL_CONTEXT tokens.
 */
#ifndef SHOAL_CLI_TINY_MODEL_H
#define SHOAL_CLI_TINY_MODEL_H

#include "base/err.h"

#define TINY_MODEL_CONTEXT 2048u

/* As a GGUF file. ERR_IO, ERR_MEMORY. */
BASE_USE_RESULT bool tiny_model_write(const char *path, struct err *e);

#endif
