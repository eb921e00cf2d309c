/* library_foreign - models that other programs have downloaded, read in place.
 *
 * Owns:      where those programs keep models and how: Ollama, Hugging Face hub cache, LM Studio.
 * Not:       how files become models (library_scan).
 * Invariant: nothing is ever written there. A digest is taken as a file name only if it is sha256:
 *            and 64 hex digits, so a manifest cannot point outside its store.
 * Thread:    as library.
 * Limits:    manifests of 1 MiB; LIBRARY_FILES_MAX entries a store.
 */
#ifndef SHOAL_STORE_LIBRARY_FOREIGN_H
#define SHOAL_STORE_LIBRARY_FOREIGN_H

#include "store/library_scan.h"

/* Each adds what it finds; a store that is off or not there adds nothing. False as
 * library_scan_dir. */
bool library_foreign_ollama(struct library_scan *s,
                            const struct library_options *o) BASE_USE_RESULT;
bool library_foreign_hf(struct library_scan *s, const struct library_options *o) BASE_USE_RESULT;
bool library_foreign_lmstudio(struct library_scan *s,
                              const struct library_options *o) BASE_USE_RESULT;

#endif
