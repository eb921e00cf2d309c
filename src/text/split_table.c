#include "text/split.h"

/* The rules of tokenizer.ggml.pre. Patterns are those of the models' own tokenizer.json files
 * (docs/models/tokenizers.md lists the sources), with three spellings of ours:
 *   \s   is  \p{Z}\x09-\x0d\x85: PCRE2's own \s also takes U+180E, the references do not;
 *   \p{Han}  is  \p{sc:Han}: PCRE2's own means Script_Extensions, which holds punctuation;
 *   \s+$ looks behind itself first, or a long run of blanks costs its square. */

#define WS "\\p{Z}\\x09-\\x0d\\x85"
#define S "[" WS "]"
#define C "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BLANKS "|" S "*[\\r\\n]+|" S "+(?![^" WS "])|" S "+"
#define OTHERS " ?[^" WS "\\p{L}\\p{N}]+"
#define L3 C "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" OTHERS "[\\r\\n]*" BLANKS
#define Q2_BODY "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" OTHERS "[\\r\\n]*" BLANKS
#define Q2 C "|" Q2_BODY
#define Q35 \
    C "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" BLANKS
#define G2 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" OTHERS "|" S "+(?![^" WS "])"
#define ASCII_PUNCT "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define DS3_HEAD \
    ASCII_PUNCT "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
#define U "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define W "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(suffix) \
    "[^\\r\\n\\p{L}\\p{N}]?" U "*" W "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" U "+" W "*" suffix
#define O200 CASED(C "?") "|\\p{N}{1,3}|" OTHERS "[\\r\\n/]*" BLANKS
#define TEK CASED("") "|\\p{N}|" OTHERS "[\\r\\n/]*" BLANKS
#define HAN_U "(?:(?!\\p{sc:Han})" U ")"
#define HAN_W "(?:(?!\\p{sc:Han})" W ")"
#define KIMI \
    "\\p{sc:Han}+|[^\\r\\n\\p{L}\\p{N}]?" HAN_U "*" HAN_W "+" C "?|[^\\r\\n\\p{L}\\p{N}]?" HAN_U \
    "+" HAN_W "*" C "?|\\p{N}{1,3}|" OTHERS "[\\r\\n]*" BLANKS
/* \w of Oniguruma: Alphabetic, marks, decimal digits, connectors, and six Latin-1 numerals. */
#define WORD_CHAR \
    "[\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\xb2\\xb3\\xb9\\xbc-\\xbe\\x{24b6}-\\x{24e9}" \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}]"
#define BLOOM \
    " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
#define IDEOGRAPHS "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define DEEPSEEK_CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define DEEPSEEK_PUNCT \
    S "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+"

/* Letters with case as deepseek-llm's tokenizer.json lists them: an older Unicode's Lu, Ll, Lt. */
#define DEEPSEEK_CASED \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}" \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}" \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}" \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}" \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}" \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}" \
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}" \
    "\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}" \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}" \
    "\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}" \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}" \
    "\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}" \
    "\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}" \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}" \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}" \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}" \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}" \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

static const struct split_scan l3_scan = {.contraction = SPLIT_CONTRACTION_FOLD,
                                          .prefix = SPLIT_PREFIX_ANY,
                                          .digits_max = 3,
                                          .tail = "\r\n"};
static const struct split_scan q2_scan = {.contraction = SPLIT_CONTRACTION_FOLD,
                                          .prefix = SPLIT_PREFIX_ANY,
                                          .digits_max = 1,
                                          .tail = "\r\n"};
static const struct split_scan q35_scan = {.contraction = SPLIT_CONTRACTION_FOLD,
                                           .prefix = SPLIT_PREFIX_ANY,
                                           .marks_are_letters = true,
                                           .digits_max = 1,
                                           .tail = "\r\n"};
static const struct split_scan ufakzeka_scan = {.prefix = SPLIT_PREFIX_ANY,
                                                .digits_max = 1,
                                                .tail = "\r\n"};
static const struct split_scan g2_scan = {.contraction = SPLIT_CONTRACTION_EXACT,
                                          .prefix = SPLIT_PREFIX_SPACE,
                                          .no_newline_words = true,
                                          .tail = ""};
static const struct split_scan smollm_scan = {.contraction = SPLIT_CONTRACTION_EXACT,
                                              .prefix = SPLIT_PREFIX_SPACE,
                                              .no_newline_words = true,
                                              .digits_apart = true,
                                              .tail = ""};
static const struct split_scan o200_scan = {.contraction = SPLIT_CONTRACTION_SUFFIX,
                                            .prefix = SPLIT_PREFIX_ANY,
                                            .has_case = true,
                                            .digits_max = 3,
                                            .tail = "\r\n/"};
static const struct split_scan tek_scan = {.prefix = SPLIT_PREFIX_ANY,
                                           .has_case = true,
                                           .digits_max = 1,
                                           .tail = "\r\n/"};
