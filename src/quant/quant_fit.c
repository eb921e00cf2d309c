#include "quant/quant_fit.h"

#include <math.h>

/* Both searches try a row of trial scales around the one that maps the extreme value to the extreme
 * code. Each trial rounds all values to codes; for given codes the best scale (and offset) is known
 * in closed form. The trial with the least squared error wins, the first of equals. */

int quant_fit_round(float v, int q_min, int q_max)
{
    if (!(v > (float)q_min))
        return q_min;
    if (v > (float)q_max)
        return q_max;
    return (int)rintf(v);
}

/* The part of sum(x^2) that codes for this inverse scale explain: (sum xq)^2 / sum qq; the squared
 * error is what is left. *d gets the scale. */
static float quant_fit_explained(const float *x, size_t count, const int range[2], float inverse,
                                 float *d)
{
    float xq = 0.0f, qq = 0.0f;
    for (size_t i = 0; i < count; i++) {
        float q = (float)quant_fit_round(x[i] * inverse, range[0], range[1]);
        xq += x[i] * q;
        qq += q * q;
    }
    if (qq == 0.0f)
        return 0.0f;
    *d = xq / qq;
    return xq * *d;
}

float quant_fit_scale(const float *x, size_t count, int q_min, int q_max)
{
    const int range[2] = {q_min, q_max};
    float extreme = 0.0f;
    for (size_t i = 0; i < count; i++)
        if (fabsf(x[i]) > fabsf(extreme))
            extreme = x[i];
    if (extreme == 0.0f)
        return 0.0f;
    float best = 0.0f, best_d = extreme / (float)q_min;
    /* The extreme value takes either end of the range; below 0.7 of it clipping costs too much. */
    for (int end = 0; end < 2; end++) {
        for (int trial = -6; trial <= 12; trial++) {
            float top = (float)range[end] * (1.0f - 0.025f * (float)trial);
            float d = 0.0f, explained = quant_fit_explained(x, count, range, top / extreme, &d);
            if (explained > best) {
                best = explained;
                best_d = d;
            }
        }
    }
    return best_d;
}

static float quant_fit_error(const float *x, size_t count, int q_max, float inverse, float low,
                             struct quant_fit_line line)
{
    float sum = 0.0f;
    for (size_t i = 0; i < count; i++) {
        float q = (float)quant_fit_round((x[i] - low) * inverse, 0, q_max);
        float diff = line.d * q + line.m - x[i];
        sum += diff * diff;
    }
    return sum;
}

/* Least squares for x ~ d * q + m with the codes that (low, inverse) give. False: no d > 0 fits. */
static bool quant_fit_solve(const float *x, size_t count, int q_max, float inverse, float low,
                            struct quant_fit_line *line)
{
    float sx = 0.0f, sq = 0.0f, sqq = 0.0f, sxq = 0.0f, n = (float)count;
    for (size_t i = 0; i < count; i++) {
        float q = (float)quant_fit_round((x[i] - low) * inverse, 0, q_max);
        sx += x[i];
        sq += q;
        sqq += q * q;
        sxq += x[i] * q;
    }
    float det = n * sqq - sq * sq;
    if (!(det > 0.0f))
        return false;
    line->d = (n * sxq - sx * sq) / det;
    line->m = (sqq * sx - sq * sxq) / det;
    return line->d > 0.0f;
}

struct quant_fit_line quant_fit_line(const float *x, size_t count, int q_max,
                                     bool is_offset_negative)
{
    float low = x[0], high = x[0];
    for (size_t i = 1; i < count; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    if (is_offset_negative)
        low = fminf(low, 0.0f);
    struct quant_fit_line best = {.d = (high - low) / (float)q_max, .m = low};
    if (!(best.d > 0.0f))
        return (struct quant_fit_line){.d = 0.0f, .m = low};
    float best_error = quant_fit_error(x, count, q_max, 1.0f / best.d, low, best);
    /* Trials shorten the range at both ends: outliers clip, the rest gets finer steps. */
    for (int cut_low = 0; cut_low < 5; cut_low++) {
        for (int cut_high = -1; cut_high < 5; cut_high++) {
            float step = (high - low) / (float)q_max;
            float from = low + 0.35f * step * (float)cut_low;
            float inverse = (float)q_max / (high - 0.35f * step * (float)cut_high - from);
            struct quant_fit_line line;
            if (!quant_fit_solve(x, count, q_max, inverse, from, &line))
                continue;
            if (is_offset_negative && line.m > 0.0f)
                line.m = 0.0f;
            float error = quant_fit_error(x, count, q_max, inverse, from, line);
            if (error < best_error) {
                best_error = error;
                best = line;
            }
        }
    }
    return best;
}
