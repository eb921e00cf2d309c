#include "dialect/dialect.h"

extern const struct dialect dialect_openai_chat;

const struct dialect *const dialect_table[] = {
    &dialect_openai_chat,
};
const uint32_t dialect_table_count = countof(dialect_table);
