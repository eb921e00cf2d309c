/* engine_vocab - small vocabularies for tests, made without a file.
 *
 * Owns:      nothing; the caller frees with vocab_free.
 * Thread:    any.
 */
#ifndef SHOAL_TESTS_ENGINE_VOCAB_H
#define SHOAL_TESTS_ENGINE_VOCAB_H

#include "text/vocab.h"

/* texts[count] in the form of GPT-2 files ("Ġ" is a blank); the last token ends a reply. */
struct vocab *engine_vocab_new(const char *const *texts, uint32_t count);
/* "Ġw0" .. "Ġw{count-2}", "<end>". */
struct vocab *engine_vocab_numbered(uint32_t count);
/* Token i is byte i, 256 ends a reply: any text can be said. */
struct vocab *engine_vocab_bytes(void);

#endif
