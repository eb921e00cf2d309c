#include "cli/tiny_model.h"

#include <math.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/chrono.h"
#include "base/file.h"

/* Llama's smallest shape whose heads are as wide as kernels like them. */
#define TINY_MODEL_WIDTH 128u
#define TINY_MODEL_HEADS 4u
#define TINY_MODEL_KV_HEADS 2u
#define TINY_MODEL_HEAD 32u
#define TINY_MODEL_INNER 256u
#define TINY_MODEL_LAYERS 2u
#define TINY_MODEL_BYTES 256u
#define TINY_MODEL_VOCAB 320u
#define TINY_MODEL_FILE_MAX ((size_t)8 << 20)
#define TINY_MODEL_ALIGN 32u
#define TINY_MODEL_SEED 20261130u

static const char tiny_model_template[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* --- little-endian pieces of docs/formats/gguf.md ------------------------------------------ */

enum { TINY_MODEL_U32 = 4, TINY_MODEL_I32 = 5, TINY_MODEL_F32 = 6, TINY_MODEL_STRING = 8,
       TINY_MODEL_ARRAY = 9 };

static void tiny_model_put_u32(struct buf *b, uint32_t v) { buf_add_bytes(b, &v, sizeof v); }
static void tiny_model_put_u64(struct buf *b, uint64_t v) { buf_add_bytes(b, &v, sizeof v); }

static void tiny_model_put_str(struct buf *b, str s)
{
    tiny_model_put_u64(b, s.len);
    buf_add(b, s);
}

static void tiny_model_key(struct buf *b, const char *key, uint32_t type)
{
    tiny_model_put_str(b, str_of(key));
    tiny_model_put_u32(b, type);
}

static void tiny_model_key_str(struct buf *b, const char *key, const char *value)
{
    tiny_model_key(b, key, TINY_MODEL_STRING);
    tiny_model_put_str(b, str_of(value));
}

static void tiny_model_key_u32(struct buf *b, const char *key, uint32_t value)
{
    tiny_model_key(b, key, TINY_MODEL_U32);
    tiny_model_put_u32(b, value);
}

static void tiny_model_key_f32(struct buf *b, const char *key, float value)
{
    tiny_model_key(b, key, TINY_MODEL_F32);
    buf_add_bytes(b, &value, sizeof value);
}

static void tiny_model_key_array(struct buf *b, const char *key, uint32_t type, uint64_t count)
{
    tiny_model_key(b, key, TINY_MODEL_ARRAY);
    tiny_model_put_u32(b, type);
    tiny_model_put_u64(b, count);
}

/* --- vocabulary ---------------------------------------------------------------------------- */

/* Byte-level BPE writes a byte as a letter: itself where it prints, else from U+0100 on. */
static void tiny_model_put_byte(struct buf *b, uint32_t byte, uint32_t *next)
{
    bool prints = (byte >= 33 && byte < 127) || (byte >= 161 && byte != 173);
    uint32_t c = prints ? byte : 256 + (*next)++;
    char text[2] = {(char)(0xc0 | c >> 6), (char)(0x80 | (c & 63))};
    tiny_model_put_str(b, c < 128 ? str_view((char[]){(char)c}, 1) : str_view(text, 2));
}

static void tiny_model_put_vocab(struct buf *b)
{
    static const char *const specials[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    uint32_t next = 0, rest = TINY_MODEL_VOCAB - (uint32_t)countof(specials);
    char name[32];
    tiny_model_key_str(b, "tokenizer.ggml.model", "gpt2");
    tiny_model_key_str(b, "tokenizer.ggml.pre", "gpt-2");
    tiny_model_key_array(b, "tokenizer.ggml.tokens", TINY_MODEL_STRING, TINY_MODEL_VOCAB);
    for (uint32_t i = 0; i < TINY_MODEL_BYTES; i++)
        tiny_model_put_byte(b, i, &next);
    for (uint32_t i = TINY_MODEL_BYTES; i < rest; i++) {
        snprintf(name, sizeof name, "<|unused%u|>", i);
        tiny_model_put_str(b, str_of(name));
    }
    for (size_t i = 0; i < countof(specials); i++)
        tiny_model_put_str(b, str_of(specials[i]));
    tiny_model_key_array(b, "tokenizer.ggml.token_type", TINY_MODEL_I32, TINY_MODEL_VOCAB);
    for (uint32_t i = 0; i < TINY_MODEL_VOCAB; i++)
        tiny_model_put_u32(b, i < TINY_MODEL_BYTES ? 1 : 3); /* normal, control */
    tiny_model_key_array(b, "tokenizer.ggml.merges", TINY_MODEL_STRING, 1);
    tiny_model_put_str(b, STR("t h"));
    tiny_model_key_u32(b, "tokenizer.ggml.eos_token_id", TINY_MODEL_VOCAB - 1);
    tiny_model_key_str(b, "tokenizer.chat_template", tiny_model_template);
}

/* --- weights ------------------------------------------------------------------------------- */

/* How a tensor is filled. EVEN: norms; SAYS: only rows of letters. */
enum tiny_model_fill { TINY_MODEL_EVEN, TINY_MODEL_RANDOM, TINY_MODEL_SAYS };

struct tiny_model_tensor {
    const char *name; /* with %u: one per layer */
    uint32_t cols, rows; /* rows 0: a vector */
    enum tiny_model_fill fill;
};

static const struct tiny_model_tensor tiny_model_tensors[] = {
    {"token_embd.weight", TINY_MODEL_WIDTH, TINY_MODEL_VOCAB, TINY_MODEL_RANDOM},
    {"blk.%u.attn_norm.weight", TINY_MODEL_WIDTH, 0, TINY_MODEL_EVEN},
    {"blk.%u.attn_q.weight", TINY_MODEL_WIDTH, TINY_MODEL_HEADS * TINY_MODEL_HEAD,
     TINY_MODEL_RANDOM},
    {"blk.%u.attn_k.weight", TINY_MODEL_WIDTH, TINY_MODEL_KV_HEADS * TINY_MODEL_HEAD,
     TINY_MODEL_RANDOM},
    {"blk.%u.attn_v.weight", TINY_MODEL_WIDTH, TINY_MODEL_KV_HEADS * TINY_MODEL_HEAD,
     TINY_MODEL_RANDOM},
    {"blk.%u.attn_output.weight", TINY_MODEL_HEADS * TINY_MODEL_HEAD, TINY_MODEL_WIDTH,
     TINY_MODEL_RANDOM},
    {"blk.%u.ffn_norm.weight", TINY_MODEL_WIDTH, 0, TINY_MODEL_EVEN},
    {"blk.%u.ffn_gate.weight", TINY_MODEL_WIDTH, TINY_MODEL_INNER, TINY_MODEL_RANDOM},
    {"blk.%u.ffn_up.weight", TINY_MODEL_WIDTH, TINY_MODEL_INNER, TINY_MODEL_RANDOM},
    {"blk.%u.ffn_down.weight", TINY_MODEL_INNER, TINY_MODEL_WIDTH, TINY_MODEL_RANDOM},
    {"output_norm.weight", TINY_MODEL_WIDTH, 0, TINY_MODEL_EVEN},
    {"output.weight", TINY_MODEL_WIDTH, TINY_MODEL_VOCAB, TINY_MODEL_SAYS},
};

static bool tiny_model_is_layered(const struct tiny_model_tensor *t)
{
    return str_find(str_of(t->name), STR("%u")) != STR_NONE;
}

/* "blk.1.attn_q.weight" */
static str tiny_model_name(const struct tiny_model_tensor *t, uint32_t layer, char out[64])
{
    str all = str_of(t->name);
    size_t at = str_find(all, STR("%u"));
    if (at == STR_NONE)
        return all;
    int n = snprintf(out, 64, "%.*s%u%.*s", STR_ARG(str_sub(all, 0, at)), layer,
                     STR_ARG(str_from(all, at + 2)));
    return str_view(out, (size_t)n);
}

static bool tiny_model_says(uint32_t token)
{
    return token == ' ' || (token >= 'a' && token <= 'z');
}

static void tiny_model_fill_tensor(struct buf *b, const struct tiny_model_tensor *t,
                                   struct chrono_rng *rng)
{
    double scale = sqrt(12.0 / t->cols);
    for (uint32_t r = 0; r < (t->rows ? t->rows : 1); r++)
        for (uint32_t c = 0; c < t->cols; c++) {
            float v = (float)((chrono_rng_double(rng) - 0.5) * scale);
            if (t->fill == TINY_MODEL_EVEN)
                v = 1;
            else if (t->fill == TINY_MODEL_SAYS && !tiny_model_says(r))
                v = 0;
            buf_add_bytes(b, &v, sizeof v);
        }
}

static void tiny_model_put_info(struct buf *b, const struct tiny_model_tensor *t, str name,
                                uint64_t *offset)
{
    uint64_t count = (uint64_t)t->cols * (t->rows ? t->rows : 1);
    tiny_model_put_str(b, name);
    tiny_model_put_u32(b, t->rows ? 2 : 1);
    tiny_model_put_u64(b, t->cols);
    if (t->rows)
        tiny_model_put_u64(b, t->rows);
    tiny_model_put_u32(b, 0); /* F32 */
    tiny_model_put_u64(b, *offset);
    *offset += count * sizeof(float); /* a multiple of the alignment: all widths are of 8 */
}

/* Each tensor in file order, a layered one once per layer. Data, or what the header says of it. */
static uint64_t tiny_model_put_tensors(struct buf *b, bool is_data)
{
    struct chrono_rng rng;
    uint64_t offset = 0, count = 0;
    char name[64];
    chrono_rng_init(&rng, TINY_MODEL_SEED);
    for (size_t i = 0; i < countof(tiny_model_tensors); i++) {
        const struct tiny_model_tensor *t = &tiny_model_tensors[i];
        for (uint32_t k = 0; k < (tiny_model_is_layered(t) ? TINY_MODEL_LAYERS : 1); k++) {
            count++;
            if (is_data)
                tiny_model_fill_tensor(b, t, &rng);
            else
                tiny_model_put_info(b, t, tiny_model_name(t, k, name), &offset);
        }
    }
    return count;
}

/* --- the file ------------------------------------------------------------------------------ */

#define TINY_MODEL_NUMBERS(X) \
    X("llama.context_length", TINY_MODEL_CONTEXT) X("llama.embedding_length", TINY_MODEL_WIDTH) \
    X("llama.block_count", TINY_MODEL_LAYERS) X("llama.feed_forward_length", TINY_MODEL_INNER) \
    X("llama.attention.head_count", TINY_MODEL_HEADS) \
    X("llama.attention.head_count_kv", TINY_MODEL_KV_HEADS) \
    X("llama.rope.dimension_count", TINY_MODEL_HEAD)
#define TINY_MODEL_KEYS 20u /* 7 numbers, 2 names, epsilon, 3 of sampling, 7 of the vocabulary */

bool tiny_model_write(const char *path, struct err *e)
{
    struct buf b, infos;
    buf_init(&b, TINY_MODEL_FILE_MAX);
    buf_init(&infos, TINY_MODEL_FILE_MAX);
    uint64_t count = tiny_model_put_tensors(&infos, false);
    buf_add(&b, STR("GGUF"));
    tiny_model_put_u32(&b, 3);
    tiny_model_put_u64(&b, count);
    tiny_model_put_u64(&b, TINY_MODEL_KEYS);
    tiny_model_key_str(&b, "general.architecture", "llama");
    tiny_model_key_str(&b, "general.name", "drill");
#define X(key, value) tiny_model_key_u32(&b, key, value);
    TINY_MODEL_NUMBERS(X)
#undef X
    tiny_model_key_f32(&b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    /* Greedy, and without the circles that greedy runs in. */
    tiny_model_key_f32(&b, "general.sampling.temp", 0);
    tiny_model_key_f32(&b, "general.sampling.penalty_repeat", 2);
    tiny_model_key_u32(&b, "general.sampling.penalty_last_n", 16);
    tiny_model_put_vocab(&b);
    buf_add(&b, buf_view(&infos));
    while (b.len % TINY_MODEL_ALIGN)
        buf_add_byte(&b, 0);
    tiny_model_put_tensors(&b, true);
    bool ok = !b.full && !infos.full;
    ok = ok ? file_write(path, buf_view(&b), 0600, e)
            : err_set(e, ERR_MEMORY, "drill: no memory for a model");
    buf_deinit(&infos);
    buf_deinit(&b);
    return ok;
}
