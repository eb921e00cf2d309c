/* vec - 16 lanes: one zmm register, or two ymm registers side by side.
 *
 * Owns:      types vf (16 floats), vi (16 int32, or 64 bytes) and vm (16 answers), and the
 *            operations that kernels are written in, so that one text serves AVX2, AVX-512 and
 *            AVX-512 with VNNI.
 * Not:       what is computed (matmul_tile.h, row_ops.h, attn_block.h).
 * Invariant: every float operation rounds once per lane as its scalar namesake, so two levels that
 *            run the same text give the same bits. The compiler's -m flags choose the machine.
 * Thread:    any.
 * Limits:    x86 with AVX2, FMA, F16C; empty elsewhere.
 */
#ifndef SHOAL_CPU_X86_VEC_H
#define SHOAL_CPU_X86_VEC_H

#if defined(__AVX2__)

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VEC_INLINE static inline __attribute__((always_inline))
#define VEC_UNROLL _Pragma("GCC unroll 16")
#define VEC_LANES 16

/* Lines `ahead` bytes further on: streamed weights, 8 KiB ahead (NUMBERS). */
VEC_INLINE void vec_prefetch(const uint8_t *p, size_t size)
{
    for (size_t i = 0; i < size; i += 64)
        _mm_prefetch((const char *)(p + i), _MM_HINT_T0);
}

#if defined(__AVX512F__)

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

#ifdef __AVX512VNNI__
#define VEC_HAS_VNNI 1
#else
#define VEC_HAS_VNNI 0
#endif

VEC_INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
VEC_INLINE vf vf_set1(float x) { return _mm512_set1_ps(x); }
VEC_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
VEC_INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
VEC_INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
VEC_INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
VEC_INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
VEC_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
VEC_INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
VEC_INLINE vf vf_from_i(vi x) { return _mm512_cvtepi32_ps(x); }
VEC_INLINE vf vf_from_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
/* Two bf16 per lane: the low half, the high half. */
VEC_INLINE void vf_from_bf16(vf out[2], vi x)
{
    out[0] = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    out[1] = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000u)));
}
/* The first n lanes; the others are not touched, or zero. */
VEC_INLINE __mmask16 vec_first(size_t n) { return (__mmask16)((1u << n) - 1u); }
VEC_INLINE vf vf_load_part(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps(vec_first(n), p);
}
VEC_INLINE void vf_store_part(float *p, vf x, size_t n)
{
    _mm512_mask_storeu_ps(p, vec_first(n), x);
}

VEC_INLINE vf vf_from_f16_part(const void *p, size_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vec_first(n), p));
}
/* To nearest even, 16 halves. */
VEC_INLINE void vf_to_f16(void *p, vf x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
VEC_INLINE vf vf_keep(vf x, size_t n) { return _mm512_maskz_mov_ps(vec_first(n), x); }
VEC_INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
VEC_INLINE vf vf_fms(vf a, vf b, vf c) { return _mm512_fmsub_ps(a, b, c); }
/* a > b ? a : b, b where one is a NaN; min alike. */
VEC_INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
VEC_INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
VEC_INLINE vm vf_lt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
VEC_INLINE vm vf_is_nan(vf a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
VEC_INLINE vf vf_select(vm m, vf yes, vf no) { return _mm512_mask_blend_ps(m, no, yes); }
VEC_INLINE vf vf_from_bits(vi x) { return _mm512_castsi512_ps(x); }
VEC_INLINE vf vf_and(vf a, vi bits)
{
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a), bits));
}
VEC_INLINE vf vf_xor(vf a, vi bits)
{
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a), bits));
}
/* 16 pairs {x, y} at p apart; and together again. */
VEC_INLINE void vf_load_pairs(const float *p, vf *x, vf *y)
{
    const __m512i at = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    vf a = vf_load(p), b = vf_load(p + 16);
    *x = _mm512_permutex2var_ps(a, at, b);
    *y = _mm512_permutex2var_ps(a, _mm512_add_epi32(at, _mm512_set1_epi32(1)), b);
}
VEC_INLINE void vf_store_pairs(float *p, vf x, vf y)
{
    const __m512i at = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    vf_store(p, _mm512_permutex2var_ps(x, at, y));
    vf_store(p + 16, _mm512_permutex2var_ps(x, _mm512_add_epi32(at, _mm512_set1_epi32(8)), y));
}

