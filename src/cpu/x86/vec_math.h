/* vec_math - the functions of vmath.h on 16 lanes.
 *
 * Owns:      nothing but the translation: the same operations in the same order.
 * Not:       their definition, coefficients and errors (cpu/vmath.h).
 * Invariant: bit for bit vmath's result in every lane, NaN and infinities too (tests/kern).
 * Thread:    any; pure.
 */
#ifndef SHOAL_CPU_X86_VEC_MATH_H
#define SHOAL_CPU_X86_VEC_MATH_H

#include "cpu/vmath.h"
#include "cpu/x86/vec.h"

#if defined(__AVX2__)

VEC_INLINE vf vf_neg(vf x) { return vf_xor(x, vi_set1((int32_t)0x80000000)); }
VEC_INLINE vf vf_abs(vf x) { return vf_and(x, vi_set1(0x7fffffff)); }
/* |x| with the sign of y. */
VEC_INLINE vf vf_copysign(vf x, vf y)
{
    vi sign = vi_and(vi_from_bits(y), vi_set1((int32_t)0x80000000));
    return vf_xor(vf_abs(x), sign);
}

VEC_INLINE vf vf_exp(vf x)
{
    const vf round = vf_set1(VMATH_ROUND);
    vf n = vf_sub(vf_fma(x, vf_set1(1.44269504f), round), round);
    vf r = vf_fma(n, vf_set1(-0.693145752f), x);
    r = vf_fma(n, vf_set1(-1.42860677e-6f), r);
    vf q = vf_set1(0.00139504764f);
    q = vf_fma(q, r, vf_set1(0.00836888235f));
    q = vf_fma(q, r, vf_set1(0.041666206f));
    q = vf_fma(q, r, vf_set1(0.166665182f));
    q = vf_fma(q, r, vf_set1(0.5f));
    vf p = vf_add(vf_fma(q, vf_mul(r, r), r), vf_set1(1.0f));
    vf y = vf_from_bits(vi_add(vi_from_bits(p), vi_sll(vi_from_f(n), 23)));
    y = vf_select(vf_lt(vf_set1(VMATH_EXP_MAX), x), vf_set1(INFINITY), y);
    y = vf_select(vf_lt(x, vf_set1(VMATH_EXP_MIN)), vf_zero(), y);
    return vf_select(vf_is_nan(x), x, y);
}

VEC_INLINE vf vf_log(vf x)
{
    vi u = vi_from_bits(x);
    vi e = vi_sra(vi_sub(u, vi_set1(0x3f3504f3)), 23);
    vf f = vf_sub(vf_from_bits(vi_sub(u, vi_sll(e, 23))), vf_set1(1.0f));
    vf q = vf_set1(-0.0785954595f);
    q = vf_fma(q, f, vf_set1(0.128816217f));
    q = vf_fma(q, f, vf_set1(-0.131287679f));
    q = vf_fma(q, f, vf_set1(0.141811967f));
    q = vf_fma(q, f, vf_set1(-0.166245535f));
    q = vf_fma(q, f, vf_set1(0.200022861f));
    q = vf_fma(q, f, vf_set1(-0.250008106f));
    q = vf_fma(q, f, vf_set1(0.333333164f));
    vf f2 = vf_mul(f, f), n = vf_from_i(e);
    vf t = vf_fma(n, vf_set1(1.42860677e-6f), vf_mul(vf_mul(q, f), f2));
    t = vf_fma(f2, vf_set1(-0.5f), t);
    vf r = vf_fma(n, vf_set1(0.693145752f), vf_add(f, t));
    r = vf_select(vf_lt(x, vf_set1(1.17549435e-38f)), vf_set1(-INFINITY), r);
    r = vf_select(vf_lt(x, vf_zero()), vf_set1(NAN), r);
    r = vf_select(vf_lt(vf_set1(3.40282347e+38f), x), x, r);
    return vf_select(vf_is_nan(x), vf_set1(NAN), r);
}

VEC_INLINE vf vf_log1p(vf y)
{
    const vf one = vf_set1(1.0f);
    vf u = vf_add(one, y), lost = vf_sub(y, vf_sub(u, one));
    vf r = vf_add(vf_log(u), vf_div(lost, u));
    return vf_select(vf_lt(vf_set1(3.40282347e+38f), u), u, r);
}

