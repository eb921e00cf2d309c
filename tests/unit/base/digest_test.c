#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/chrono.h"
#include "base/digest.h"

/* sha256: FIPS 180-4 examples. xxh3: printed by `xxhsum -H3` and `xxhsum -H2` 0.8.1. */
static void test_published_digests_come_out(void **state)
{
    (void)state;
    static const struct { const char *text, *hex; } t[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    struct err e = {0};
    for (size_t i = 0; i < countof(t); i++) {
        uint8_t got[32];
        char hex[65];
        struct digest_sha256 d;
        str s = str_of(t[i].text);
        digest_sha256_init(&d);
        digest_sha256_add(&d, str_sub(s, 0, 2)); /* in two pieces */
        digest_sha256_add(&d, str_from(s, 2));
        assert_true(digest_sha256_end(&d, got, &e));
        digest_hex(hex, got, 32);
        assert_string_equal(hex, t[i].hex);
    }
    assert_true(digest_xxh3(STR(""), 0) == 0x2d06800538d394c2u);
    assert_true(digest_xxh3(STR("abc"), 0) == 0x78af5f94892f3950u);
    struct digest_128 d = digest_xxh3_128(STR("abc"), 0);
    assert_true(digest_128_eq(d, (struct digest_128){0x78af5f94892f3950u, 0x06b05ab6733a6185u}));
    assert_false(digest_128_eq(d, digest_xxh3_128(STR("abc"), 1)));
}

static void test_a_dropped_digest_cannot_answer(void **state)
{
    (void)state;
    struct err e = {0};
    struct digest_sha256 d;
    uint8_t out[32];
    digest_sha256_init(&d);
    digest_sha256_drop(&d);
    digest_sha256_add(&d, STR("x"));
    assert_false(digest_sha256_end(&d, out, &e));
    assert_int_equal(e.code, ERR_INTERNAL);
}

static void test_hex_is_read_strictly(void **state)
{
    (void)state;
    uint8_t b[2];
    assert_true(digest_unhex(b, 2, STR("aB09")) && b[0] == 0xab && b[1] == 0x09);
    assert_false(digest_unhex(b, 2, STR("ab0")) || digest_unhex(b, 2, STR("ab0900")));
    assert_false(digest_unhex(b, 2, STR("ab0g")) || digest_unhex(b, 2, STR("a b0")));
}

static void test_random_bytes_differ_and_secrets_compare(void **state)
{
    (void)state;
    uint8_t a[32], b[32];
    digest_random(a, sizeof a);
    digest_random(b, sizeof b);
    assert_false(digest_equal_secret(a, b, sizeof a));
    memcpy(b, a, sizeof b);
    assert_true(digest_equal_secret(a, b, sizeof a));
}

/* First outputs of xoshiro256++ after splitmix64 seeding with 0, from the authors' C code. */
static void test_the_generator_is_the_published_one(void **state)
{
    (void)state;
    struct chrono_rng r;
    chrono_rng_init(&r, 0);
    assert_true(r.s[0] == 0xe220a8397b1dcdafu && r.s[3] == 0xf88bb8a8724c81ecu);
    assert_true(chrono_rng_u64(&r) == 0x53175d61490b23dfu);
}

static void test_random_numbers_have_their_distribution(void **state)
{
    (void)state;
    enum { N = 60000 };
    struct chrono_rng r;
    uint32_t count[6] = {0};
    double sum = 0, squares = 0, mean = 0;
    chrono_rng_init(&r, 7);
    for (int i = 0; i < N; i++) {
        count[chrono_rng_below(&r, 6)]++;
        double u = chrono_rng_double(&r), n = (double)chrono_rng_normal(&r);
        assert_true(u >= 0 && u < 1);
        mean += u / N;
        sum += n / N;
        squares += n * n / N;
    }
    for (size_t i = 0; i < countof(count); i++)
        assert_in_range(count[i], N / 6 - 500, N / 6 + 500); /* 5.5 sigma */
    assert_true(fabs(mean - 0.5) < 0.01 && fabs(sum) < 0.02 && fabs(squares - 1) < 0.03);
}

static void test_a_fake_clock_moves_only_by_hand(void **state)
{
    (void)state;
    struct chrono_fake f = {.unix_ms_at_zero = 1000};
    struct chrono c = chrono_fake_clock(&f);
    assert_int_equal(chrono_ms(&c), 0);
    chrono_fake_add_ms(&f, 25);
    assert_int_equal(chrono_ms(&c), 25);
    assert_int_equal(chrono_unix_ms(&c), 1025);
    int64_t a = chrono_ns(&chrono_real), b = chrono_ns(&chrono_real);
    assert_true(b >= a && chrono_unix_ms(&chrono_real) > 1600000000000);
}

/* RFC 1321 appendix A.5; base64: RFC 4648 section 10. */
static void test_transport_checksums_are_the_published_ones(void **state)
{
    (void)state;
    struct err e;
    struct digest_sha256 d;
    uint8_t out[32];
    char hex[33];
    digest_md5_init(&d);
    digest_sha256_add(&d, STR("message digest"));
    assert_true(digest_sha256_end(&d, out, &e));
    digest_hex(hex, out, 16);
    assert_string_equal(hex, "f96b697d7cb7938d525a2f31aaf161d0");
    static const struct { size_t size; const char *text, *bytes; } rows[] = {
        {0, "", ""}, {1, "Zg==", "f"}, {2, "Zm8=", "fo"}, {3, "Zm9v", "foo"}, {6, "Zm9vYmFy",
        "foobar"}, {1, "Zg=A", NULL}, {1, "Zg", NULL}, {2, "Zg==", NULL}, {3, "Zm9=", NULL},
        {3, "Zm-v", NULL}, {0, "====", NULL},
    };
    for (size_t i = 0; i < countof(rows); i++) {
        assert_int_equal(digest_unbase64(out, rows[i].size, str_of(rows[i].text)),
                         rows[i].bytes != NULL);
        if (rows[i].bytes)
            assert_memory_equal(out, rows[i].bytes, rows[i].size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_digests_come_out),
        cmocka_unit_test(test_transport_checksums_are_the_published_ones),
        cmocka_unit_test(test_a_dropped_digest_cannot_answer),
        cmocka_unit_test(test_hex_is_read_strictly),
        cmocka_unit_test(test_random_bytes_differ_and_secrets_compare),
        cmocka_unit_test(test_the_generator_is_the_published_one),
        cmocka_unit_test(test_random_numbers_have_their_distribution),
        cmocka_unit_test(test_a_fake_clock_moves_only_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
