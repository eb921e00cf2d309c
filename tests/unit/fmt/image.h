/* image - GGUF files made byte by byte, good and bad, for the tests of fmt.
 *
 * Owns:      the bytes of one file, and descriptors of files in memory.
 * Not:       any rule of the format: it writes what it is told.
 * Thread:    one.
 */
#ifndef SHOAL_TESTS_UNIT_FMT_IMAGE_H
#define SHOAL_TESTS_UNIT_FMT_IMAGE_H

#include "base/buf.h"
#include "fmt/model_file.h"

struct image {
    struct buf b;
};

void image_init(struct image *m);
void image_deinit(struct image *m);

void image_u8(struct image *m, uint8_t v);
void image_u16(struct image *m, uint16_t v);
void image_u32(struct image *m, uint32_t v);
void image_u64(struct image *m, uint64_t v);
void image_f32(struct image *m, float v);
void image_str(struct image *m, const char *z); /* u64 length, bytes */

void image_head(struct image *m, uint32_t version, uint64_t tensors, uint64_t keys);
void image_key(struct image *m, const char *key, uint32_t type); /* the value follows */
void image_key_u32(struct image *m, const char *key, uint32_t v);
void image_key_str(struct image *m, const char *key, const char *v);
void image_array(struct image *m, const char *key, uint32_t type, uint64_t count);
/* A one- or two-dimensional tensor; rows 0: one dimension. */
void image_tensor(struct image *m, const char *name, uint64_t width, uint64_t rows, uint32_t type,
                  uint64_t offset);
void image_pad(struct image *m, size_t alignment);
void image_fill(struct image *m, size_t count); /* bytes 0, 1, 2 ... 255, 0 ... */

/* A small valid file: arch "tiny", 4 keys, tensors "a" F32 [4] and "b" Q8_0 [64][2]. */
void image_good(struct image *m);

/* The bytes as a file in memory: its path ("/proc/self/fd/N") until image_drop. */
const char *image_path(const struct image *m, int *fd);
void image_drop(int fd);
void image_save(const struct image *m, const char *path);

#endif