VEC_INLINE vi vi_zero(void) { return _mm512_setzero_si512(); }
VEC_INLINE vi vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
VEC_INLINE vi vi_set1_8(int x) { return _mm512_set1_epi8((char)x); }
VEC_INLINE vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
VEC_INLINE void vi_store(void *p, vi x) { _mm512_storeu_si512(p, x); }
VEC_INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
VEC_INLINE vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
VEC_INLINE vi vi_mul(vi a, vi b) { return _mm512_mullo_epi32(a, b); }
/* The same for a of 16 bits, b of 15 bits and not negative: one step, vi_mul is two on some. */
VEC_INLINE vi vi_mul_small(vi a, vi b) { return _mm512_madd_epi16(a, b); }
VEC_INLINE vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
VEC_INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
VEC_INLINE vi vi_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
/* Counts by lane: with a count for all it is a slower instruction on Zen 4 and on Intel. */
VEC_INLINE vi vi_sll(vi a, int n) { return _mm512_sllv_epi32(a, _mm512_set1_epi32(n)); }
VEC_INLINE vi vi_max(vi a, vi b) { return _mm512_max_epi32(a, b); }
VEC_INLINE int32_t vi_top(vi x) { return _mm512_reduce_max_epi32(x); }
VEC_INLINE int32_t vi_sum(vi x) { return _mm512_reduce_add_epi32(x); }
VEC_INLINE vi vi_from_f(vf x) { return _mm512_cvtps_epi32(x); } /* to nearest even */
VEC_INLINE vi vi_from_bits(vf x) { return _mm512_castps_si512(x); }
/* 16 lanes in -128 .. 127 to 16 bytes. */
VEC_INLINE void vi_store_8(void *p, vi x)
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(x));
}
VEC_INLINE vi vi_sra(vi a, int n) { return _mm512_srav_epi32(a, _mm512_set1_epi32(n)); }
VEC_INLINE vi vi_srl(vi a, int n) { return _mm512_srlv_epi32(a, _mm512_set1_epi32(n)); }
#define vi_sll16(a, n) _mm512_slli_epi16(a, n)
#define vi_srl16(a, n) _mm512_srli_epi16(a, n)
/* (a & mask) | b */
VEC_INLINE vi vi_and_or(vi a, vi mask, vi b) { return _mm512_ternarylogic_epi32(a, mask, b, 0xea); }
/* 16 bytes as a table, four times over; the entry of each byte of index, all below 16. */
VEC_INLINE vi vi_load_table(const void *p)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p));
}
VEC_INLINE vi vi_look_up(vi table, vi index) { return _mm512_shuffle_epi8(table, index); }
VEC_INLINE vi vi_from_u8(const void *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
VEC_INLINE vi vi_from_i8(const void *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
}

/* acc + sum of four products per lane: w unsigned bytes, x signed bytes. Without VNNI the pair sums
 * must fit 16 bits: w <= 128. */
VEC_INLINE vi vi_dot(vi acc, vi w, vi x)
{
#if VEC_HAS_VNNI
    return _mm512_dpbusd_epi32(acc, w, x);
#else
    const __m512i ones = _mm512_set1_epi16(1);
    return _mm512_add_epi32(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(w, x), ones));
#endif
}
/* acc + sum of two products per lane of signed 16-bit numbers. */
VEC_INLINE vi vi_dot16(vi acc, vi a, vi b)
{
#if VEC_HAS_VNNI
    return _mm512_dpwssd_epi32(acc, a, b);
#else
    return _mm512_add_epi32(acc, _mm512_madd_epi16(a, b));
#endif
}
/* w holds biased bytes, q + 128. VNNI: as vi_dot, so the bias stays in the sum. Else the bias is
 * taken off and |q| times x with q's sign is summed. */
