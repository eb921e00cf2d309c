#include "base/digest.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/random.h>
#include <xxhash.h>

uint64_t digest_xxh3(str bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes.len ? bytes.p : "", bytes.len, seed);
}

struct digest_128 digest_xxh3_128(str bytes, uint64_t seed)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(bytes.len ? bytes.p : "", bytes.len, seed);
    return (struct digest_128){.low = h.low64, .high = h.high64};
}

bool digest_128_eq(struct digest_128 a, struct digest_128 b)
{
    return a.low == b.low && a.high == b.high;
}

static void digest_init(struct digest_sha256 *d, const EVP_MD *kind)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx && EVP_DigestInit_ex(ctx, kind, NULL) == 1;
    *d = (struct digest_sha256){.state = ctx, .is_broken = !ok};
}

void digest_sha256_init(struct digest_sha256 *d) { digest_init(d, EVP_sha256()); }
void digest_md5_init(struct digest_sha256 *d) { digest_init(d, EVP_md5()); }

void digest_sha256_add(struct digest_sha256 *d, str bytes)
{
    if (!d->is_broken && bytes.len && EVP_DigestUpdate(d->state, bytes.p, bytes.len) != 1)
        d->is_broken = true;
}

void digest_sha256_drop(struct digest_sha256 *d)
{
    EVP_MD_CTX_free(d->state);
    *d = (struct digest_sha256){.is_broken = true};
}

bool digest_sha256_end(struct digest_sha256 *d, uint8_t out[32], struct err *e)
{
    bool ok = !d->is_broken && EVP_DigestFinal_ex(d->state, out, NULL) == 1;
    digest_sha256_drop(d);
    return ok || err_set(e, ERR_INTERNAL, "sha256: libcrypto could not compute it");
}

void digest_hex(char *out, const uint8_t *bytes, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < size; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * size] = 0;
}

static int digest_nibble(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool digest_unhex(uint8_t *out, size_t size, str hex)
{
    if (hex.len / 2 != size || hex.len % 2)
        return false;
    for (size_t i = 0; i < size; i++) {
        int high = digest_nibble(hex.p[2 * i]), low = digest_nibble(hex.p[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static int digest_sextet(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool digest_unbase64(uint8_t *out, size_t size, str text)
{
    size_t digits = (size * 4 + 2) / 3; /* without padding */
    if (text.len != (size + 2) / 3 * 4)
        return false;
    uint32_t bits = 0;
    for (size_t i = 0, n = 0; i < text.len; i++) {
        int v = digest_sextet(text.p[i]);
        if (i >= digits ? text.p[i] != '=' : v < 0)
            return false;
        bits = bits << 6 | (uint32_t)(v < 0 ? 0 : v);
        if (i % 4 == 3)
            for (int shift = 16; shift >= 0 && n < size; shift -= 8)
                out[n++] = (uint8_t)(bits >> shift);
    }
    return true;
}

bool digest_equal_secret(const void *a, const void *b, size_t size)
{
    return CRYPTO_memcmp(a, b, size) == 0;
}

void digest_random(void *dst, size_t size)
{
    for (char *p = dst; size;) {
        ssize_t n = getrandom(p, size, 0);
        must(n > 0 || errno == EINTR); /* the kernel has no other failure for a valid buffer */
        if (n > 0) {
            p += n;
            size -= (size_t)n;
        }
    }
}
