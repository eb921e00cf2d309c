#include "dialect/dialect_openai_write.h"

#include <stdio.h>

const char *dialect_openai_write_finish(enum api_done reason)
{
    switch (reason) {
    case API_DONE_EOS: case API_DONE_STOP_STRING: case API_DONE_SCHEMA_END:
        return "stop";
    case API_DONE_CALLS: case API_DONE_TOOL_LIMIT:
        return "tool_calls";
    case API_DONE_REFUSAL:
        return "content_filter";
    case API_DONE_CANCELLED:
        return "error";
    case API_DONE_MAX_TOKENS: case API_DONE_MAX_GEN: case API_DONE_CONTEXT_FULL:
    case API_DONE_DEADLINE: case API_DONE_LOOP: case API_DONE_COUNT_:
        break;
    }
    return "length";
}

void dialect_openai_write_head(struct json_writer *w, const struct dialect_state *st,
                               const char *id, const char *object)
{
    char fingerprint[] = "fp_0123456789abcdef";
    for (int i = 0; i < 16; i++)
        fingerprint[3 + i] = "0123456789abcdef"[st->model_hash >> (60 - 4 * i) & 15];
    json_key_z(w, "id");
    dialect_write_id(w, st, id);
    dialect_write_text_z(w, "object", object);
    json_key_z(w, "created");
    json_put_i64(w, st->time_s);
    dialect_write_text(w, "model", st->model);
    dialect_write_text_z(w, "system_fingerprint", fingerprint);
}

void dialect_openai_write_usage(struct json_writer *w, const struct api_usage *u)
{
    json_open_object(w);
    json_put_key_u64(w, "prompt_tokens", u->prompt_tokens);
    json_put_key_u64(w, "completion_tokens", u->output_tokens);
    json_put_key_u64(w, "total_tokens", (uint64_t)u->prompt_tokens + u->output_tokens);
    json_key_z(w, "prompt_tokens_details");
    json_open_object(w);
    json_put_key_u64(w, "cached_tokens", u->cached_tokens);
    json_close_object(w);
    json_key_z(w, "completion_tokens_details");
    json_open_object(w);
    json_put_key_u64(w, "reasoning_tokens", u->reasoning_tokens);
    json_put_key_u64(w, "accepted_prediction_tokens", u->draft_accepted_tokens);
    json_put_key_u64(w, "rejected_prediction_tokens", u->draft_rejected_tokens);
    json_close_object(w);
    json_close_object(w);
}

void dialect_openai_write_end(struct json_writer *w, const struct dialect_state *st,
                              enum api_done reason)
{
    json_key_z(w, "usage");
    dialect_openai_write_usage(w, &st->usage);
    json_put_key_u64(w, "seed", st->seed);
    json_key_z(w, "shoal");
    dialect_write_shoal(w, st, reason);
    json_close_object(w);
}

void dialect_openai_write_error(struct json_writer *w, const struct api_error *e)
{
    struct dialect_error_row row = dialect_error(e);
    json_key_z(w, "error");
    json_open_object(w);
    json_key_z(w, "message");
    dialect_write_message(w, e);
    dialect_write_text_z(w, "type", row.openai_type);
    json_put_key_text(w, "param", e->param);
    dialect_write_text_z(w, "code", row.code);
    if (e->err.code == ERR_CONTEXT) {
        json_put_key_u64(w, "prompt_tokens", e->prompt_tokens);
        json_put_key_u64(w, "limit", e->limit);
    }
    json_close_object(w);
}
