/* map - the one hash map: keys are bytes or 64-bit numbers, values 64-bit numbers (or pointers).
 *
 * Owns:      its table and entries.
 * Not:       the bytes of its keys: they must outlive their entry (an arena, a mapped file).
 * Invariant: entries lie dense in the order of insertion; deletion moves the last entry into the
 *            hole. So walking is deterministic although the hash (xxh3) has a random seed, which
 *            keeps chosen keys from colliding.
 *
 *     slots:   [hash 32 | index+1 32] ...      power of two, at most 3/4 full, linear probing
 *     entries: [key, len, value] [..] [..]     0 .. count
 *
 * Thread:    its owner's; lookups by several threads are safe while nobody changes it.
 * Limits:    entries_max, given at init; map_put refuses past it.
 */
#ifndef SHOAL_BASE_MAP_H
#define SHOAL_BASE_MAP_H

#include "base/str.h"

struct map_entry {
    union {
        const char *p;
        uint64_t number;
    } key;
    uint32_t len; /* MAP_NUMBER: the key is a number */
    uint32_t hash;
    uint64_t value;
};
#define MAP_NUMBER UINT32_MAX

struct map {
    uint64_t *slots;
    struct map_entry *entries;
    uint32_t count, entries_max, entries_size, slots_size;
    uint64_t seed;
};

void map_init(struct map *m, uint32_t entries_max);
void map_deinit(struct map *m); /* also after a zeroed struct */

/* Room for count entries at once; false past entries_max or without memory. */
bool map_reserve(struct map *m, uint32_t count);

/* Sets key to value. False when the map is full (limit or memory) or the key is 4 GiB or longer;
 * the map is unchanged then. */
bool map_put(struct map *m, str key, uint64_t value) BASE_USE_RESULT;
bool map_put_number(struct map *m, uint64_t key, uint64_t value) BASE_USE_RESULT;

/* The value's address, valid until the next put or delete, or NULL. */
uint64_t *map_find(const struct map *m, str key);
uint64_t *map_find_number(const struct map *m, uint64_t key);
/* map_find with an answer for absent keys. */
uint64_t map_value(const struct map *m, str key, uint64_t otherwise);
uint64_t map_value_number(const struct map *m, uint64_t key, uint64_t otherwise);

/* False when the key was not there. */
bool map_delete(struct map *m, str key);
bool map_delete_number(struct map *m, uint64_t key);

/* for (uint32_t i = 0; i < m.count; i++) map_key(&m.entries[i]) */
static inline str map_key(const struct map_entry *e) { return str_view(e->key.p, e->len); }
static inline uint64_t map_of_pointer(const void *p) { return (uint64_t)(uintptr_t)p; }
static inline void *map_to_pointer(uint64_t v) { return (void *)(uintptr_t)v; }

#endif
