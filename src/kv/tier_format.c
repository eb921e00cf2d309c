#include "kv/tier_format.h"

#include <string.h>

#define HEADER_MAGIC "shoalkv\n"
#define RECORD_MAGIC 0x5243564bu /* "KVCR" */
#define HEADER_SUM_AT (TIER_FORMAT_BLOCK - 8)
#define RECORD_SUM_AT (TIER_FORMAT_RECORD_SIZE - 8)
#define BUILD_AT 64u
#define MODEL_AT 128u
#define TEXT_SIZE 64u

/* --- numbers, little endian whatever the machine ------------------------------------------- */

static void tier_format_put(uint8_t *at, uint64_t v, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        at[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t tier_format_take(const void *from, size_t offset, uint32_t size)
{
    const uint8_t *at = (const uint8_t *)from + offset;
    uint64_t v = 0;
    for (uint32_t i = 0; i < size; i++)
        v |= (uint64_t)at[i] << 8 * i;
    return v;
}

/* --- places -------------------------------------------------------------------------------- */

static uint64_t tier_format_slot_size(const struct tier_header *h)
{
    return base_align(h->page_size, TIER_FORMAT_BLOCK);
}

uint64_t tier_format_data_offset(const struct tier_header *h)
{
    return TIER_FORMAT_BLOCK + base_align(h->slots * TIER_FORMAT_RECORD_SIZE, TIER_FORMAT_BLOCK);
}

uint64_t tier_format_slot_offset(const struct tier_header *h, uint32_t slot)
{
    return tier_format_data_offset(h) + slot * tier_format_slot_size(h);
}

uint64_t tier_format_record_offset(uint32_t slot)
{
    return TIER_FORMAT_BLOCK + slot * TIER_FORMAT_RECORD_SIZE;
}

uint32_t tier_format_slots(uint64_t page_size, uint64_t size)
{
    uint64_t slots = size / base_align(base_max(page_size, 1), TIER_FORMAT_BLOCK);
    return (uint32_t)base_max(1, base_min(slots, TIER_FORMAT_SLOTS_MAX));
}

/* --- header -------------------------------------------------------------------------------- */

void tier_format_write_header(uint8_t out[TIER_FORMAT_BLOCK], const struct tier_header *h)
{
    memset(out, 0, TIER_FORMAT_BLOCK);
    memcpy(out, HEADER_MAGIC, 8);
    tier_format_put(out + 8, TIER_FORMAT_VERSION, 4);
    tier_format_put(out + 12, TIER_FORMAT_RECORD_SIZE, 4);
    tier_format_put(out + 16, h->owner.id.low, 8);
    tier_format_put(out + 24, h->owner.id.high, 8);
    tier_format_put(out + 32, h->group, 4);
    tier_format_put(out + 36, h->slots, 4);
    tier_format_put(out + 40, h->page_size, 8);
    memcpy(out + BUILD_AT, h->build, TEXT_SIZE - 1);
    memcpy(out + MODEL_AT, h->model, TEXT_SIZE - 1);
    tier_format_put(out + HEADER_SUM_AT, digest_xxh3(str_view(out, HEADER_SUM_AT), 0), 8);
}

bool tier_format_read_header(struct tier_header *out, str bytes, struct err *e)
{
    if (bytes.len < TIER_FORMAT_BLOCK)
        return err_set(e, ERR_FORMAT, "tier: a header of %zu bytes expected, the file has %zu",
                       TIER_FORMAT_BLOCK, bytes.len);
    if (memcmp(bytes.p, HEADER_MAGIC, 8) != 0)
        return err_set(e, ERR_FORMAT, "tier: not a tier file: it begins with other bytes");
    uint32_t version = (uint32_t)tier_format_take(bytes.p, 8, 4);
    if (version != TIER_FORMAT_VERSION)
        return err_set(e, ERR_UNSUPPORTED, "tier: version %u of the format, %u is read", version,
                       TIER_FORMAT_VERSION);
    uint64_t sum = digest_xxh3(str_sub(bytes, 0, HEADER_SUM_AT), 0);
    if (tier_format_take(bytes.p, HEADER_SUM_AT, 8) != sum)
        return err_set(e, ERR_FORMAT, "tier: the header's checksum does not match");
    struct tier_header h = {.group = (uint32_t)tier_format_take(bytes.p, 32, 4),
                            .slots = (uint32_t)tier_format_take(bytes.p, 36, 4),
                            .page_size = tier_format_take(bytes.p, 40, 8)};
    h.owner.id.low = tier_format_take(bytes.p, 16, 8);
    h.owner.id.high = tier_format_take(bytes.p, 24, 8);
    memcpy(h.build, bytes.p + BUILD_AT, TEXT_SIZE - 1);
    memcpy(h.model, bytes.p + MODEL_AT, TEXT_SIZE - 1);
    uint32_t record = (uint32_t)tier_format_take(bytes.p, 12, 4);
    if (record != TIER_FORMAT_RECORD_SIZE)
        return err_set(e, ERR_FORMAT, "tier: records of %u bytes, %zu expected", record,
                       TIER_FORMAT_RECORD_SIZE);
    if (h.slots == 0 || h.slots > TIER_FORMAT_SLOTS_MAX)
        return err_set(e, ERR_FORMAT, "tier: %u slots, 1 to %u expected", h.slots,
                       TIER_FORMAT_SLOTS_MAX);
    if (h.page_size == 0 || h.page_size > TIER_FORMAT_PAGE_MAX)
        return err_set(e, ERR_FORMAT, "tier: pages of %llu bytes, 1 to %llu expected",
                       (unsigned long long)h.page_size, (unsigned long long)TIER_FORMAT_PAGE_MAX);
    *out = h;
    return true;
}

/* --- records ------------------------------------------------------------------------------- */

/* Bound to owner, group and slot: a record that lies elsewhere is not one. */
static uint64_t tier_format_record_sum(const void *record, const struct tier_header *h,
                                       uint32_t slot)
{
    uint64_t seed = h->owner.id.low ^ ((uint64_t)h->group << 32 | slot);
    return digest_xxh3(str_view(record, RECORD_SUM_AT), seed);
}

void tier_format_write_record(uint8_t out[TIER_FORMAT_RECORD_SIZE], const struct tier_header *h,
                              uint32_t slot, const struct tier_record *r)
{
    memset(out, 0, TIER_FORMAT_RECORD_SIZE);
    tier_format_put(out, RECORD_MAGIC, 4);
    tier_format_put(out + 4, r->depth, 4);
    memcpy(out + 8, r->key.bytes, TIER_FORMAT_KEY_SIZE);
    memcpy(out + 40, r->parent.bytes, TIER_FORMAT_KEY_SIZE);
    tier_format_put(out + 72, r->used_s, 8);
    tier_format_put(out + 80, r->sum, 8);
    tier_format_put(out + RECORD_SUM_AT, tier_format_record_sum(out, h, slot), 8);
}

bool tier_format_read_record(struct tier_record *out, const struct tier_header *h, uint32_t slot,
                             str table)
{
    size_t at = slot * TIER_FORMAT_RECORD_SIZE;
    if (slot >= h->slots || table.len < at + TIER_FORMAT_RECORD_SIZE)
        return false;
    const char *p = table.p + at;
    if (tier_format_take(p, 0, 4) != RECORD_MAGIC ||
        tier_format_take(p, RECORD_SUM_AT, 8) != tier_format_record_sum(p, h, slot))
        return false;
    struct tier_record r = {.depth = (uint32_t)tier_format_take(p, 4, 4),
                            .used_s = tier_format_take(p, 72, 8),
                            .sum = tier_format_take(p, 80, 8)};
    memcpy(r.key.bytes, p + 8, TIER_FORMAT_KEY_SIZE);
    memcpy(r.parent.bytes, p + 40, TIER_FORMAT_KEY_SIZE);
    if (r.depth == 0)
        return false;
    *out = r;
    return true;
}

uint64_t tier_format_sum(const struct kv_key *key, str page)
{
    return digest_xxh3(page, tier_format_take(key->bytes, 0, 8));
}
