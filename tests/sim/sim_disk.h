/* sim_disk - a disk in memory that is slow, full, broken or gone as a seed says.
 *
 * Owns:      the bytes of its files, orders under way, injected faults.
 * Not:       what the bytes mean: the real tier_disk_carry_out does the work.
 * Invariant: orders are done in their order, when their time has come. A kill loses those that are
 *            not done and may leave the next one half done.
 * Thread:    one.
 */
#ifndef SHOAL_TESTS_SIM_DISK_H
#define SHOAL_TESTS_SIM_DISK_H

#include "base/chrono.h"
#include "kv/tier_disk.h"

#define SIM_DISK_FILES 256u
#define SIM_DISK_ORDERS 64u

struct sim_disk_faults { /* of 10000 operations so many */
    uint32_t read_error, write_error, full, flip, slow, gone;
};

struct sim_disk {
    struct { uint8_t *bytes; size_t size; bool is_there; } files[SIM_DISK_FILES];
    struct tier_order orders[SIM_DISK_ORDERS];
    int64_t due_ns[SIM_DISK_ORDERS];
    uint32_t first, count;
    uint32_t numbers[SIM_DISK_FILES]; /* for tier_disk.files */
    struct chrono_rng rng;
    struct chrono_fake *clock;
    struct sim_disk_faults faults;
    bool is_gone;       /* the directory vanished */
    int64_t writes_left; /* -1: no end; 0: the next write is torn */
    uint64_t done, flips;
};

void sim_disk_init(struct sim_disk *d, struct chrono_fake *clock, uint64_t seed);
void sim_disk_deinit(struct sim_disk *d);
/* As a new process finds it. */
struct tier_disk sim_disk_open(struct sim_disk *d);
/* The process is gone: what was ordered is lost, one write may be half there. */
void sim_disk_kill(struct sim_disk *d);

#endif
