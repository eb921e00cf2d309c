/* Any bytes as a model file: opened, listed, asked for each key in every way, each tensor read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fmt/model_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ask_key(const struct model_file *f, const char *key)
{
    struct err e;
    uint32_t u, layers[4];
    int64_t i;
    float x;
    bool b, flags[4];
    str s;
    struct model_array a;
    uint64_t sum = 0;
    sum += model_file_u32(f, key, &u, &e) + model_file_i64_or(f, key, 1, &i, &e);
    sum += model_file_f32(f, key, &x, &e) + model_file_bool_or(f, key, true, &b, &e);
    if (model_file_str(f, key, &s, &e))
        sum += str_utf8_valid(s);
    sum += model_file_u32_layers(f, key, layers, 4, &e);
    sum += model_file_bool_layers(f, key, flags, 4, &e);
    for (int kind = MODEL_KIND_INT; kind <= MODEL_KIND_STRING; kind++) {
        if (!model_file_array(f, key, (enum model_kind)kind, &a, &e))
            continue;
        for (uint64_t k = 0; k < a.count && k < 1000; k++)
            sum += kind == MODEL_KIND_INT ? (uint64_t)model_file_i64_at(&a, k)
                 : kind == MODEL_KIND_FLOAT ? base_bits_of(model_file_f32_at(&a, k))
                 : kind == MODEL_KIND_BOOL ? model_file_bool_at(&a, k)
                                           : str_utf8_valid(model_file_str_at(&a, k));
    }
    volatile uint64_t sink = sum; /* every byte that a view covers was touched */
    (void)sink;
}

static void read_tensor(const struct model_file *f, const struct model_tensor *t)
{
    struct err e;
    if (t->size > 1 << 16 || model_file_tensor(f, t->name) != t)
        return;
    void *bytes = malloc(t->size ? t->size : 1);
    if (!bytes || !model_file_read(f, t, 0, bytes, t->size, &e))
        abort(); /* it was checked at open */
    size_t count = t->size / quant_table[t->type].block_bytes * quant_table[t->type].block_elems;
    float *values = malloc((count ? count : 1) * sizeof *values);
    if (!values)
        abort();
    quant_table[t->type].dequant(values, bytes, count);
    free(values);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    char path[64];
    struct err e;
    struct model_file *f;
    if (fd < 0)
        fd = memfd_create("gguf_fuzz", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!model_file_open(&f, path, &e))
        return 0;
    for (size_t i = 0; i < model_file_key_count(f); i++) {
        char key[256];
        str k;
        struct model_value v;
        model_file_key_at(f, i, &k, &v);
        snprintf(key, sizeof key, "%.*s", STR_ARG(k));
        ask_key(f, key);
    }
    ask_key(f, ".block_count");
    for (size_t i = 0; i < model_file_tensor_count(f); i++)
        read_tensor(f, model_file_tensor_at(f, i));
    model_file_close(f);
    return 0;
}