VEC_INLINE vf vf_tanh(vf x)
{
    vf a = vf_abs(x), u = vf_mul(x, x);
    vf q = vf_set1(-0.00571703678f);
    q = vf_fma(q, u, vf_set1(0.0206505787f));
    q = vf_fma(q, u, vf_set1(-0.0537434965f));
    q = vf_fma(q, u, vf_set1(0.133314908f));
    q = vf_fma(q, u, vf_set1(-0.333332837f));
    vf small = vf_fma(vf_mul(q, u), x, x);
    vf e = vf_add(vf_exp(vf_add(a, a)), vf_set1(1.0f));
    vf large = vf_sub(vf_set1(1.0f), vf_div(vf_set1(2.0f), e));
    return vf_select(vf_lt(a, vf_set1(0.625f)), small, vf_copysign(large, x));
}

VEC_INLINE vf vf_erf(vf x)
{
    vf a = vf_abs(x), u = vf_mul(x, x);
    vf q = vf_set1(7.8891193e-05f);
    q = vf_fma(q, u, vf_set1(-0.000802084105f));
    q = vf_fma(q, u, vf_set1(0.00518953521f));
    q = vf_fma(q, u, vf_set1(-0.0268544443f));
    q = vf_fma(q, u, vf_set1(0.112836003f));
    q = vf_fma(q, u, vf_set1(-0.37612626f));
    q = vf_fma(q, u, vf_set1(0.128379166f));
    vf small = vf_fma(q, x, x);
    vf c = vf_select(vf_lt(a, vf_set1(4.0f)), a, vf_set1(4.0f));
    vf l = vf_set1(1.59982028e-06f);
    l = vf_fma(l, c, vf_set1(-4.52981149e-05f));
    l = vf_fma(l, c, vf_set1(0.000590203388f));
    l = vf_fma(l, c, vf_set1(-0.00472768908f));
    l = vf_fma(l, c, vf_set1(0.0263275243f));
    l = vf_fma(l, c, vf_set1(-0.109909736f));
    l = vf_fma(l, c, vf_set1(0.36798656f));
    l = vf_fma(l, c, vf_set1(-1.13011968f));
    l = vf_fma(l, c, vf_set1(0.00029102643f));
    vf large = vf_sub(vf_set1(1.0f), vf_exp(vf_fma(vf_neg(c), c, l)));
    vf r = vf_select(vf_lt(a, vf_set1(1.0f)), small, vf_copysign(large, x));
    return vf_select(vf_is_nan(x), x, r);
}

VEC_INLINE vf vf_one_plus_exp(vf x) { return vf_add(vf_set1(1.0f), vf_exp(x)); }
VEC_INLINE vf vf_sigmoid(vf x) { return vf_div(vf_set1(1.0f), vf_one_plus_exp(vf_neg(x))); }
VEC_INLINE vf vf_silu(vf x) { return vf_div(x, vf_one_plus_exp(vf_neg(x))); }

VEC_INLINE vf vf_gelu_tanh(vf x)
{
    vf inner = vf_fma(vf_mul(x, x), vf_set1(0.0356774081f), vf_set1(0.797884561f));
    vf t = vf_tanh(vf_mul(x, inner));
    return vf_mul(vf_mul(vf_set1(0.5f), x), vf_add(vf_set1(1.0f), t));
}

VEC_INLINE vf vf_gelu_erf(vf x)
{
    vf t = vf_erf(vf_mul(x, vf_set1(0.707106781f)));
    return vf_mul(vf_mul(vf_set1(0.5f), x), vf_add(vf_set1(1.0f), t));
}

VEC_INLINE vf vf_softplus(vf x)
{
    vf m = vf_select(vf_lt(vf_zero(), x), x, vf_zero());
    vf r = vf_add(m, vf_log1p(vf_exp(vf_neg(vf_abs(x)))));
    return vf_select(vf_is_nan(x), x, r);
}

/* The tree of vmath.h over the 16 lanes. */
VEC_INLINE float vf_tree(vf x)
{
    float lane[VEC_LANES];
    vf_store(lane, x);
    return vmath_tree(lane);
}

#endif
#endif
