#include "base/chrono.h"

#include <math.h>
#include <time.h>

static int64_t chrono_read(clockid_t id)
{
    struct timespec t;
    must(clock_gettime(id, &t) == 0);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t chrono_real_mono_ns(void *self)
{
    (void)self;
    return chrono_read(CLOCK_MONOTONIC);
}

static int64_t chrono_real_unix_ms(void *self)
{
    (void)self;
    return chrono_read(CLOCK_REALTIME) / 1000000;
}

const struct chrono chrono_real = {NULL, chrono_real_mono_ns, chrono_real_unix_ms};

static int64_t chrono_fake_mono_ns(void *self) { return ((const struct chrono_fake *)self)->ns; }

static int64_t chrono_fake_unix_ms(void *self)
{
    const struct chrono_fake *f = self;
    return f->unix_ms_at_zero + f->ns / 1000000;
}

struct chrono chrono_fake_clock(struct chrono_fake *f)
{
    return (struct chrono){f, chrono_fake_mono_ns, chrono_fake_unix_ms};
}

void chrono_rng_init(struct chrono_rng *r, uint64_t seed)
{
    for (size_t i = 0; i < countof(r->s); i++) {
        seed += 0x9e3779b97f4a7c15u;
        uint64_t z = seed;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        r->s[i] = z ^ z >> 31;
    }
}

static uint64_t chrono_rotate(uint64_t x, unsigned by) { return x << by | x >> (64 - by); }

uint64_t chrono_rng_u64(struct chrono_rng *r)
{
    uint64_t *s = r->s;
    uint64_t result = chrono_rotate(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = chrono_rotate(s[3], 45);
    return result;
}

/* Draws again in the incomplete last stretch of 2^64, so that every answer is equally likely. */
uint64_t chrono_rng_below(struct chrono_rng *r, uint64_t limit)
{
    must(limit > 0);
    uint64_t too_low = (0 - limit) % limit, v;
    do {
        v = chrono_rng_u64(r);
    } while (v < too_low);
    return v % limit;
}

double chrono_rng_double(struct chrono_rng *r)
{
    return (double)(chrono_rng_u64(r) >> 11) * 0x1p-53;
}

float chrono_rng_normal(struct chrono_rng *r) /* Box and Muller; 1 - u keeps the log finite */
{
    double u = 1 - chrono_rng_double(r), v = chrono_rng_double(r);
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}
