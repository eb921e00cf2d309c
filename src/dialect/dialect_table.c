#include "dialect/dialect.h"

extern const struct dialect dialect_anthropic, dialect_ollama, dialect_openai_chat;

const struct dialect *const dialect_table[] = {
    &dialect_openai_chat,
    &dialect_ollama,
    &dialect_anthropic,
};
const uint32_t dialect_table_count = countof(dialect_table);
