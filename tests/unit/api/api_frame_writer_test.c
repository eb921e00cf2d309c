#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "api/api_frame_writer.h"

#define TEXTS_MAX 40u

static char text[200000];
static struct api_input inputs[TEXTS_MAX];
static struct api_frame_writer writer;

/* A request with a text of each length. */
static struct api_frame request_of(const uint32_t *lens, uint32_t count)
{
    struct api_frame f = {.kind = API_FRAME_SUBMIT, .id = 5};
    assert_true(count <= TEXTS_MAX);
    for (uint32_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + i % 23);
    for (uint32_t i = 0; i < count; i++)
        inputs[i] = (struct api_input){.text = str_view(text + i, lens[i])};
    api_request_init(&f.submit);
    f.submit.kind = API_KIND_COMPLETE;
    f.submit.inputs = inputs;
    f.submit.inputs_count = count;
    return f;
}

static void test_its_frames_are_those_of_a_message_written_whole(void **state)
{
    (void)state;
    static const struct { uint32_t lens[TEXTS_MAX], count; } cases[] = {
        {{0}, 1},
        {{10, 20}, 2},
        {{API_FRAME_LENT_MIN - 1, API_FRAME_LENT_MIN, API_FRAME_LENT_MIN + 1}, 3},
        {{200000, 1, 4096, 4096, 150000}, 5},
        {{5000, 5000, 5000, 5000, 5000, 5000, 5000, 5000, 5000, 5000, 5000, 5000, 5000}, 13},
    };
    for (size_t i = 0; i < countof(cases); i++)
        for (uint32_t more = 0; more < 300; more += 7) { /* borders of frames at many places */
            uint32_t lens[TEXTS_MAX];
            struct buf whole, made;
            struct err e;
            memcpy(lens, cases[i].lens, sizeof lens);
            lens[cases[i].count] = 65000 + more;
            struct api_frame f = request_of(lens, cases[i].count + 1);
            buf_init(&whole, 8u << 20);
            buf_init(&made, 8u << 20);
            assert_true(api_frame_write(&whole, &f, &e));
            assert_true(api_frame_writer_init(&writer, &f, 8u << 20, &e));
            for (str frame; (frame = api_frame_writer_next(&writer)).len;) {
                assert_int_equal(api_frame_first(frame), frame.len);
                buf_add(&made, frame);
            }
            assert_int_equal(made.len, whole.len);
            assert_memory_equal(made.p, whole.p, whole.len);
            api_frame_writer_deinit(&writer);
            buf_deinit(&whole);
            buf_deinit(&made);
        }
}

/* What was lent is overwritten at once: it may not be looked at again. */
static void test_a_message_taken_back_is_forgotten_and_the_next_one_read(void **state)
{
    (void)state;
    static const uint32_t lens[] = {200000, 3, 150000};
    for (uint32_t frames = 0; frames < 8; frames++) {
        struct api_frame f = request_of(lens, countof(lens)), other = request_of(lens, 2);
        struct buf bytes;
        struct err e;
        struct api_message_bytes m;
        struct api_frame_reader r;
        buf_init(&bytes, 8u << 20);
        assert_true(api_frame_writer_init(&writer, &f, 8u << 20, &e));
        for (uint32_t i = 0; i < frames; i++)
            buf_add(&bytes, api_frame_writer_next(&writer));
        size_t before = bytes.len;
        bool was_over = writer.is_over;
        api_frame_writer_take_back(&writer);
        for (str frame; (frame = api_frame_writer_next(&writer)).len;)
            buf_add(&bytes, frame);
        bool is_empty_more = frames && !was_over;
        assert_int_equal(bytes.len, before + (is_empty_more ? API_FRAME_HEADER_SIZE : 0));
        other.id = 6;
        assert_true(api_frame_write(&bytes, &other, &e));
        api_frame_reader_init(&r, API_FRAME_TO_CHILD, 8u << 20);
        str in = buf_view(&bytes);
        assert_int_equal(api_frame_reader_next(&r, &in, &m, &e), API_FRAME_GOT_MESSAGE);
        assert_int_equal(m.id, was_over ? 5 : 6);
        arena_deinit(&m.arena);
        if (was_over) {
            assert_int_equal(api_frame_reader_next(&r, &in, &m, &e), API_FRAME_GOT_MESSAGE);
            arena_deinit(&m.arena);
        }
        assert_int_equal(in.len, 0);
        api_frame_reader_deinit(&r);
        api_frame_writer_deinit(&writer);
        buf_deinit(&bytes);
    }
}

static void test_an_empty_more_outside_a_message_is_refused(void **state)
{
    (void)state;
    struct api_frame_reader r;
    struct api_message_bytes m;
    struct err e;
    char header[API_FRAME_HEADER_SIZE];
    api_frame_put_header(header, 0, API_FRAME_MORE, 5);
    api_frame_reader_init(&r, API_FRAME_TO_CHILD, 1u << 20);
    str in = str_view(header, sizeof header);
    assert_int_equal(api_frame_reader_next(&r, &in, &m, &e), API_FRAME_GOT_BROKEN);
    assert_non_null(strstr(e.text, "do not continue a message"));
    api_frame_reader_deinit(&r);
}

static void test_a_message_over_its_limit_is_refused_before_anything_is_sent(void **state)
{
    (void)state;
    static const uint32_t lens[] = {200000, 200000};
    struct api_frame f = request_of(lens, countof(lens));
    struct err e;
    assert_false(api_frame_writer_init(&writer, &f, 300000, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_non_null(strstr(e.text, "SUBMIT: longer than 300000 bytes"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_its_frames_are_those_of_a_message_written_whole),
        cmocka_unit_test(test_a_message_taken_back_is_forgotten_and_the_next_one_read),
        cmocka_unit_test(test_an_empty_more_outside_a_message_is_refused),
        cmocka_unit_test(test_a_message_over_its_limit_is_refused_before_anything_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
