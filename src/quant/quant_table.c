#include "quant/quant.h"

#define EXPONENT(at, mask) {at, 0xff}, mask
#define ONE_F16(at) {at, 0xff}, 0x7c00
#define TWO_F16(scale, minimum) {scale, minimum}, 0x7c00
#define NO_EXPONENT {0xff, 0xff}, 0

/* name, gguf id, values and bytes of a block, inputs per activation scale, exponents, code */
const struct quant_type quant_table[QTYPE_COUNT] = {
    [QTYPE_F32] = {"F32", 0, 1, 4, 0, EXPONENT(2, 0x7f80), quant_f32_dequant, quant_f32_quantise},
    [QTYPE_F16] = {"F16", 1, 1, 2, 0, ONE_F16(0), quant_f16_dequant, quant_f16_quantise},
    [QTYPE_BF16] = {"BF16", 30, 1, 2, 0, EXPONENT(0, 0x7f80), quant_bf16_dequant,
                    quant_bf16_quantise},
    [QTYPE_Q4_0] = {"Q4_0", 2, 32, 18, 32, ONE_F16(0), quant_q4_0_dequant, quant_q4_0_quantise},
    [QTYPE_Q4_1] = {"Q4_1", 3, 32, 20, 32, TWO_F16(0, 2), quant_q4_1_dequant, quant_q4_1_quantise},
    [QTYPE_Q5_0] = {"Q5_0", 6, 32, 22, 32, ONE_F16(0), quant_q5_0_dequant, quant_q5_0_quantise},
    [QTYPE_Q5_1] = {"Q5_1", 7, 32, 24, 32, TWO_F16(0, 2), quant_q5_1_dequant, NULL},
    [QTYPE_Q8_0] = {"Q8_0", 8, 32, 34, 32, ONE_F16(0), quant_q8_0_dequant, quant_q8_0_quantise},
    [QTYPE_Q2_K] = {"Q2_K", 10, 256, 84, 256, TWO_F16(80, 82), quant_q2_k_dequant, NULL},
    [QTYPE_Q3_K] = {"Q3_K", 11, 256, 110, 256, ONE_F16(108), quant_q3_k_dequant, NULL},
    [QTYPE_Q4_K] = {"Q4_K", 12, 256, 144, 256, TWO_F16(0, 2), quant_q4_k_dequant,
                    quant_q4_k_quantise},
    [QTYPE_Q5_K] = {"Q5_K", 13, 256, 176, 256, TWO_F16(0, 2), quant_q5_k_dequant, NULL},
    [QTYPE_Q6_K] = {"Q6_K", 14, 256, 210, 256, ONE_F16(208), quant_q6_k_dequant,
                    quant_q6_k_quantise},
    [QTYPE_IQ1_S] = {"IQ1_S", 19, 256, 50, 256, ONE_F16(0), quant_iq1_s_dequant, NULL},
    [QTYPE_IQ1_M] = {"IQ1_M", 29, 256, 56, 256, NO_EXPONENT, quant_iq1_m_dequant, NULL},
    [QTYPE_IQ2_XXS] = {"IQ2_XXS", 16, 256, 66, 256, ONE_F16(0), quant_iq2_xxs_dequant, NULL},
    [QTYPE_IQ2_XS] = {"IQ2_XS", 17, 256, 74, 256, ONE_F16(0), quant_iq2_xs_dequant, NULL},
    [QTYPE_IQ2_S] = {"IQ2_S", 22, 256, 82, 256, ONE_F16(0), quant_iq2_s_dequant, NULL},
    [QTYPE_IQ3_XXS] = {"IQ3_XXS", 18, 256, 98, 256, ONE_F16(0), quant_iq3_xxs_dequant, NULL},
    [QTYPE_IQ3_S] = {"IQ3_S", 21, 256, 110, 256, ONE_F16(0), quant_iq3_s_dequant, NULL},
    [QTYPE_IQ4_NL] = {"IQ4_NL", 20, 32, 18, 32, ONE_F16(0), quant_iq4_nl_dequant, NULL},
    [QTYPE_IQ4_XS] = {"IQ4_XS", 23, 256, 136, 256, ONE_F16(0), quant_iq4_xs_dequant, NULL},
    [QTYPE_TQ1_0] = {"TQ1_0", 34, 256, 54, 256, ONE_F16(52), quant_tq1_0_dequant, NULL},
    [QTYPE_TQ2_0] = {"TQ2_0", 35, 256, 66, 256, ONE_F16(64), quant_tq2_0_dequant, NULL},
    [QTYPE_Q1_0] = {"Q1_0", 41, 128, 18, 32, ONE_F16(0), quant_q1_0_dequant, NULL},
    [QTYPE_Q2_0] = {"Q2_0", 42, 64, 18, 32, ONE_F16(0), quant_q2_0_dequant, NULL},
    [QTYPE_MXFP4] = {"MXFP4", 39, 32, 17, 32, EXPONENT(0, 0x00fc), quant_mxfp4_dequant, NULL},
    [QTYPE_NVFP4] = {"NVFP4", 40, 64, 36, 32, NO_EXPONENT, quant_nvfp4_dequant, NULL},
    [QTYPE_Q8_1] = {"Q8_1", 9, 32, 36, 0, ONE_F16(0), quant_q8_1_dequant, quant_q8_1_quantise},
    [QTYPE_Q8_K] = {"Q8_K", 15, 256, 292, 0, EXPONENT(2, 0x7f80), quant_q8_k_dequant,
                    quant_q8_k_quantise},
    [QTYPE_I8] = {"I8", 24, 1, 1, 0, NO_EXPONENT, quant_i8_dequant, NULL},
    [QTYPE_I16] = {"I16", 25, 1, 2, 0, NO_EXPONENT, quant_i16_dequant, NULL},
    [QTYPE_I32] = {"I32", 26, 1, 4, 0, NO_EXPONENT, quant_i32_dequant, NULL},
    [QTYPE_I64] = {"I64", 27, 1, 8, 0, NO_EXPONENT, quant_i64_dequant, NULL},
    [QTYPE_F64] = {"F64", 28, 1, 8, 0, EXPONENT(6, 0x7ff0), quant_f64_dequant, NULL},
};
