/* sim_world - real sched, seq, kv over a device that holds tokens, and clients of it.
 *
 * Owns:      the one world: its clock, device, pool, trie, tier, sched, clients; what each request
 *            says alone; the checks of what must hold after every step.
 * Not:       who asks what and when, what goes wrong (sched_test draws it from a seed,
 *            sched_scenes_test writes it down).
 * Invariant: what every client reads is what its request says alone; pages have their holders.
 * Thread:    one.
 */
#ifndef SHOAL_TESTS_SIM_WORLD_H
#define SHOAL_TESTS_SIM_WORLD_H

#include "engine/sched.h"
#include "sim_backend.h"
#include "sim_disk.h"

#define VOCAB 60u
#define REQUESTS 40u /* of the fixed scenes; seeds have up to 24 */
#define TOKENS_MAX 1024u
#define CHOICES_MAX 3u

struct sim_reply {
    int32_t ids[TOKENS_MAX];
    uint32_t ids_count;
    char text[TOKENS_MAX * 8];
    size_t text_len;
    enum api_done reason;
    bool is_done;
};

enum client_state { CLIENT_LATER, CLIENT_OPEN, CLIENT_DONE, CLIENT_CANCELLED };

struct client {
    struct api_request rq;
    struct api_message message;
    int32_t prompt[TOKENS_MAX];
    uint32_t prompt_count;
    struct api_input input;
    str stop[2];
    uint32_t context_max;
    enum client_state state;
    struct sim_reply replies[CHOICES_MAX], expected[CHOICES_MAX];
    struct api_order order;
    int64_t arrives_ms, cancels_ms;
    bool is_held, is_slow; /* is_slow: returns credit late */
    size_t owed;           /* weight not returned yet */
    bool is_resumed, was_refused; /* was_refused: its pin found no room */
    bool is_parked;
    struct api_usage usage;
};
struct sim_world {
    uint64_t seed;
    struct chrono_rng rng, pin_rng, drop_rng; /* what is pinned, dropped: of numbers of its own */
    struct chrono_fake clock;
    struct vocab *vocab;
    struct mem mem;
    struct kv_layout layout;
    struct kv_pool pool;
    struct kv_trie trie;
    struct sched sched;
    struct device device;
    bool has_trie, has_tier, keeps_ram;
    uint32_t pin_permille;
    struct sim_disk disk;
    struct tier_disk files;
    struct kv_tier *tier;
    uint64_t tier_bytes;
    struct client clients[REQUESTS];
    uint32_t clients_count;
    int64_t credit;
    uint32_t reserve_tokens, idle_permille;
    uint64_t lost_at;
    uint32_t losses;
};

extern struct sim_world sim;

/* Over all worlds so far: was what is tested there at all? */
extern struct sim_pins { uint64_t named, most; } sim_pins;
extern uint64_t sim_parked;
extern struct sim_tiers { uint64_t restored, lost, bad_sums, off, evictions; } sim_tiers;

/* Says what, and how to run a seed again; ends the program. */
_Noreturn void sim_fail(const char *what, int64_t a, int64_t b);
static inline void expect(bool ok, const char *what, int64_t a, int64_t b)
{
    if (!ok)
        sim_fail(what, a, b);
}
static inline uint32_t below(uint32_t n) { return (uint32_t)chrono_rng_below(&sim.rng, n); }
static inline bool chance(uint32_t percent) { return below(100) < percent; }
static inline int64_t now_ms(void) { return sim.clock.ns / 1000000; }

struct vocab *sim_vocab(void);
/* What that choice says, from the request and the plain list of its tokens. */
void sim_expected(struct client *c, uint32_t choice);
/* Pool, trie, tier and sched over the world's device; their end, and that nothing is left. */
void sim_open(void);
void sim_close(void);
/* The job as prompt_make would have made it, resumed from what the client has. */
void sim_submit(struct client *c);
bool sim_all_over(void);

void sim_check_reply(const struct client *c, uint32_t choice);
/* Nobody finds more than what his own scope and the public one have said before: whatever holds
 * it, pool, RAM or disk. */
void sim_check_cached(const struct client *c);
/* Every reference has its holder, and the other way round. */
void sim_check_pages(void);
/* Whatever was evicted meanwhile: the path to a pin is there, with all that its next token sees,
 * and all pins together hold what they may and no more. */
void sim_check_pins(void);
/* Class idle is alone or not there. */
void sim_check_idle(void);

#endif
