/* model_file - one view of a model on disk, whatever its format and number of files.
 *
 * Owns:      the open files of a model (all shards), its metadata, the list of its tensors.
 * Not:       what a key or tensor is for (arch, text), where weights go (tensor/weights), the bytes
 *            of one GGUF file (gguf).
 * Invariant: everything was checked at open: each tensor lies inside its shard, names and keys are
 *            unique, arrays hold what their type says. Views (str, model_array) live until close.
 *            Files are read with pread, never mapped: one that shrinks or changes gives a sentence.
 *
 *     path of any shard --> shard 0: metadata + tensors | shard 1: tensors | ... --> a sorted list
 *
 * Thread:    open and close by one thread; in between immutable, any thread may look up and read.
 * Limits:    GGUF_* in gguf.h; MODEL_SHARDS_MAX files.
 * Format:    docs/formats/gguf.md.
 */
#ifndef SHOAL_FMT_MODEL_FILE_H
#define SHOAL_FMT_MODEL_FILE_H

#include "base/err.h"
#include "base/str.h"
#include "quant/quant.h"

#define MODEL_SHARDS_MAX 512
#define MODEL_DIMS_MAX 4

/* Numbers are those of GGUF. */
enum model_type {
    MODEL_TYPE_U8,
    MODEL_TYPE_I8,
    MODEL_TYPE_U16,
    MODEL_TYPE_I16,
    MODEL_TYPE_U32,
    MODEL_TYPE_I32,
    MODEL_TYPE_F32,
    MODEL_TYPE_BOOL,
    MODEL_TYPE_STRING,
    MODEL_TYPE_ARRAY,
    MODEL_TYPE_U64,
    MODEL_TYPE_I64,
    MODEL_TYPE_F64,
};
enum { MODEL_TYPE_COUNT = MODEL_TYPE_F64 + 1 };

/* What a caller asks of an array: INT takes every integer type, FLOAT takes F32 and F64. */
enum model_kind { MODEL_KIND_INT, MODEL_KIND_FLOAT, MODEL_KIND_BOOL, MODEL_KIND_STRING };

struct model_array {
    enum model_type type;    /* of the elements */
    uint64_t count;
    const uint8_t *data;     /* elements as in the file, unaligned; for strings the whole header */
    const uint32_t *starts;  /* strings: where in data each one's u64 length lies */
};

struct model_value {
    enum model_type type;
    union {
        uint64_t u64; /* U8 U16 U32 U64 */
        int64_t i64;  /* I8 I16 I32 I64 */
        double f64;   /* F32 F64 */
        bool b;
        str s;
        struct model_array array;
    };
};

struct model_tensor {
    str name;
    enum qtype type;
    uint32_t n_dims;
    uint64_t dims[MODEL_DIMS_MAX]; /* dims[0] is contiguous (ggml's order); the unused ones are 1 */
    uint32_t shard;
    uint64_t offset; /* of the first byte in that shard's file */
    uint64_t size;   /* bytes */
};

struct model_file;

/* Opens the file at path and, if it is one of a split set, all others beside it. On success *f is
 * the caller's until model_file_close. ERR_NOT_FOUND, ERR_IO: the system said so; ERR_FORMAT: not a
 * model or damaged; ERR_UNSUPPORTED: a format or tensor type that shoal does not read. */
BASE_USE_RESULT bool model_file_open(struct model_file **f, const char *path, struct err *e);
void model_file_close(struct model_file *f); /* NULL is fine */

str model_file_arch(const struct model_file *f); /* general.architecture; never empty */
str model_file_name(const struct model_file *f); /* file name without folder, for messages */
/* Puts the name before a sentence that does not begin with it or the path; returns false. */
bool model_file_blame(const struct model_file *f, struct err *e);

/* ---- shards ---- */
uint32_t model_file_shard_count(const struct model_file *f);
uint64_t model_file_shard_size(const struct model_file *f, uint32_t shard); /* bytes */
/* The shard's descriptor, borrowed, read only: for readers that queue their own I/O. */
int model_file_shard_fd(const struct model_file *f, uint32_t shard);
/* Of all headers: every key and value, every tensor's name, type and shape. Files of equal headers
 * and weights are one model, whatever their names. */
