#include "base/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/digest.h"

/* A slot is 0 when empty, else the entry's hash above its index + 1: most lookups of absent keys
 * and most collisions end in the slot array. */
#define MAP_SLOTS_MIN 16u
#define MAP_ENTRIES_LIMIT (UINT32_MAX / 4)

void map_init(struct map *m, uint32_t entries_max)
{
    must(entries_max <= MAP_ENTRIES_LIMIT);
    *m = (struct map){.entries_max = entries_max};
    digest_random(&m->seed, sizeof m->seed);
}

void map_deinit(struct map *m)
{
    free(m->slots);
    free(m->entries);
    *m = (struct map){0};
}

static uint64_t map_slot(const struct map *m, uint32_t index)
{
    return (uint64_t)m->entries[index].hash << 32 | (index + 1);
}

/* A free slot exists always: at most 3/4 are taken. */
static void map_slot_add(struct map *m, uint32_t index)
{
    uint32_t mask = m->slots_size - 1, at = m->entries[index].hash & mask;
    while (m->slots[at])
        at = (at + 1) & mask;
    m->slots[at] = map_slot(m, index);
}

static bool map_resize_slots(struct map *m, uint32_t size)
{
    uint64_t *slots = calloc(size, sizeof *slots);
    if (!slots)
        return false;
    free(m->slots);
    m->slots = slots;
    m->slots_size = size;
    for (uint32_t i = 0; i < m->count; i++)
        map_slot_add(m, i);
    return true;
}

bool map_reserve(struct map *m, uint32_t count)
{
    if (count > m->entries_max)
        return false;
    if (count > m->entries_size) {
        uint32_t size = m->entries_size ? m->entries_size * 2 : 8;
        if (size < count)
            size = count;
        if (size > m->entries_max)
            size = m->entries_max;
        struct map_entry *entries = realloc(m->entries, size * sizeof *entries);
        if (!entries)
            return false;
        m->entries = entries;
        m->entries_size = size;
    }
    uint32_t slots = m->slots_size ? m->slots_size : MAP_SLOTS_MIN;
    while ((uint64_t)slots * 3 < (uint64_t)count * 4)
        slots *= 2;
    return slots == m->slots_size || map_resize_slots(m, slots);
}

static bool map_key_eq(const struct map_entry *a, const struct map_entry *b)
{
    if (a->len != b->len)
        return false;
    if (a->len == MAP_NUMBER)
        return a->key.number == b->key.number;
    return a->len == 0 || !memcmp(a->key.p, b->key.p, a->len);
}

/* Slot position of an equal key, or slots_size. */
static uint32_t map_search(const struct map *m, const struct map_entry *key)
{
    if (m->count == 0)
        return m->slots_size;
    uint32_t mask = m->slots_size - 1, at = key->hash & mask;
    for (; m->slots[at]; at = (at + 1) & mask) {
        uint64_t slot = m->slots[at];
        if ((uint32_t)(slot >> 32) == key->hash &&
            map_key_eq(&m->entries[(uint32_t)slot - 1], key))
            return at;
    }
    return m->slots_size;
}

static bool map_put_entry(struct map *m, struct map_entry entry)
{
    uint32_t at = map_search(m, &entry);
    if (at < m->slots_size) {
        m->entries[(uint32_t)m->slots[at] - 1].value = entry.value;
        return true;
    }
    if (m->count == m->entries_max || !map_reserve(m, m->count + 1))
        return false;
    m->entries[m->count] = entry;
    map_slot_add(m, m->count++);
    return true;
}

/* Closing the gap keeps every run of slots free of holes, so no marks of deleted keys pile up. */
static void map_slot_delete(struct map *m, uint32_t hole)
{
    uint32_t mask = m->slots_size - 1;
    for (uint32_t at = (hole + 1) & mask; m->slots[at]; at = (at + 1) & mask) {
        uint32_t home = (uint32_t)(m->slots[at] >> 32) & mask;
        if (((at - home) & mask) < ((at - hole) & mask))
            continue; /* its home lies behind the hole: it must not move before it */
        m->slots[hole] = m->slots[at];
        hole = at;
    }
    m->slots[hole] = 0;
}

static bool map_delete_entry(struct map *m, struct map_entry key)
{
    uint32_t at = map_search(m, &key);
    if (at == m->slots_size)
        return false;
    uint32_t index = (uint32_t)m->slots[at] - 1, last = m->count - 1;
    map_slot_delete(m, at);
    if (index != last) {
        uint32_t moved = map_search(m, &m->entries[last]);
        must(moved < m->slots_size);
        m->entries[index] = m->entries[last];
        m->slots[moved] = map_slot(m, index);
    }
    m->count--;
    return true;
}

static struct map_entry map_entry_of(const struct map *m, str key, uint64_t value)
{
    uint64_t h = digest_xxh3(key, m->seed);
    return (struct map_entry){
        .key.p = key.p, .len = (uint32_t)key.len, .hash = (uint32_t)(h ^ h >> 32), .value = value};
}

/* Multiply and fold: two rounds are enough to spread 64 seeded bits (the mixer of splitmix64). */
static struct map_entry map_entry_of_number(const struct map *m, uint64_t key, uint64_t value)
{
    uint64_t h = key ^ m->seed;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return (struct map_entry){
        .key.number = key, .len = MAP_NUMBER, .hash = (uint32_t)(h ^ h >> 32), .value = value};
}

static uint64_t *map_find_entry(const struct map *m, struct map_entry key)
{
    uint32_t at = map_search(m, &key);
    return at == m->slots_size ? NULL : &m->entries[(uint32_t)m->slots[at] - 1].value;
}

bool map_put(struct map *m, str key, uint64_t value)
{
    return key.len < MAP_NUMBER && map_put_entry(m, map_entry_of(m, key, value));
}

bool map_put_number(struct map *m, uint64_t key, uint64_t value)
{
    return map_put_entry(m, map_entry_of_number(m, key, value));
}

uint64_t *map_find(const struct map *m, str key)
{
    return key.len < MAP_NUMBER ? map_find_entry(m, map_entry_of(m, key, 0)) : NULL;
}

uint64_t *map_find_number(const struct map *m, uint64_t key)
{
    return map_find_entry(m, map_entry_of_number(m, key, 0));
}

uint64_t map_value(const struct map *m, str key, uint64_t otherwise)
{
    const uint64_t *v = map_find(m, key);
    return v ? *v : otherwise;
}

uint64_t map_value_number(const struct map *m, uint64_t key, uint64_t otherwise)
{
    const uint64_t *v = map_find_number(m, key);
    return v ? *v : otherwise;
}

bool map_delete(struct map *m, str key)
{
    return key.len < MAP_NUMBER && map_delete_entry(m, map_entry_of(m, key, 0));
}

bool map_delete_number(struct map *m, uint64_t key)
{
    return map_delete_entry(m, map_entry_of_number(m, key, 0));
}
