#include "quant/quant.h"
#include "quant/quant_bytes.h"

bool quant_row_size(enum qtype t, uint64_t count, size_t *bytes)
{
    const struct quant_type *row = &quant_table[t];
    return count % row->block_elems == 0 &&
           base_mul(bytes, count / row->block_elems, row->block_bytes);
}

bool quant_tensor_size(enum qtype t, const uint64_t *dims, uint32_t n_dims, size_t *bytes)
{
    size_t size;
    if (!quant_row_size(t, n_dims > 0 ? dims[0] : 1, &size))
        return false;
    for (uint32_t i = 1; i < n_dims; i++)
        if (!base_mul(&size, size, dims[i]))
            return false;
    *bytes = size;
    return true;
}

static bool quant_is_block_finite(const struct quant_type *row, const uint8_t *p)
{
    uint16_t mask = row->exponent_mask;
    for (size_t i = 0; i < countof(row->exponent_at) && row->exponent_at[i] != 0xff; i++)
        if ((quant_bytes_u16(p + row->exponent_at[i]) & mask) == mask)
            return false;
    /* IQ1_M spreads its f16 over the top nibbles of four numbers. */
    return row != &quant_table[QTYPE_IQ1_M] || (p[55] & 0x70) != 0x70 || (p[53] & 0xc0) != 0xc0;
}

/* Plain numbers, eight bytes at a time: adding the lowest bit of the exponent to it carries into
 * the sign's place only if all its bits are set. Returns how many values are good for sure. */
static size_t quant_plain_finite(const struct quant_type *row, const uint8_t *p, size_t count)
{
    unsigned shift = 8u * row->exponent_at[0], bits = 8u * row->block_bytes;
    uint64_t mask = 0, low = 0, sign = 0;
    for (unsigned at = 0; at < 64; at += bits) {
        mask |= (uint64_t)row->exponent_mask << shift << at;
        low |= (uint64_t)(row->exponent_mask & -row->exponent_mask) << shift << at;
        sign |= (uint64_t)1 << (bits - 1) << at;
    }
    size_t lanes = 64 / bits, i = 0;
    for (; i + lanes <= count; i += lanes, p += 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        if (((word & mask) + low) & sign)
            break;
    }
    return i;
}

bool quant_is_finite(enum qtype t, const void *src, size_t count, size_t *at)
{
    const uint8_t *p = src;
    const struct quant_type *row = &quant_table[t];
    size_t good = 0;
    if (row->block_elems == 1 && row->exponent_mask != 0)
        good = quant_plain_finite(row, p, count);
    p += good * row->block_bytes;
    for (size_t i = good; i < count; i += row->block_elems, p += row->block_bytes) {
        if (!quant_is_block_finite(row, p)) {
            *at = i;
            return false;
        }
    }
    return true;
}

bool quant_by_gguf_id(uint32_t gguf_id, enum qtype *t)
{
    for (unsigned i = 0; i < QTYPE_COUNT; i++) {
        if (quant_table[i].gguf_id == gguf_id) {
            *t = (enum qtype)i;
            return true;
        }
    }
    return false;
}

static char quant_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

bool quant_by_name(str name, enum qtype *t)
{
    for (unsigned i = 0; i < QTYPE_COUNT; i++) {
        const char *z = quant_table[i].name;
        size_t n = 0;
        while (n < name.len && z[n] != '\0' && quant_lower(z[n]) == quant_lower(name.p[n]))
            n++;
        if (n == name.len && z[n] == '\0') {
            *t = (enum qtype)i;
            return true;
        }
    }
    return false;
}

/* Ids that once were, or are private to ik_llama.cpp, which uses the same container. Id 41 is not
 * here: its Q1_0_G128 has the layout of Q1_0. */
const char *quant_foreign_name(uint32_t gguf_id)
{
    static const struct { uint16_t id; const char *name; } known[] = {
        {4, "Q4_2, removed from the format"},
        {5, "Q4_3, removed from the format"},
        {31, "Q4_0_4_4, removed from the format"},
        {32, "Q4_0_4_8, removed from the format"},
        {33, "Q4_0_8_8, removed from the format"},
        {36, "I2_S of ik_llama.cpp, or IQ4_NL_4_4, removed from the format"},
        {37, "IQ4_NL_4_8, removed from the format"},
        {38, "IQ4_NL_8_8, removed from the format"},
        {97, "Q8_0_X4 of ik_llama.cpp"},
        {98, "Q8_1_X4 of ik_llama.cpp"},
        {99, "Q8_2_X4 of ik_llama.cpp"},
        {133, "Q6_0 of ik_llama.cpp"},
        {134, "IQ1_BN of ik_llama.cpp"},
        {135, "IQ2_BN of ik_llama.cpp"},
        {136, "Q8_K64 of ik_llama.cpp"},
        {137, "IQ2_K of ik_llama.cpp"},
        {138, "IQ3_K of ik_llama.cpp"},
        {139, "IQ4_K of ik_llama.cpp"},
        {140, "IQ5_K of ik_llama.cpp"},
        {141, "IQ6_K of ik_llama.cpp"},
        {144, "IQ4_KS of ik_llama.cpp"},
        {145, "IQ2_KS of ik_llama.cpp"},
        {146, "IQ4_KSS of ik_llama.cpp"},
        {152, "IQ5_KS of ik_llama.cpp"},
        {153, "IQ2_KT of ik_llama.cpp"},
        {154, "IQ3_KT of ik_llama.cpp"},
        {155, "IQ4_KT of ik_llama.cpp"},
        {156, "IQ3_KS of ik_llama.cpp"},
        {157, "IQ2_KL of ik_llama.cpp"},
        {158, "IQ1_KT of ik_llama.cpp"},
    };
    for (size_t i = 0; i < countof(known); i++)
        if (known[i].id == gguf_id)
            return known[i].name;
    if (gguf_id >= 202 && gguf_id <= 399)
        return "a row-interleaved repack of ik_llama.cpp";
    return NULL;
}
