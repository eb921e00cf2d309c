/* library_remove - a model of our own store, deleted with all that belongs to it.
 *
 * Owns:      which entries may be deleted, the order of it.
 * Not:       finding the entry (library), whether somebody has it loaded (the caller).
 * Invariant: nothing outside our store is deleted: other programs' models are refused with their
 *            own command, a file whose directory lies elsewhere is refused, of a link only the link
 *            goes. What a running pull holds stays.
 * Thread:    any; it may wait for the disk.
 */
#ifndef SHOAL_STORE_LIBRARY_REMOVE_H
#define SHOAL_STORE_LIBRARY_REMOVE_H

#include "store/library.h"

/* All pieces of a set, what a pull has left, or the directory of a safetensors model. ERR_REQUEST:
 * it is not in the store, or a pull is fetching it; ERR_IO names the file that stays, those before
 * it are gone. */
bool library_remove(const struct library_entry *m, str store, struct arena *a,
                    struct err *e) BASE_USE_RESULT;

#endif
