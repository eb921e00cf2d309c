#include "dialect/dialect_contexts.h"

extern const struct dialect dialect_anthropic, dialect_ollama, dialect_openai_chat,
    dialect_openai_complete, dialect_openai_models, dialect_openai_responses;

const struct dialect *const dialect_table[] = {
    &dialect_openai_chat,
    &dialect_openai_complete,
    &dialect_openai_models,
    &dialect_openai_responses,
    &dialect_ollama,
    &dialect_anthropic,
    &dialect_contexts,
};
const uint32_t dialect_table_count = countof(dialect_table);
