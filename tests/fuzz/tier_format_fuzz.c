/* Any bytes as a tier file: nothing is read past them, and what was read writes back the same. */
#include <stdlib.h>
#include <string.h>

#include "kv/tier_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tier_header h, again;
    struct err e;
    uint8_t head[TIER_FORMAT_BLOCK], record[TIER_FORMAT_RECORD_SIZE];
    str file = str_view(data, size);
    if (!tier_format_read_header(&h, str_sub(file, 0, base_min(size, TIER_FORMAT_BLOCK)), &e))
        return 0;
    tier_format_write_header(head, &h);
    if (!tier_format_read_header(&again, str_view(head, sizeof head), &e) ||
        memcmp(&h, &again, sizeof h) != 0)
        abort();
    if (tier_format_slot_offset(&h, h.slots) > UINT64_MAX / 2 ||
        tier_format_record_offset(h.slots) > tier_format_data_offset(&h))
        abort();
    str table = str_from(file, base_min(size, TIER_FORMAT_BLOCK));
    for (uint32_t slot = 0; slot < h.slots; slot++) {
        struct tier_record r;
        if (!tier_format_read_record(&r, &h, slot, table))
            continue;
        tier_format_write_record(record, &h, slot, &r);
        /* Spare bytes are not kept. */
        struct tier_record same;
        if (!tier_format_read_record(&same, &h, 0, str_view(record, sizeof record)) && slot == 0)
            abort();
    }
    return 0;
}
