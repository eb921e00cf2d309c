#include "unit/fmt/image.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void image_init(struct image *m) { buf_init(&m->b, (size_t)64 << 20); }
void image_deinit(struct image *m) { buf_deinit(&m->b); }

static void image_bytes(struct image *m, const void *p, size_t size)
{
    must(buf_add_bytes(&m->b, p, size));
}

void image_u8(struct image *m, uint8_t v) { image_bytes(m, &v, sizeof v); }
void image_u16(struct image *m, uint16_t v) { image_bytes(m, &v, sizeof v); }
void image_u32(struct image *m, uint32_t v) { image_bytes(m, &v, sizeof v); }
void image_u64(struct image *m, uint64_t v) { image_bytes(m, &v, sizeof v); }
void image_f32(struct image *m, float v) { image_bytes(m, &v, sizeof v); }

void image_str(struct image *m, const char *z)
{
    image_u64(m, strlen(z));
    image_bytes(m, z, strlen(z));
}

void image_head(struct image *m, uint32_t version, uint64_t tensors, uint64_t keys)
{
    image_bytes(m, "GGUF", 4);
    image_u32(m, version);
    image_u64(m, tensors);
    image_u64(m, keys);
}

void image_key(struct image *m, const char *key, uint32_t type)
{
    image_str(m, key);
    image_u32(m, type);
}

void image_key_u32(struct image *m, const char *key, uint32_t v)
{
    image_key(m, key, MODEL_TYPE_U32);
    image_u32(m, v);
}

void image_key_str(struct image *m, const char *key, const char *v)
{
    image_key(m, key, MODEL_TYPE_STRING);
    image_str(m, v);
}

void image_array(struct image *m, const char *key, uint32_t type, uint64_t count)
{
    image_key(m, key, MODEL_TYPE_ARRAY);
    image_u32(m, type);
    image_u64(m, count);
}

void image_tensor(struct image *m, const char *name, uint64_t width, uint64_t rows, uint32_t type,
                  uint64_t offset)
{
    image_str(m, name);
    image_u32(m, rows > 0 ? 2 : 1);
    image_u64(m, width);
    if (rows > 0)
        image_u64(m, rows);
    image_u32(m, type);
    image_u64(m, offset);
}

void image_pad(struct image *m, size_t alignment)
{
    while (m->b.len % alignment != 0)
        image_u8(m, 0);
}

void image_fill(struct image *m, size_t count)
{
    for (size_t i = 0; i < count; i++)
        image_u8(m, (uint8_t)i);
}

void image_good(struct image *m)
{
    image_head(m, 3, 2, 4);
    image_key_str(m, "general.architecture", "tiny");
    image_key_u32(m, "tiny.block_count", 2);
    image_array(m, "tokenizer.ggml.tokens", MODEL_TYPE_STRING, 3);
    image_str(m, "<s>");
    image_str(m, "");
    image_str(m, "hello");
    image_array(m, "tokenizer.ggml.scores", MODEL_TYPE_F32, 3);
    image_f32(m, 0.0f);
    image_f32(m, -1.5f);
    image_f32(m, -2.0f);
    image_tensor(m, "a", 4, 0, 0, 0);
    image_tensor(m, "b", 64, 2, 8, 32);
    image_pad(m, 32);
    image_fill(m, 32 + 4 * 34);
}

const char *image_path(const struct image *m, int *fd)
{
    static char path[64];
    *fd = memfd_create("image", MFD_CLOEXEC);
    must(*fd >= 0);
    must(write(*fd, m->b.p, m->b.len) == (ssize_t)m->b.len || m->b.len == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", *fd);
    return path;
}

void image_drop(int fd) { close(fd); }

void image_save(const struct image *m, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    must(fd >= 0);
    must(write(fd, m->b.p, m->b.len) == (ssize_t)m->b.len);
    close(fd);
}
