/* vmath - elementary functions and sums whose bits we own.
 *
 * Owns:      exp, log, tanh, erf, sigmoid and the like, sin and cos of rope angles, the fixed order
 *            of float sums. This scalar code is the definition; a SIMD version does the same
 *            operations in the same order and so gives the same bits (tests/kern).
 * Not:       libm, which differs between versions and machines (only fmaf, fma, sqrtf: exact).
 * Invariant: round to nearest, denormals kept; an fma is written as an fma. A NaN gives a NaN.
 *
 *     sum of x[n]:   lane[i mod 16] += x[i], i ascending, lanes from 0;   then the tree
 *                    8: l[i] += l[i+8]   4: l[i] += l[i+4]   2: l[i] += l[i+2]   1: l[0] + l[1]
 *
 * Thread:    any; pure.
 * Source:    polynomials of tools/make_vmath.py; measured errors in ulp beside each function
 *            (vmath_test.c holds them).
 */
#ifndef SHOAL_CPU_VMATH_H
#define SHOAL_CPU_VMATH_H

#include <math.h>

#include "base/base.h"

#define VMATH_LANES 16u

/* Adding and taking away 1.5 * 2^23 rounds a float below 2^22 to the nearest integer. */
#define VMATH_ROUND 12582912.0f

/* <= 1.1 ulp. Below VMATH_EXP_MIN (the smallest normal result) 0, above VMATH_EXP_MAX infinity. */
#define VMATH_EXP_MIN (-87.3365f)
#define VMATH_EXP_MAX 88.7228f

static inline float vmath_exp(float x)
{
    float n = fmaf(x, 1.44269504f, VMATH_ROUND) - VMATH_ROUND;
    float r = fmaf(n, -0.693145752f, x); /* ln 2 in two parts, the first with 7 zero bits */
    r = fmaf(n, -1.42860677e-6f, r);
    float q = 0.00139504764f;
    q = fmaf(q, r, 0.00836888235f);
    q = fmaf(q, r, 0.041666206f);
    q = fmaf(q, r, 0.166665182f);
    q = fmaf(q, r, 0.5f);
    float p = fmaf(q, r * r, r) + 1.0f;
    if (!(x >= VMATH_EXP_MIN)) /* also NaN: the clauses come before n is used as an integer */
        return x != x ? x : 0.0f;
    if (x > VMATH_EXP_MAX)
        return INFINITY;
    return base_float_of(base_bits_of(p) + ((uint32_t)(int32_t)n << 23));
}

/* <= 1.1 ulp for normal x > 0. 0 and denormals: -infinity; below 0: NaN; infinity stays. */
static inline float vmath_log(float x)
{
    uint32_t u = base_bits_of(x);
    /* x = 2^e * (1 + f), 1 + f in [sqrt 1/2, sqrt 2): 0x3f3504f3 is sqrt 1/2. */
    int32_t e = (int32_t)(u - 0x3f3504f3u) >> 23;
    float f = base_float_of(u - ((uint32_t)e << 23)) - 1.0f;
    float q = -0.0785954595f;
    q = fmaf(q, f, 0.128816217f);
    q = fmaf(q, f, -0.131287679f);
    q = fmaf(q, f, 0.141811967f);
    q = fmaf(q, f, -0.166245535f);
    q = fmaf(q, f, 0.200022861f);
    q = fmaf(q, f, -0.250008106f);
    q = fmaf(q, f, 0.333333164f);
    float f2 = f * f, n = (float)e;
    float t = fmaf(n, 1.42860677e-6f, q * f * f2);
    t = fmaf(f2, -0.5f, t);
    float r = fmaf(n, 0.693145752f, f + t);
    if (!(x >= 1.17549435e-38f))
        return x >= 0.0f ? -INFINITY : NAN;
    return x == INFINITY ? x : r;
}

/* log(1 + y) for y >= 0: the rounding of 1 + y is put back. <= 2 ulp. */
static inline float vmath_log1p(float y)
{
    float u = 1.0f + y, lost = y - (u - 1.0f);
    return u == INFINITY ? u : vmath_log(u) + lost / u;
}

/* <= 2 ulp. */
static inline float vmath_tanh(float x)
{
    float a = fabsf(x), u = x * x;
    float q = -0.00571703678f;
    q = fmaf(q, u, 0.0206505787f);
    q = fmaf(q, u, -0.0537434965f);
    q = fmaf(q, u, 0.133314908f);
    q = fmaf(q, u, -0.333332837f);
    float small = fmaf(q * u, x, x);
    float large = 1.0f - 2.0f / (vmath_exp(a + a) + 1.0f);
    return a < 0.625f ? small : copysignf(large, x);
}