VEC_INLINE vi vi_dot_biased(vi acc, vi w, vi x)
{
#if VEC_HAS_VNNI
    return _mm512_dpbusd_epi32(acc, w, x);
#else
    vi q = _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80));
    __mmask64 below = _mm512_movepi8_mask(q);
    return vi_dot(acc, _mm512_abs_epi8(q),
                  _mm512_mask_sub_epi8(x, below, _mm512_setzero_si512(), x));
#endif
}

#else /* AVX2 */

#define VEC_HAS_VNNI 0

typedef struct {
    __m256 a, b;
} vf;
typedef struct {
    __m256i a, b;
} vi;
typedef vf vm;

VEC_INLINE vf vf_of(__m256 a, __m256 b) { return (vf){a, b}; }
VEC_INLINE vi vi_of(__m256i a, __m256i b) { return (vi){a, b}; }

VEC_INLINE vf vf_set1(float x) { return vf_of(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
VEC_INLINE vf vf_zero(void) { return vf_of(_mm256_setzero_ps(), _mm256_setzero_ps()); }
VEC_INLINE vf vf_load(const float *p) { return vf_of(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
VEC_INLINE void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
VEC_INLINE vf vf_add(vf x, vf y)
{
    return vf_of(_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b));
}
VEC_INLINE vf vf_sub(vf x, vf y)
{
    return vf_of(_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b));
}
VEC_INLINE vf vf_mul(vf x, vf y)
{
    return vf_of(_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b));
}
VEC_INLINE vf vf_fma(vf x, vf y, vf z)
{
    return vf_of(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b));
}
VEC_INLINE vf vf_fnma(vf x, vf y, vf z)
{
    return vf_of(_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b));
}
VEC_INLINE vf vf_from_i(vi x)
{
    return vf_of(_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b));
}
VEC_INLINE vf vf_from_f16(const void *p)
{
    const __m128i *h = (const __m128i *)p;
    return vf_of(_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1)));
}
/* Two bf16 per lane: the low half, the high half. */
VEC_INLINE void vf_from_bf16(vf out[2], vi x)
{
    const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
    out[0] = vf_of(_mm256_castsi256_ps(_mm256_slli_epi32(x.a, 16)),
                   _mm256_castsi256_ps(_mm256_slli_epi32(x.b, 16)));
    out[1] = vf_of(_mm256_castsi256_ps(_mm256_and_si256(x.a, high)),
                   _mm256_castsi256_ps(_mm256_and_si256(x.b, high)));
}
VEC_INLINE __m256i vec_first(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
VEC_INLINE vf vf_load_part(const float *p, size_t n)
{
    size_t low = n < 8 ? n : 8;
    __m256 b = n > 8 ? _mm256_maskload_ps(p + 8, vec_first(n - 8)) : _mm256_setzero_ps();
    return vf_of(_mm256_maskload_ps(p, vec_first(low)), b);
}
VEC_INLINE void vf_store_part(float *p, vf x, size_t n)
{
    _mm256_maskstore_ps(p, vec_first(n < 8 ? n : 8), x.a);
    if (n > 8)
        _mm256_maskstore_ps(p + 8, vec_first(n - 8), x.b);
}

VEC_INLINE vf vf_from_f16_part(const void *p, size_t n)
{
    uint16_t h[16] = {0};
    __builtin_memcpy(h, p, n * 2);
    return vf_from_f16(h);
}
/* To nearest even, 16 halves. */
VEC_INLINE void vf_to_f16(void *p, vf x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)p + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
VEC_INLINE vf vf_keep(vf x, size_t n)
{
    __m256i low = vec_first(n < 8 ? n : 8), high = vec_first(n < 8 ? 0 : n - 8);
    return vf_of(_mm256_and_ps(x.a, _mm256_castsi256_ps(low)),
                 _mm256_and_ps(x.b, _mm256_castsi256_ps(high)));
}
VEC_INLINE vf vf_div(vf x, vf y)
{
    return vf_of(_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b));
}
VEC_INLINE vf vf_fms(vf x, vf y, vf z)
{
    return vf_of(_mm256_fmsub_ps(x.a, y.a, z.a), _mm256_fmsub_ps(x.b, y.b, z.b));
}
/* x > y ? x : y, y where one is a NaN; min alike. */
VEC_INLINE vf vf_max(vf x, vf y)
{
    return vf_of(_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b));
}
VEC_INLINE vf vf_min(vf x, vf y)
{
    return vf_of(_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b));
}
VEC_INLINE vm vf_lt(vf x, vf y)
{
    return vf_of(_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ));
}
VEC_INLINE vm vf_is_nan(vf x)
{
    return vf_of(_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q));
}
VEC_INLINE vf vf_select(vm m, vf yes, vf no)
{
    return vf_of(_mm256_blendv_ps(no.a, yes.a, m.a), _mm256_blendv_ps(no.b, yes.b, m.b));
}
VEC_INLINE vf vf_from_bits(vi x)
{
    return vf_of(_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b));
}
VEC_INLINE vf vf_and(vf x, vi bits)
{
    return vf_of(_mm256_and_ps(x.a, _mm256_castsi256_ps(bits.a)),
                 _mm256_and_ps(x.b, _mm256_castsi256_ps(bits.b)));
}
VEC_INLINE vf vf_xor(vf x, vi bits)
{
    return vf_of(_mm256_xor_ps(x.a, _mm256_castsi256_ps(bits.a)),
                 _mm256_xor_ps(x.b, _mm256_castsi256_ps(bits.b)));
}
VEC_INLINE void vec_split(const float *p, __m256 *x, __m256 *y)
{
    __m256 a = _mm256_loadu_ps(p), b = _mm256_loadu_ps(p + 8);
    __m256 low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
    *x = _mm256_shuffle_ps(low, high, 0x88);
    *y = _mm256_shuffle_ps(low, high, 0xdd);
}
VEC_INLINE void vec_join(float *p, __m256 x, __m256 y)
{
    __m256 low = _mm256_unpacklo_ps(x, y), high = _mm256_unpackhi_ps(x, y);
    _mm256_storeu_ps(p, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(low, high, 0x31));
}
/* 16 pairs {x, y} at p apart; and together again. */
VEC_INLINE void vf_load_pairs(const float *p, vf *x, vf *y)
{
    vec_split(p, &x->a, &y->a);
    vec_split(p + 16, &x->b, &y->b);
}
VEC_INLINE void vf_store_pairs(float *p, vf x, vf y)
{
    vec_join(p, x.a, y.a);
    vec_join(p + 16, x.b, y.b);
}

