/* Any bytes as a chat template over a fixed conversation: compiling and running end, within their
 * limits, in a text or in one sentence; no byte of the request lies in a span of the template. */
#include <stdint.h>
#include <stdlib.h>

#include "chat/jinja.h"
#include "chat/jinja_json.h"

#define STEPS 50000
#define MEMORY ((size_t)8 << 20)

/* Strings are private-use characters (U+E000), which only a template that holds them can print. */
static const char conversation[] =
    "{\"messages\": [{\"role\": \"\xee\x80\x80\", \"content\": \"\xee\x80\x80 a\\n\\u03a3\"},"
    "{\"role\": \"\xee\x80\x80z\", \"content\": null, \"tool_calls\": [{\"id\": \"\xee\x80\x80\","
    "\"function\": {\"name\": \"\xee\x80\x80n\", \"arguments\": {\"\xee\x80\x80\": [1, 2.5, true, "
    "\"\xee\x80\x80\"]}}}]}], \"tools\": [{\"\xee\x80\x80\": 12345678901234567890}]}";

static bool holds_private(str s)
{
    return str_find(s, STR("\xee\x80\x80")) != STR_NONE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct jinja_template *t;
    struct err e = {0};
    str source = str_view(data, size);
    arena_init(&a, MEMORY);
    if (jinja_compile(&t, source, &a, &e)) {
        struct jinja_heap h = jinja_heap(&a);
        struct jinja_value all = jinja_value_none();
        struct jinja_result out = {0};
        struct jinja_var vars[4];
        struct jinja_input in = {.vars = vars, .time_s = 1785000000};
        h.steps_left = STEPS;
        if (jinja_json_value(&h, str_of(conversation), 1, &all, &e))
            for (uint32_t i = 0; i < all.u.dict->count; i++)
                vars[in.vars_count++] = (struct jinja_var){
                    jinja_text_bytes(all.u.dict->entries[i].key.u.s),
                    all.u.dict->entries[i].value};
        vars[in.vars_count++] = (struct jinja_var){STR("add_generation_prompt"),
                                                   jinja_value_bool(true)};
        if (!jinja_run(t, &h, &in, &out, &e) && e.code == ERR_NONE)
            abort();
        /* A template may spell the character itself: as it stands, or as an escape. */
        bool may = holds_private(source) || str_find_byte(source, '\\') != STR_NONE;
        for (uint32_t at = 0, end; at < out.text.len; at = end)
            if (jinja_text_origin(out.text, at, &end) == 0 && !may &&
                holds_private(jinja_text_bytes(jinja_text_cut(out.text, at, end))))
                abort();
    } else if (e.code == ERR_NONE) {
        abort();
    }
    arena_deinit(&a);
    return 0;
}