/* Absolute error <= 1.2e-7. */
static inline float vmath_erf(float x)
{
    float a = fabsf(x), u = x * x;
    float q = 7.8891193e-05f;
    q = fmaf(q, u, -0.000802084105f);
    q = fmaf(q, u, 0.00518953521f);
    q = fmaf(q, u, -0.0268544443f);
    q = fmaf(q, u, 0.112836003f);
    q = fmaf(q, u, -0.37612626f);
    q = fmaf(q, u, 0.128379166f);
    float small = fmaf(q, x, x);
    float c = a < 4.0f ? a : 4.0f; /* erf(4) is 1 in a float */
    float l = 1.59982028e-06f;
    l = fmaf(l, c, -4.52981149e-05f);
    l = fmaf(l, c, 0.000590203388f);
    l = fmaf(l, c, -0.00472768908f);
    l = fmaf(l, c, 0.0263275243f);
    l = fmaf(l, c, -0.109909736f);
    l = fmaf(l, c, 0.36798656f);
    l = fmaf(l, c, -1.13011968f);
    l = fmaf(l, c, 0.00029102643f);
    float large = 1.0f - vmath_exp(fmaf(-c, c, l));
    float r = a < 1.0f ? small : copysignf(large, x);
    return x != x ? x : r;
}

/* <= 2.5 ulp for x > -87. */
static inline float vmath_sigmoid(float x) { return 1.0f / (1.0f + vmath_exp(-x)); }
static inline float vmath_silu(float x) { return x / (1.0f + vmath_exp(-x)); }

/* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) and x/2 (1 + erf(x / sqrt 2)). */
static inline float vmath_gelu_tanh(float x)
{
    float inner = x * fmaf(x * x, 0.0356774081f, 0.797884561f);
    return 0.5f * x * (1.0f + vmath_tanh(inner));
}

static inline float vmath_gelu_erf(float x)
{
    return 0.5f * x * (1.0f + vmath_erf(x * 0.707106781f));
}

/* log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)). */
static inline float vmath_softplus(float x)
{
    float m = x > 0.0f ? x : 0.0f;
    return x != x ? x : m + vmath_log1p(vmath_exp(-fabsf(x)));
}

struct vmath_sincos {
    float sin, cos;
};

/* For angles of rope, |x| < 2^24; in double without fma, rounded once: <= 0.5001 ulp, and at worst
 * 3e-9 absolute where the result is near 0 (large angles). */
static inline struct vmath_sincos vmath_sincos(float angle)
{
    double x = (double)angle;
    double n = x * 0.63661977236758134308 + 6755399441055744.0 - 6755399441055744.0;
    /* pi/2 in parts of 29, 29 and 53 bits: n times the first two is exact for n < 2^24. */
    double r = x - n * 1.5707963258028030;
    r = r - n * 9.920935774287987e-10;
    r = r - n * 2.2517417741562176e-18;
    double r2 = r * r;
    double s = -2.5052108385441719e-8; /* Taylor: +-1/k!; the first term left out is 3e-12 */
    s = s * r2 + 2.7557319223985891e-6;
    s = s * r2 + -1.9841269841269841e-4;
    s = s * r2 + 8.3333333333333333e-3;
    s = s * r2 + -1.6666666666666667e-1;
    s = r + r * r2 * s;
    double c = 2.0876756987868099e-9;
    c = c * r2 + -2.7557319223985893e-7;
    c = c * r2 + 2.4801587301587302e-5;
    c = c * r2 + -1.3888888888888889e-3;
    c = c * r2 + 4.1666666666666667e-2;
    c = c * r2 + -0.5;
    c = 1.0 + r2 * c;
    int64_t q = (int64_t)n & 3;
    double sn = q & 1 ? c : s, cs = q & 1 ? s : c;
    return (struct vmath_sincos){(float)(q & 2 ? -sn : sn), (float)((q + 1) & 2 ? -cs : cs)};
}

/* The tree over 16 lanes. */
static inline float vmath_tree(const float *lane)
{
    float t[8];
    for (int i = 0; i < 8; i++)
        t[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++)
        t[i] += t[i + 4];
    return (t[0] + t[2]) + (t[1] + t[3]);
}

static inline float vmath_sum(const float *x, size_t n)
{
    float lane[VMATH_LANES] = {0};
    for (size_t i = 0; i < n; i++)
        lane[i % VMATH_LANES] += x[i];
    return vmath_tree(lane);
}

/* One fma per product. */
static inline float vmath_dot(const float *a, const float *b, size_t n)
{
    float lane[VMATH_LANES] = {0};
    for (size_t i = 0; i < n; i++)
        lane[i % VMATH_LANES] = fmaf(a[i], b[i], lane[i % VMATH_LANES]);
    return vmath_tree(lane);
}

#endif
