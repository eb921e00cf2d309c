#include "quant/quant.h"

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
