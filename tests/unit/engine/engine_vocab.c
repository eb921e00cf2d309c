#include "engine_vocab.h"

#include <stdio.h>
#include <stdlib.h>

struct vocab *engine_vocab_new(const char *const *texts, uint32_t count)
{
    struct vocab_source s = vocab_source_empty;
    struct vocab *v = NULL;
    struct err e;
    str *tokens = calloc(count, sizeof *tokens);
    int32_t *types = calloc(count, sizeof *types);
    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = str_of(texts[i]);
        types[i] = i + 1 == count ? VOCAB_TYPE_CONTROL : VOCAB_TYPE_NORMAL;
    }
    s.model = STR("gpt2");
    s.pre = STR("default");
    s.tokens = tokens;
    s.types = types;
    s.count = count;
    s.roles[VOCAB_ROLE_EOS] = (int32_t)count - 1;
    if (!vocab_new(&v, &s, &e)) {
        fprintf(stderr, "engine_vocab: %s\n", e.text);
        exit(1);
    }
    free(tokens);
    free(types);
    return v;
}

struct vocab *engine_vocab_numbered(uint32_t count)
{
    char (*texts)[16] = calloc(count, sizeof *texts);
    const char **list = calloc(count, sizeof *list);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(texts[i], sizeof texts[i], "\u0120w%u", i);
        list[i] = texts[i];
    }
    list[count - 1] = "<end>";
    struct vocab *v = engine_vocab_new(list, count);
    free(list);
    free(texts);
    return v;
}

struct vocab *engine_vocab_bytes(void)
{
    static char texts[256][8];
    static str tokens[257];
    static int32_t types[257];
    struct vocab_source s = vocab_source_empty;
    struct vocab *v = NULL;
    struct err e;
    for (int i = 0; i < 256; i++) {
        snprintf(texts[i], sizeof texts[i], "<0x%02X>", (unsigned)i);
        tokens[i] = str_of(texts[i]);
        types[i] = VOCAB_TYPE_BYTE;
    }
    tokens[256] = STR("</s>");
    types[256] = VOCAB_TYPE_CONTROL;
    s.model = STR("llama");
    s.tokens = tokens;
    s.types = types;
    s.count = 257;
    s.roles[VOCAB_ROLE_EOS] = 256;
    if (!vocab_new(&v, &s, &e)) {
        fprintf(stderr, "engine_vocab: %s\n", e.text);
        exit(1);
    }
    return v;
}
