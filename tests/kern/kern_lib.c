#include "kern/kern.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 20u

void kern_case(struct kern *t, bool ok, const char *format, ...)
{
    if (ok) {
        t->passed++;
        return;
    }
    if (t->failed++ >= SHOWN_MAX)
        return;
    va_list args;
    va_start(args, format);
    printf("FAILED %s ", t->level);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

static uint64_t state = 1;

void kern_seed(uint64_t seed) { state = seed * 2 + 1; }

uint32_t kern_random(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX constants */
    return (uint32_t)(state >> 33);
}

uint32_t kern_below(uint32_t n) { return kern_random() % n; }

/* Near enough: a sum of twelve uniform numbers. */
float kern_gauss(void)
{
    float x = -6.0f;
    for (int i = 0; i < 12; i++)
        x += (float)(kern_random() & 0xffff) / 65536.0f;
    return x;
}

const char *kern_fill_name(enum kern_fill f)
{
    static const char *const names[KERN_FILL_COUNT] = {
        "gauss", "zero", "large", "denormal", "outlier", "signs", "poison"};
    return names[f];
}

static float number(enum kern_fill f)
{
    float x = kern_gauss();
    switch (f) {
    case KERN_FILL_ZERO:
        return 0.0f;
    case KERN_FILL_LARGE:
        return x * 1e18f;
    case KERN_FILL_DENORMAL:
        return x * 1e-39f;
    case KERN_FILL_SIGNS:
        return kern_below(4) ? copysignf(1.0f, x) : copysignf(0.0f, x);
    case KERN_FILL_GAUSS:
    case KERN_FILL_OUTLIER:
    case KERN_FILL_POISON:
    case KERN_FILL_COUNT:
        break;
    }
    return x;
}

void kern_fill(float *x, size_t n, enum kern_fill f)
{
    for (size_t i = 0; i < n; i++)
        x[i] = number(f);
    if (f == KERN_FILL_OUTLIER)
        x[kern_below((uint32_t)n)] = 3e4f;
    if (f != KERN_FILL_POISON)
        return;
    x[kern_below((uint32_t)n)] = -INFINITY;
    x[kern_below((uint32_t)n)] = INFINITY;
    x[kern_below((uint32_t)n)] = NAN;
}

static bool is_tame(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) < 1e5f))
            return false;
    return true;
}

void kern_fill_blocks(void *dst, enum qtype t, size_t elements)
{
    const struct quant_type *q = &quant_table[t];
    float x[256];
    uint8_t *p = dst;
    for (size_t i = 0; i < elements; i += q->block_elems, p += q->block_bytes) {
        do {
            for (size_t j = 0; j < q->block_bytes; j++)
                p[j] = (uint8_t)kern_random();
            q->dequant(x, p, q->block_elems);
        } while (!is_tame(x, q->block_elems));
    }
}

/* ---- guarded memory ---- */

#define GUARD 256u
#define BLOCKS_MAX 512u

static struct {
    uint8_t *base, *p;
    size_t size;
} blocks[BLOCKS_MAX];
static size_t blocks_count;

void *kern_new(size_t size, size_t shift)
{
    must(blocks_count < BLOCKS_MAX && shift < 64);
    size_t all = base_align(size + shift + 2 * GUARD, 64);
    uint8_t *base = aligned_alloc(64, all);
    must(base);
    memset(base, 0xa5, all);
    blocks[blocks_count].base = base;
    blocks[blocks_count].p = base + GUARD + shift;
    blocks[blocks_count].size = size;
    return blocks[blocks_count++].p;
}

static bool is_guard(const uint8_t *from, const uint8_t *to)
{
    for (; from < to; from++)
        if (*from != 0xa5)
            return false;
    return true;
}

bool kern_free_all(void)
{
    bool ok = true;
    for (size_t i = 0; i < blocks_count; i++) {
        uint8_t *end = blocks[i].p + blocks[i].size;
        ok &= is_guard(blocks[i].base, blocks[i].p) && is_guard(end, end + GUARD / 2);
        free(blocks[i].base);
    }
    blocks_count = 0;
    return ok;
}

size_t kern_differs(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (base_bits_of(a[i]) != base_bits_of(b[i]) && !(isnan(a[i]) && isnan(b[i])))
            return i;
    return n;
}