static const struct split_scan aya_scan = {.contraction = SPLIT_CONTRACTION_SUFFIX,
                                           .prefix = SPLIT_PREFIX_ANY,
                                           .has_case = true,
                                           .threes = true,
                                           .digits_max = 3,
                                           .tail = "\r\n/"};
static const struct split_scan kimi_scan = {.contraction = SPLIT_CONTRACTION_SUFFIX,
                                            .prefix = SPLIT_PREFIX_ANY,
                                            .has_case = true,
                                            .han_apart = true,
                                            .digits_max = 3,
                                            .tail = "\r\n"};
static const struct split_scan superbpe_scan = {.is_whole = true, .tail = ""};

const struct split_row split_table[] = {
    {.names = "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     .patterns = {L3},
     .scan = &l3_scan,
     .ignore_merges = true,
     .add_bos = true},
    {.names = "glm4 chatglm-bpe",
     .patterns = {L3},
     .scan = &l3_scan,
     .ignore_merges = true},
    {.names = "dbrx smaug-bpe", .patterns = {L3}, .scan = &l3_scan},
    {.names = "qwen2 deepseek-r1-qwen megrez",
     .patterns = {Q2},
     .scan = &q2_scan,
     .nfc = true},
    {.names = "kormo f2llmv2 stablelm2 hunyuan solar-open grok-2",
     .patterns = {Q2},
     .scan = &q2_scan},
    {.names = "qwen35", .patterns = {Q35}, .scan = &q35_scan, .nfc = true},
    {.names = "ufakzeka", .patterns = {Q2_BODY}, .scan = &ufakzeka_scan},
    {.names = "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de mpt olmo jais trillion "
              "granite-docling gigachat a.x-4.0 mellum modern-bert exaone4",
     .patterns = {G2},
     .scan = &g2_scan},
    {.names = "jina-v1-en jina-v2-code roberta-bpe",
     .patterns = {G2},
     .scan = &g2_scan,
     .add_sep = true},
    {.names = "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
     .patterns = {"\\p{N}", G2},
     .scan = &smollm_scan},
    {.names = "falcon", .patterns = {"[\\p{P}$+<=>^~|`]+", G2, "[0-9][0-9][0-9]"}},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     .patterns = {"\\p{N}{1,3}", IDEOGRAPHS, DS3_HEAD "[\\r\\n]*" BLANKS}},
    {.names = "deepseek-coder",
     .patterns = {"[\\r\\n]", S "?\\p{L}+", S "?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"}},
    {.names = "deepseek-llm",
     .patterns = {"[\\r\\n]", S "?[" DEEPSEEK_CASED "]+", DEEPSEEK_PUNCT,
                  "(?<![" WS "])" S "+$", DEEPSEEK_CJK, "\\p{N}+"}},
    {.names = "gpt-4o llama4",
     .patterns = {O200},
     .scan = &o200_scan,
     .ignore_merges = true},
    {.names = "kanana2 talkie", .patterns = {O200}, .scan = &o200_scan},
    {.names = "minimax-m2", .patterns = {O200}, .scan = &o200_scan, .nfc = true},
    {.names = "tekken",
     .patterns = {TEK},
     .scan = &tek_scan,
     .ignore_merges = true,
     .add_bos = true},
    {.names = "tiny_aya cohere2moe",
     .patterns = {"\\d{1,3}(?=(?:\\d{3})*(?!" WORD_CHAR "))", O200},
     .scan = &aya_scan},
    {.names = "gemma4 granite-embed-multi-311m sarvam-moe",
     .patterns = {"[^\\n]+|\\n+"},
     .form = VOCAB_FORM_SPACE},
    {.names = "minicpm5",
     .patterns = {"\\p{N}{1,3}", C "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+|" OTHERS
                                   "[\\r\\n]*" BLANKS},
     .ignore_merges = true},
    {.names = "bailingmoe bailingmoe2 llada-moe",
     .patterns = {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" OTHERS
                  "[\\r\\n]*|" S "*[\\r\\n]|" S "+(?![^" WS "])|" S "+"}},
    {.names = "seed-coder",
     .patterns = {C "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" WS
                    "\\p{L}\\p{N}\\r\\n]+" BLANKS}},
    {.names = "superbpe",
     .patterns = {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"},
     .scan = &superbpe_scan},
    {.names = "kimi-k2", .patterns = {KIMI}, .scan = &kimi_scan},
    {.names = "whitespace", .patterns = {"[^" WS "]+"}, .form = VOCAB_FORM_PLAIN},
    {.names = "poro-chat bloom gpt3-finnish", .patterns = {BLOOM}},
    {.names = "viking", .patterns = {BLOOM, "\\p{N}"}},
    {.names = "exaone-moe",
     .patterns = {C "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}|"
                  OTHERS "[\\r\\n/]?|" S "*[\\r\\n]|" S "+(?![^" WS "])|" S "+"}},
    {.names = "default",
     .patterns = {"[\\p{P}$+<=>^~|]+", G2, "\\p{N}+", "[0-9][0-9][0-9]"}},
};
const size_t split_table_count = countof(split_table);
