/* quant_bytes - little-endian fields at any address, for the scalar code of the tensor types.
 *
 * Owns:      reading and writing one field of a block.
 * Not:       layouts (quant_*.c), conversions of f16 and bf16 (base).
 * Invariant: no alignment is assumed; the host is little endian, as is every file.
 * Thread:    any.
 */
#ifndef SHOAL_QUANT_QUANT_BYTES_H
#define SHOAL_QUANT_QUANT_BYTES_H

#include <string.h>

#include "base/base.h"

static inline uint16_t quant_bytes_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t quant_bytes_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline float quant_bytes_f32(const uint8_t *p) { return base_float_of(quant_bytes_u32(p)); }
static inline float quant_bytes_f16(const uint8_t *p)
{
    return base_f16_to_f32(quant_bytes_u16(p));
}

static inline void quant_bytes_put_u16(uint8_t *p, uint16_t v) { memcpy(p, &v, sizeof v); }

/* Writes a scale as f16, held inside the finite range, and returns the value that readers will see:
 * encoders choose their codes for that one. */
static inline float quant_bytes_put_scale(uint8_t *p, float scale)
{
    float limit = 65504.0f; /* the largest finite f16 */
    uint16_t h = base_f32_to_f16(scale > limit ? limit : scale < -limit ? -limit : scale);
    quant_bytes_put_u16(p, h);
    return base_f16_to_f32(h);
}

#endif
