/* digest - fingerprints of bytes: xxh3 (fast, not for secrets), sha256, and random bytes.
 *
 * Owns:      calling libxxhash and libcrypto; nobody else includes their headers.
 * Not:       keys of prefixes (kv), random numbers of a reply (tensor/sample).
 * Invariant: xxh3 values may be stored on disk: the algorithm is frozen since libxxhash 0.8.0.
 * Thread:    any; a running digest belongs to its owner.
 */
#ifndef SHOAL_BASE_DIGEST_H
#define SHOAL_BASE_DIGEST_H

#include "base/err.h"
#include "base/str.h"

struct digest_128 {
    uint64_t low, high;
};

uint64_t digest_xxh3(str bytes, uint64_t seed);
struct digest_128 digest_xxh3_128(str bytes, uint64_t seed);
bool digest_128_eq(struct digest_128 a, struct digest_128 b);

/* In pieces. A failure inside libcrypto (memory) shows at the end. A zeroed one may be dropped. */
struct digest_sha256 {
    void *state;
    bool is_broken;
};
void digest_sha256_init(struct digest_sha256 *d);
void digest_sha256_add(struct digest_sha256 *d, str bytes);
/* Writes the digest and frees the state; false: ERR_INTERNAL. */
bool digest_sha256_end(struct digest_sha256 *d, uint8_t out[32], struct err *e) BASE_USE_RESULT;
/* Frees without an answer. */
void digest_sha256_drop(struct digest_sha256 *d);

/* The same with MD5, which some servers send as a checksum of transport; against accidents only.
 * The end writes 16 bytes. */
void digest_md5_init(struct digest_sha256 *d);

/* 2 * size lower-case digits and a NUL. */
void digest_hex(char *out, const uint8_t *bytes, size_t size);
/* Exactly 2 * size digits of either case; false otherwise. */
bool digest_unhex(uint8_t *out, size_t size, str hex);
/* Standard base64 with padding of exactly size bytes; false otherwise. */
bool digest_unbase64(uint8_t *out, size_t size, str text);
/* Compares in a time that depends on size alone. */
bool digest_equal_secret(const void *a, const void *b, size_t size);

/* From the kernel; blocks only before the machine has gathered entropy once. */
void digest_random(void *dst, size_t size);

#endif
