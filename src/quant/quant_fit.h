/* quant_fit - the scale (and offset) with which small integers come closest to some values.
 *
 * Owns:      the searches that the encoders share, by least squares.
 * Not:       how scales are stored (quant_simple.c, quant_k.c).
 * Invariant: the same input gives the same bits on every machine; sums run in element order.
 * Thread:    any; pure functions.
 * Limits:    magnitudes below 2^56, so that no sum overflows; count > 0.
 */
#ifndef SHOAL_QUANT_QUANT_FIT_H
#define SHOAL_QUANT_QUANT_FIT_H

#include "base/base.h"

/* d, of either sign, for x[i] ~ d * q[i] with q_min <= q[i] <= q_max, q_min < 0 < q_max.
 * 0 when all x are 0. */
float quant_fit_scale(const float *x, size_t count, int q_min, int q_max);

struct quant_fit_line {
    float d, m; /* x[i] ~ d * q[i] + m, d >= 0 */
};

/* 0 <= q[i] <= q_max. With is_offset_negative, m <= 0. */
struct quant_fit_line quant_fit_line(const float *x, size_t count, int q_max,
                                     bool is_offset_negative);

/* v to the nearest integer (halves to even), held inside q_min..q_max; NaN gives q_min. */
int quant_fit_round(float v, int q_min, int q_max);

/* 1 / d; 0 when d is 0 or so small that the quotient would be infinite: all codes become 0 then. */
static inline float quant_fit_inverse(float d)
{
    return d > 0x1p-126f || d < -0x1p-126f ? 1.0f / d : 0.0f;
}

#endif
