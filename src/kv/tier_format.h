/* tier_format - bytes of a tier file: its header and the table of records in front of its pages.
 *
 * Owns:      layout, version, checksums of header and records, the strict reader.
 * Not:       files and directories (tier_disk), which pages are kept (kv_tier), a page's content.
 * Invariant: what cannot be proved whole is not there: a header or a record that fails its sum, is
 *            of another owner, slot or version, or says more than the file can hold, is refused.
 *            docs/formats/tier.md.
 *
 *     0        4096            data_offset      + slot_size
 *     | header | record 0, 1 ..| page of slot 0 | page of slot 1 | ...
 *
 * Thread:    any; pure functions.
 * Limits:    TIER_FORMAT_SLOTS_MAX slots a file, TIER_FORMAT_PAGE_MAX bytes a page.
 */
#ifndef SHOAL_KV_TIER_FORMAT_H
#define SHOAL_KV_TIER_FORMAT_H

#include "base/digest.h"
#include "base/err.h"
#include "base/str.h"

#define TIER_FORMAT_VERSION 1u
#define TIER_FORMAT_BLOCK ((size_t)4096) /* everything is aligned to it: direct I/O */
#define TIER_FORMAT_RECORD_SIZE ((size_t)128)
#define TIER_FORMAT_SLOTS_MAX 4096u
#define TIER_FORMAT_PAGE_MAX ((uint64_t)1 << 30)
#define TIER_FORMAT_KEY_SIZE 32u

/* Name of a prefix: SHA-256 over the parent's key, the scope and the tokens of one page. */
struct kv_key {
    uint8_t bytes[TIER_FORMAT_KEY_SIZE];
};

/* Whose pages: files of another owner are never read. */
struct tier_owner {
    struct digest_128 id; /* of build, weights, numerics, layout of pages */
};

struct tier_header {
    struct tier_owner owner;
    uint32_t group, slots;
    uint64_t page_size; /* bytes of a page; a slot takes them rounded up to TIER_FORMAT_BLOCK */
    char build[64], model[64]; /* for people; NUL at the end */
};

struct tier_record {
    struct kv_key key, parent; /* parent: all zero for the first page of a prefix */
    uint32_t depth;            /* pages from the root, with this one: 1 .. */
    uint64_t used_s;           /* unix time of the last use that was written */
    uint64_t sum;              /* xxh3 of the page, seeded with the key */
};

uint64_t tier_format_data_offset(const struct tier_header *h); /* of slot 0; bytes of the head */
uint64_t tier_format_slot_offset(const struct tier_header *h, uint32_t slot);
uint64_t tier_format_record_offset(uint32_t slot);

/* Slots of a file of about `size` bytes; at least 1. */
uint32_t tier_format_slots(uint64_t page_size, uint64_t size);

void tier_format_write_header(uint8_t out[TIER_FORMAT_BLOCK], const struct tier_header *h);
/* bytes: the first TIER_FORMAT_BLOCK of a file, or fewer. ERR_FORMAT: damaged, or not ours.
 * ERR_UNSUPPORTED: another version; the sentence names it. */
BASE_USE_RESULT bool tier_format_read_header(struct tier_header *out, str bytes, struct err *e);

void tier_format_write_record(uint8_t out[TIER_FORMAT_RECORD_SIZE], const struct tier_header *h,
                              uint32_t slot, const struct tier_record *r);
/* table: the file from TIER_FORMAT_BLOCK on. False: the slot is empty, damaged, torn, of another
 * slot or owner. */
bool tier_format_read_record(struct tier_record *out, const struct tier_header *h, uint32_t slot,
                             str table);

uint64_t tier_format_sum(const struct kv_key *key, str page);

#endif
