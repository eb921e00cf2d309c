#include "sim_disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FAST_NS 300000
#define SLOW_NS INT64_C(7000000000)

static bool happens(struct sim_disk *d, uint32_t rate)
{
    return rate && chrono_rng_below(&d->rng, 10000) < rate;
}

static int sim_make(void *self, uint32_t file)
{
    struct sim_disk *d = self;
    if (d->is_gone)
        return ENOENT;
    if (file >= SIM_DISK_FILES || happens(d, d->faults.full))
        return ENOSPC;
    if (d->files[file].is_there)
        return EEXIST;
    d->files[file].is_there = true;
    return 0;
}

static int sim_remove(void *self, uint32_t file)
{
    struct sim_disk *d = self;
    if (d->is_gone || file >= SIM_DISK_FILES || !d->files[file].is_there)
        return ENOENT;
    free(d->files[file].bytes);
    memset(&d->files[file], 0, sizeof d->files[file]);
    return 0;
}

static int sim_read(void *self, uint32_t file, void *to, size_t size, uint64_t offset)
{
    struct sim_disk *d = self;
    if (d->is_gone || file >= SIM_DISK_FILES || !d->files[file].is_there)
        return ENOENT;
    if (happens(d, d->faults.read_error))
        return EIO;
    if (offset > d->files[file].size || size > d->files[file].size - offset)
        return ENODATA;
    if (size)
        memcpy(to, d->files[file].bytes + offset, size);
    return 0;
}

static int sim_write(void *self, uint32_t file, const void *from, size_t size, uint64_t offset)
{
    struct sim_disk *d = self;
    if (d->is_gone || file >= SIM_DISK_FILES || !d->files[file].is_there)
        return ENOENT;
    if (happens(d, d->faults.write_error))
        return EIO;
    if (happens(d, d->faults.full))
        return ENOSPC;
    if (d->writes_left == 0)
        size = chrono_rng_below(&d->rng, size + 1); /* torn */
    d->writes_left -= d->writes_left >= 0;
    if (offset + size > d->files[file].size) {
        uint8_t *more = realloc(d->files[file].bytes, offset + size);
        memset(more + d->files[file].size, 0, offset + size - d->files[file].size);
        d->files[file].bytes = more;
        d->files[file].size = offset + size;
    }
    if (size)
        memcpy(d->files[file].bytes + offset, from, size);
    if (size && happens(d, d->faults.flip)) { /* what lies there rots */
        d->files[file].bytes[offset + chrono_rng_below(&d->rng, size)] ^= 4;
        d->flips++;
    }
    return 0;
}

static int sim_size(void *self, uint32_t file, uint64_t *size)
{
    struct sim_disk *d = self;
    if (d->is_gone || file >= SIM_DISK_FILES || !d->files[file].is_there)
        return ENOENT;
    *size = d->files[file].size;
    return 0;
}

static uint64_t sim_free_bytes(void *self)
{
    (void)self;
    return UINT64_C(1) << 40;
}

static bool sim_start(void *self, const struct tier_order *o)
{
    struct sim_disk *d = self;
    if (d->count == SIM_DISK_ORDERS)
        return false;
    uint32_t at = (d->first + d->count++) % SIM_DISK_ORDERS;
    d->orders[at] = *o;
    d->due_ns[at] = d->clock->ns + (happens(d, d->faults.slow) ? SLOW_NS : 0) +
                    (int64_t)chrono_rng_below(&d->rng, FAST_NS * 20);
    return true;
}

static bool sim_next(void *self, struct tier_order *out)
{
    struct sim_disk *d = self;
    if (!d->count || d->due_ns[d->first] > d->clock->ns)
        return false;
    *out = d->orders[d->first];
    d->first = (d->first + 1) % SIM_DISK_ORDERS;
    d->count--;
    d->is_gone = d->is_gone || happens(d, d->faults.gone);
    struct tier_io io = {d, sim_make, sim_remove, sim_read, sim_write, sim_size, sim_free_bytes};
    tier_disk_carry_out(&io, out);
    out->ns = FAST_NS;
    d->done++;
    return true;
}

static void sim_wait(void *self, int64_t timeout_ms)
{
    struct sim_disk *d = self;
    int64_t until = d->clock->ns + timeout_ms * 1000000;
    int64_t due = d->count ? d->due_ns[d->first] : until;
    d->clock->ns = due < d->clock->ns ? d->clock->ns : due < until ? due : until;
}

void sim_disk_init(struct sim_disk *d, struct chrono_fake *clock, uint64_t seed)
{
    memset(d, 0, sizeof *d);
    d->clock = clock;
    d->writes_left = -1;
    chrono_rng_init(&d->rng, seed);
}

void sim_disk_deinit(struct sim_disk *d)
{
    for (uint32_t i = 0; i < SIM_DISK_FILES; i++)
        free(d->files[i].bytes);
}

struct tier_disk sim_disk_open(struct sim_disk *d)
{
    struct tier_disk t = {.self = d, .start = sim_start, .next = sim_next, .wait = sim_wait,
                          .io = {d, sim_make, sim_remove, sim_read, sim_write, sim_size,
                                 sim_free_bytes},
                          .files = d->numbers};
    for (uint32_t i = 0; i < SIM_DISK_FILES; i++)
        if (d->files[i].is_there && !d->is_gone)
            d->numbers[t.files_count++] = i;
    return t;
}

void sim_disk_kill(struct sim_disk *d)
{
    struct tier_io io = {d, sim_make, sim_remove, sim_read, sim_write, sim_size, sim_free_bytes};
    if (d->count && d->orders[d->first].kind == TIER_ORDER_WRITE) {
        d->writes_left = (int64_t)chrono_rng_below(&d->rng, 3);
        tier_disk_carry_out(&io, &d->orders[d->first]);
        d->writes_left = -1;
    }
    d->count = 0;
}