VEC_INLINE vi vi_set1(int32_t x) { return vi_of(_mm256_set1_epi32(x), _mm256_set1_epi32(x)); }
VEC_INLINE vi vi_set1_8(int x)
{
    return vi_of(_mm256_set1_epi8((char)x), _mm256_set1_epi8((char)x));
}
VEC_INLINE vi vi_zero(void) { return vi_of(_mm256_setzero_si256(), _mm256_setzero_si256()); }
VEC_INLINE vi vi_load(const void *p)
{
    const __m256i *q = (const __m256i *)p;
    return vi_of(_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1));
}
VEC_INLINE void vi_store(void *p, vi x)
{
    _mm256_storeu_si256((__m256i *)p, x.a);
    _mm256_storeu_si256((__m256i *)p + 1, x.b);
}
VEC_INLINE vi vi_add(vi x, vi y)
{
    return vi_of(_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b));
}
VEC_INLINE vi vi_sub(vi x, vi y)
{
    return vi_of(_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b));
}
VEC_INLINE vi vi_mul(vi x, vi y)
{
    return vi_of(_mm256_mullo_epi32(x.a, y.a), _mm256_mullo_epi32(x.b, y.b));
}
VEC_INLINE vi vi_mul_small(vi x, vi y)
{
    return vi_of(_mm256_madd_epi16(x.a, y.a), _mm256_madd_epi16(x.b, y.b));
}
VEC_INLINE vi vi_and(vi x, vi y)
{
    return vi_of(_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b));
}
VEC_INLINE vi vi_or(vi x, vi y)
{
    return vi_of(_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b));
}
VEC_INLINE vi vi_xor(vi x, vi y)
{
    return vi_of(_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b));
}
VEC_INLINE vi vi_sll(vi x, int n)
{
    __m256i count = _mm256_set1_epi32(n);
    return vi_of(_mm256_sllv_epi32(x.a, count), _mm256_sllv_epi32(x.b, count));
}
VEC_INLINE vi vi_max(vi x, vi y)
{
    return vi_of(_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b));
}
VEC_INLINE int32_t vi_top(vi x)
{
    __m256i m = _mm256_max_epi32(x.a, x.b);
    __m128i h = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
}
VEC_INLINE int32_t vi_sum(vi x)
{
    __m256i m = _mm256_add_epi32(x.a, x.b);
    __m128i h = _mm_add_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
}
VEC_INLINE vi vi_from_f(vf x) { return vi_of(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)); }
VEC_INLINE vi vi_from_bits(vf x)
{
    return vi_of(_mm256_castps_si256(x.a), _mm256_castps_si256(x.b));
}
/* 16 lanes in -128 .. 127 to 16 bytes. */
VEC_INLINE void vi_store_8(void *p, vi x)
{
    __m256i h = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi16(_mm256_castsi256_si128(h),
                                                   _mm256_extracti128_si256(h, 1)));
}
VEC_INLINE vi vi_sra(vi x, int n)
{
    __m256i count = _mm256_set1_epi32(n);
    return vi_of(_mm256_srav_epi32(x.a, count), _mm256_srav_epi32(x.b, count));
}
VEC_INLINE vi vi_srl(vi x, int n)
{
    __m256i count = _mm256_set1_epi32(n);
    return vi_of(_mm256_srlv_epi32(x.a, count), _mm256_srlv_epi32(x.b, count));
}
#define vi_sll16(x, n) vi_of(_mm256_slli_epi16((x).a, n), _mm256_slli_epi16((x).b, n))
#define vi_srl16(x, n) vi_of(_mm256_srli_epi16((x).a, n), _mm256_srli_epi16((x).b, n))
VEC_INLINE vi vi_and_or(vi x, vi mask, vi y) { return vi_or(vi_and(x, mask), y); }
VEC_INLINE vi vi_load_table(const void *p)
{
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
    return vi_of(t, t);
}
VEC_INLINE vi vi_look_up(vi table, vi index)
{
    return vi_of(_mm256_shuffle_epi8(table.a, index.a), _mm256_shuffle_epi8(table.b, index.b));
}
VEC_INLINE vi vi_from_u8(const void *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)p);
    return vi_of(_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8)));
}
VEC_INLINE vi vi_from_i8(const void *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)p);
    return vi_of(_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)));
}

VEC_INLINE __m256i vec_dot(__m256i acc, __m256i w, __m256i x)
{
    const __m256i ones = _mm256_set1_epi16(1);
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones));
}
VEC_INLINE vi vi_dot(vi acc, vi w, vi x)
{
    return vi_of(vec_dot(acc.a, w.a, x.a), vec_dot(acc.b, w.b, x.b));
}
VEC_INLINE vi vi_dot16(vi acc, vi x, vi y)
{
    return vi_of(_mm256_add_epi32(acc.a, _mm256_madd_epi16(x.a, y.a)),
                 _mm256_add_epi32(acc.b, _mm256_madd_epi16(x.b, y.b)));
}
VEC_INLINE __m256i vec_dot_biased(__m256i acc, __m256i w, __m256i x)
{
    __m256i q = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
    return vec_dot(acc, _mm256_abs_epi8(q), _mm256_sign_epi8(x, q));
}
VEC_INLINE vi vi_dot_biased(vi acc, vi w, vi x)
{
    return vi_of(vec_dot_biased(acc.a, w.a, x.a), vec_dot_biased(acc.b, w.b, x.b));
}

#endif
#endif
#endif
