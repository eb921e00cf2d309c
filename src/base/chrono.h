/* chrono - time and random numbers that a test can own.
 *
 * Owns:      the two clocks; one seeded generator.
 * Not:       timers (wire/loop), secrets (digest_random), the sampler's draws (tensor/sample.h).
 * Invariant: code that decides by time takes a struct chrono or a number; only chrono_real reads
 *            the machine's clocks. A generator with the same seed gives the same numbers forever.
 * Thread:    chrono_real: any. A fake or a generator: its owner's.
 */
#ifndef SHOAL_BASE_CHRONO_H
#define SHOAL_BASE_CHRONO_H

#include "base/base.h"

struct chrono {
    void *self;
    int64_t (*mono_ns)(void *self); /* never goes back; no meaning outside this boot */
    int64_t (*unix_ms)(void *self); /* wall clock */
};

/* The machine's clocks. */
extern const struct chrono chrono_real;

static inline int64_t chrono_ns(const struct chrono *c) { return c->mono_ns(c->self); }
static inline int64_t chrono_ms(const struct chrono *c) { return c->mono_ns(c->self) / 1000000; }
static inline int64_t chrono_unix_ms(const struct chrono *c) { return c->unix_ms(c->self); }

/* A clock that stands until it is moved; the wall clock moves along. */
struct chrono_fake {
    int64_t ns, unix_ms_at_zero;
};
struct chrono chrono_fake_clock(struct chrono_fake *f);
static inline void chrono_fake_add_ms(struct chrono_fake *f, int64_t ms) { f->ns += ms * 1000000; }

/* xoshiro256++ by Blackman and Vigna (prng.di.unimi.it), seeded through splitmix64. */
struct chrono_rng {
    uint64_t s[4];
};
void chrono_rng_init(struct chrono_rng *r, uint64_t seed);
uint64_t chrono_rng_u64(struct chrono_rng *r);
/* 0 .. limit - 1 without bias; limit > 0. */
uint64_t chrono_rng_below(struct chrono_rng *r, uint64_t limit);
double chrono_rng_double(struct chrono_rng *r); /* [0, 1), 53 bits */
float chrono_rng_normal(struct chrono_rng *r);  /* mean 0, deviation 1 */

#endif
