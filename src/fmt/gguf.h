/* gguf - one GGUF file: its metadata and its list of tensors, from bytes nobody vouches for.
 *
 * Owns:      the header bytes it read, the tables made from them.
 * Not:       the open file (the caller), sets of several files and typed look-ups (model_file).
 * Invariant: every view points into header; every array is as long as its count says; every tensor
 *            lies inside the file and none overlaps another. No length or count is believed before
 *            it was compared with the bytes that are left.
 *
 *     "GGUF" version tensors keys | key type value ... | name dims type offset ... | pad | data
 *     `------------------------- header, read in windows ------------------------'
 *
 * Thread:    read and deinit by one; in between immutable.
 * Limits:    GGUF_*_MAX below.
 * Format:    docs/formats/gguf.md.
 */
#ifndef SHOAL_FMT_GGUF_H
#define SHOAL_FMT_GGUF_H

#include "base/file.h"
#include "base/map.h"
#include "fmt/model_file.h"

#define GGUF_HEADER_MAX ((uint64_t)256 << 20) /* bytes before the tensor data */
#define GGUF_KEYS_MAX 65536u
#define GGUF_KEY_LEN_MAX 65535u
#define GGUF_TENSORS_MAX 1048576u
#define GGUF_NAME_LEN_MAX 255u
#define GGUF_DEPTH_MAX 4u /* arrays inside arrays */
#define GGUF_ALIGNMENT_MAX 65536u
#define GGUF_ALIGNMENT 32u /* without general.alignment */

struct gguf_entry {
    str key;
    struct model_value value;
};

struct gguf {
    uint8_t *header;
    size_t header_size; /* bytes of it, without padding */
    struct gguf_entry *entries; /* in file order */
    struct model_tensor *tensors; /* in file order; shard is 0 */
    struct map by_key;            /* key to index of entries */
    uint32_t version, entry_count, tensor_count, alignment;
    uint64_t data_offset; /* first byte after the header and its padding */
};

/* Reads the header of f. On failure *g holds nothing. ERR_FORMAT: what is wrong with which object;
 * ERR_UNSUPPORTED: another format, version, byte order or tensor type; ERR_LIMIT; ERR_MEMORY. */
BASE_USE_RESULT bool gguf_read(struct gguf *g, const struct file *f, struct err *e);
void gguf_deinit(struct gguf *g); /* also after a zeroed struct */

/* NULL if the key is not there. */
const struct model_value *gguf_find(const struct gguf *g, str key);

#endif
