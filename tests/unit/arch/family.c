#include "unit/arch/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define VOCAB 48u

#define COMMON(layers, heads, kv)                                                          \
    {".block_count", 'u', layers, NULL}, {".embedding_length", 'u', 64, NULL},             \
        {".context_length", 'u', 256, NULL}, {".feed_forward_length", 'u', 96, NULL},      \
        {".attention.head_count", 'u', heads, NULL},                                       \
        {".attention.head_count_kv", 'u', kv, NULL},                                       \
        {".attention.layer_norm_rms_epsilon", 'f', 1e-5, NULL}

const struct family families[] = {
    {"llama", "llama", "llama", {COMMON(2, 4, 2)}, {"output.weight"}},
    {"llama3", "llama", "llama",
     {COMMON(1, 4, 1), {".rope.freq_base", 'f', 5e5, NULL}},
     {"rope_freqs.weight"}},
    {"llama-biased", "llama", "llama",
     {COMMON(1, 4, 4), {".attention.sliding_window", 'u', 32, NULL}},
     {"blk.0.attn_q.bias", "blk.0.attn_output.bias", "blk.0.ffn_up.bias"}},
    {"llama-fused", "llama", "llama", {COMMON(1, 4, 2)}, {"blk.0.attn_qkv.weight"}},
    {"mixtral", "llama", "llama",
     {COMMON(1, 4, 2), {".expert_count", 'u', 4, NULL}, {".expert_used_count", 'u', 2, NULL}},
     {"output.weight"}},
    {"qwen2", "llama", "qwen2", {COMMON(1, 4, 2)}, {"blk.0.attn_q.bias"}},
    {"qwen3", "qwen3", "qwen3",
     {COMMON(1, 4, 2), {".attention.key_length", 'u', 32, NULL}},
     {NULL}},
    {"qwen3-embedding", "qwen3", "qwen3",
     {COMMON(1, 4, 2), {".pooling_type", 'u', 3, NULL}},
     {NULL}},
    {"qwen3moe", "qwen3", "qwen3moe",
     {COMMON(1, 4, 2),
      {".expert_count", 'u', 8, NULL},
      {".expert_used_count", 'u', 3, NULL},
      {".expert_feed_forward_length", 'u', 32, NULL}},
     {NULL}},
    {"gemma3", "gemma", "gemma3",
     {COMMON(7, 4, 1),
      {".attention.sliding_window", 'u', 64, NULL},
      {".rope.freq_base", 'f', 1e6, NULL},
      {".rope.scaling.type", 's', 0, "linear"},
      {".rope.scaling.factor", 'f', 8, NULL}},
     {NULL}},
    {"gpt-oss", "gptoss", "gpt-oss",
     {COMMON(2, 4, 2),
      {".attention.sliding_window", 'u', 64, NULL},
      {".expert_count", 'u', 4, NULL},
      {".expert_used_count", 'u', 2, NULL},
      {".expert_feed_forward_length", 'u', 32, NULL},
      {".rope.scaling.type", 's', 0, "yarn"},
      {".rope.scaling.factor", 'f', 32, NULL},
      {".rope.scaling.original_context_length", 'u', 64, NULL}},
     {"output.weight"}},
};
const size_t families_count = countof(families);

/* ---- GGUF, as little of it as needed: docs/formats/gguf.md ---- */

enum { TYPE_U32 = 4, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_STRING = 8, ALIGNMENT = 32 };

static void put_u32(struct buf *b, uint32_t v) { buf_add_bytes(b, &v, 4); }
static void put_u64(struct buf *b, uint64_t v) { buf_add_bytes(b, &v, 8); }
static void put_text(struct buf *b, const char *z)
{
    put_u64(b, strlen(z));
    buf_add_z(b, z);
}

struct writer {
    struct buf keys, tensors;
    uint64_t keys_count, tensors_count, data_size;
    const struct family_change *change;
};