uint64_t model_file_header_hash(const struct model_file *f);
/* ERR_IO "file changed while loaded" if size or time of any shard differ from those at open. */
BASE_USE_RESULT bool model_file_check_unchanged(const struct model_file *f, struct err *e);

/* ---- metadata ----
 * A key that begins with '.' stands for general.architecture + key: ".block_count" is
 * "llama.block_count" in a llama file. A value of the wrong type, or out of the range of what is
 * asked for, is ERR_FORMAT naming the key; so is an absent key in the forms without _or. */
size_t model_file_key_count(const struct model_file *f);
/* In file order, for printing; index < model_file_key_count. */
void model_file_key_at(const struct model_file *f, size_t index, str *key, struct model_value *v);
bool model_file_find(const struct model_file *f, const char *key, struct model_value *v);
static inline bool model_file_has(const struct model_file *f, const char *key)
{
    struct model_value v;
    return model_file_find(f, key, &v);
}

/* Any integer type that holds the value is taken for u32, u64, i64; F32 or F64 for f32. */
BASE_USE_RESULT bool model_file_u32(const struct model_file *f, const char *key, uint32_t *out,
                                    struct err *e);
BASE_USE_RESULT bool model_file_u32_or(const struct model_file *f, const char *key,
                                       uint32_t absent, uint32_t *out, struct err *e);
BASE_USE_RESULT bool model_file_u64(const struct model_file *f, const char *key, uint64_t *out,
                                    struct err *e);
BASE_USE_RESULT bool model_file_i64_or(const struct model_file *f, const char *key, int64_t absent,
                                       int64_t *out, struct err *e);
BASE_USE_RESULT bool model_file_f32(const struct model_file *f, const char *key, float *out,
                                    struct err *e);
BASE_USE_RESULT bool model_file_f32_or(const struct model_file *f, const char *key, float absent,
                                       float *out, struct err *e);
BASE_USE_RESULT bool model_file_bool_or(const struct model_file *f, const char *key, bool absent,
                                        bool *out, struct err *e);
BASE_USE_RESULT bool model_file_str(const struct model_file *f, const char *key, str *out,
                                    struct err *e);
BASE_USE_RESULT bool model_file_str_or(const struct model_file *f, const char *key, str absent,
                                       str *out, struct err *e);

/* The array under key, its elements of that kind. An absent key is an error. */
BASE_USE_RESULT bool model_file_array(const struct model_file *f, const char *key,
                                      enum model_kind kind, struct model_array *out,
                                      struct err *e);
/* out[n_layer]: a scalar is repeated, an array must have exactly n_layer elements. */
BASE_USE_RESULT bool model_file_u32_layers(const struct model_file *f, const char *key,
                                           uint32_t *out, uint32_t n_layer, struct err *e);
BASE_USE_RESULT bool model_file_bool_layers(const struct model_file *f, const char *key, bool *out,
                                            uint32_t n_layer, struct err *e);

/* Element index < count of an array of the fitting kind; a u64 above INT64_MAX gives INT64_MAX. */
str model_file_str_at(const struct model_array *a, uint64_t index);
int64_t model_file_i64_at(const struct model_array *a, uint64_t index);
float model_file_f32_at(const struct model_array *a, uint64_t index);
bool model_file_bool_at(const struct model_array *a, uint64_t index);

/* ---- tensors ---- */
size_t model_file_tensor_count(const struct model_file *f);
/* In file order, shard after shard; index < model_file_tensor_count. */
const struct model_tensor *model_file_tensor_at(const struct model_file *f, size_t index);
/* NULL if there is none of that name. */
const struct model_tensor *model_file_tensor(const struct model_file *f, str name);
/* dst[size] from bytes offset.. of the tensor; offset + size <= t->size (ours to keep). A file that
 * became shorter or was changed since open is ERR_IO. */
BASE_USE_RESULT bool model_file_read(const struct model_file *f, const struct model_tensor *t,
                                     uint64_t offset, void *dst, size_t size, struct err *e);

#endif