static void add_key(struct writer *w, const char *prefix, const struct family_key *k)
{
    char full[128];
    if (w->change->key && strcmp(w->change->key->key, k->key) == 0)
        k = w->change->key;
    if (!k->type)
        return;
    snprintf(full, sizeof full, "%s%s", prefix, k->key);
    put_text(&w->keys, full);
    w->keys_count++;
    if (k->type == 's') {
        put_u32(&w->keys, TYPE_STRING);
        put_text(&w->keys, k->text);
    } else if (k->type == 'f') {
        float x = (float)k->number;
        put_u32(&w->keys, TYPE_F32);
        buf_add_bytes(&w->keys, &x, 4);
    } else if (k->type == 'b') {
        put_u32(&w->keys, TYPE_BOOL);
        buf_add_byte(&w->keys, k->number != 0);
    } else {
        put_u32(&w->keys, TYPE_U32);
        put_u32(&w->keys, (uint32_t)k->number);
    }
}

static void add_tensor(struct writer *w, const char *name, struct weight_want want)
{
    const struct family_change *c = w->change;
    if (c->without && strcmp(c->without, name) == 0)
        return;
    uint32_t cols = want.cols + (c->wider && strcmp(c->wider, name) == 0);
    uint32_t n_dims = want.mats > 1 ? 3 : want.rows > 1 ? 2 : 1;
    const uint64_t dims[] = {cols, want.rows, want.mats};
    put_text(&w->tensors, name);
    put_u32(&w->tensors, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        put_u64(&w->tensors, dims[i]);
    put_u32(&w->tensors, 0); /* F32 */
    put_u64(&w->tensors, w->data_size);
    w->tensors_count++;
    w->data_size += base_align((size_t)cols * want.rows * want.mats * 4, ALIGNMENT);
}

static void add_tensors(struct writer *w, const struct family *f, const struct plan *plan)
{
    for (uint32_t i = 0; plan && i < plan->weights_count; i++)
        add_tensor(w, plan->weights[i].name.p, plan->weights[i].want);
    if (!plan) {
        add_tensor(w, "token_embd.weight", plan_matrix(VOCAB, 64));
        for (size_t i = 0; i < FAMILY_NOTED_MAX && f->noted[i]; i++)
            add_tensor(w, f->noted[i], plan_vector(1));
    }
    if (w->change->extra)
        add_tensor(w, w->change->extra, plan_vector(64));
}

const char *family_file(const struct family *f, const struct plan *plan,
                        const struct family_change *change, int *fd)
{
    static char path[64];
    struct writer w = {.change = change ? change : &(struct family_change){0}};
    const char *file_name = w.change->file_name ? w.change->file_name : f->file_name;
    buf_init(&w.keys, 1u << 20);
    buf_init(&w.tensors, 1u << 20);
    struct family_key name = {"general.architecture", 's', 0, file_name};
    add_key(&w, "", &name);
    bool is_new = w.change->key != NULL;
    for (size_t i = 0; i < FAMILY_KEYS_MAX && f->keys[i].key; i++) {
        add_key(&w, file_name, &f->keys[i]);
        is_new = is_new && strcmp(w.change->key->key, f->keys[i].key) != 0;
    }
    if (is_new)
        add_key(&w, file_name, w.change->key);
    add_tensors(&w, f, plan);

    struct buf all;
    buf_init(&all, 4u << 20);
    buf_add_z(&all, "GGUF");
    put_u32(&all, 3);
    put_u64(&all, w.tensors_count);
    put_u64(&all, w.keys_count);
    buf_add(&all, buf_view(&w.keys));
    buf_add(&all, buf_view(&w.tensors));
    size_t size = base_align(all.len, ALIGNMENT) + w.data_size;
    *fd = memfd_create("family", MFD_CLOEXEC);
    must(!all.full && *fd >= 0 && write(*fd, all.p, all.len) == (ssize_t)all.len);
    must(ftruncate(*fd, (off_t)size) == 0);
    buf_deinit(&all);
    buf_deinit(&w.keys);
    buf_deinit(&w.tensors);
    snprintf(path, sizeof path, "/proc/self/fd/%d", *fd);
    return path;
}

void family_drop(int fd) { close(fd); }
