/* dialect_ask - a request as an upstream gets it: what the writers of all protocols share.
 *
 * Owns:      the messages as turns (results apart, the unfinished turn at the end), names and ids
 *            as an upstream takes them, notes of what is lost, patching a body of one's own
 *            protocol.
 * Not:       a protocol's JSON (dialect_NAME_client).
 * Invariant: a turn views the request; nothing of it is changed. One name and one id always become
 *            the same, so calls and results still meet.
 *
 *     message USER [RESULT a, RESULT a, TEXT]  -->  turn TOOL a [2 parts], turn USER [1 part]
 *     resume, or continue_last                 -->  the last turn, is_open
 *
 * Thread:    the loop.
 * Limits:    the state's arena; names longer than 64 bytes are cut with a fingerprint.
 */
#ifndef SHOAL_DIALECT_DIALECT_ASK_H
#define SHOAL_DIALECT_DIALECT_ASK_H

#include "dialect/dialect_client.h"

struct dialect_ask_turn {
    enum api_role role;
    str name;
    const struct api_part *parts; /* TOOL: all of one call's result */
    uint32_t parts_count;
    bool is_open; /* unfinished: the upstream goes on inside it */
};
struct dialect_ask_turns {
    struct dialect_ask_turn *rows;
    uint32_t count;
};
/* False: ERR_LIMIT. */
BASE_USE_RESULT bool dialect_ask_turns(struct dialect_client_state *st,
                                       struct dialect_ask_turns *out, struct api_error *e);
/* Parts of a kind joined by line feeds, as templates join them. p NULL: there is none. */
str dialect_ask_join(struct dialect_client_state *st, const struct dialect_ask_turn *t,
                     enum api_part_kind kind);
bool dialect_ask_has(const struct dialect_ask_turn *t, enum api_part_kind kind);
/* The turn that an upstream is to go on in; NULL: the reply is a new one. */
const struct api_message *dialect_ask_tail(const struct api_request *rq);
/* The call that it ends in, if its arguments go on; NULL: none. */
const struct api_part *dialect_ask_open_call(const struct api_request *rq);
/* ... and it is a custom tool's: its text, which no two protocols wrap alike, cannot be gone on
 * with. */
bool dialect_ask_opens_text(const struct api_request *rq);
/* A result without the "[tool error] " that a reader put before it. */
str dialect_ask_result(const struct api_part *p);
/* "data:image/png;base64,..."; "" when the image's bytes are not there (noted). */
str dialect_ask_data_url(struct dialect_client_state *st, const struct api_part *p);
str dialect_ask_base64(struct dialect_client_state *st, const struct api_part *p);

str dialect_ask_model(const struct dialect_client_state *st);
static inline bool dialect_ask_can(const struct dialect_client_state *st, enum api_cap cap)
{
    return (st->leg->caps & (uint32_t)cap) != 0;
}
static inline bool dialect_ask_is_shoal(const struct dialect_client_state *st)
{
    return st->leg->how == DIALECT_CONTINUE_SHOAL;
}
void dialect_ask_note(struct dialect_client_state *st, const char *code, const char *text);
/* "NAMESPACE__name", in the letters that upstreams take. */
str dialect_ask_tool_name(struct dialect_client_state *st, str name_space, str name);
/* The tool that an upstream means by a name; NULL: none of the request's. */
const struct api_tool *dialect_ask_tool_of(struct dialect_client_state *st, str flat_name);
/* The tool of a call in the history; NULL: not declared. */
const struct api_tool *dialect_ask_tool_of_call(const struct dialect_client_state *st,
                                                const struct api_part *call);
/* The text of a custom tool's call, out of its {"input": TEXT}. */
str dialect_ask_custom_input(struct dialect_client_state *st, const struct api_part *call);
/* A call's id in [A-Za-z0-9_-]{1,64}. */
str dialect_ask_id(struct dialect_client_state *st, str id);
/* Whether to declare a tool; hosted ones are noted and left out. is_listed: the protocol has no
 * list of allowed tools, so others are not declared. */
bool dialect_ask_declares(struct dialect_client_state *st, const struct api_tool *t,
                          bool is_listed);
/* How many are declared; 0: none of them is written. */
uint32_t dialect_ask_tools(struct dialect_client_state *st, bool is_listed);
/* What tool_choice names: some tools but not all may be called; the last that may, or NULL. */
bool dialect_ask_is_listed(const struct api_request *rq);
const struct api_tool *dialect_ask_allowed(const struct api_request *rq);
/* A function's schema; a custom tool's is one string `input`. */
str dialect_ask_schema(struct dialect_client_state *st, const struct api_tool *t);
/* Raw JSON object of a call's arguments; "{}" where they are none. */
str dialect_ask_args(struct dialect_client_state *st, const struct api_part *call);
/* tokens_max less what was said before; 0: none given. */
uint32_t dialect_ask_tokens_max(const struct dialect_client_state *st);
/* The effort to ask for: the request's level, or what a budget comes to; DEFAULT: none given. */
enum api_effort dialect_ask_effort(const struct dialect_client_state *st);
/* The level to send an upstream of OpenAI's, which knows none beyond xhigh and no budgets; what is
 * said otherwise than asked is noted. False: send none. */
bool dialect_ask_openai_effort(struct dialect_client_state *st, enum api_effort *out);
/* Notes ignored_field for each sampling field that was given and is not among kept (API_GIVEN bits,
 * and the three below). */
#define DIALECT_ASK_BIAS (UINT64_C(1) << 62)
#define DIALECT_ASK_STOP_IDS (UINT64_C(1) << 61)
void dialect_ask_note_lost(struct dialect_client_state *st, uint64_t kept);

/* Members of the client's body that do not go on as they came. */
struct dialect_ask_patch {
    const char *const *dropped; /* names, ends with NULL */
    const char *added;          /* raw members to end with: "\"stream\":true" */
};
/* May the body go as it was written? The client speaks the protocol, nothing is to be continued. */
bool dialect_ask_is_same(const struct dialect_client_state *st);
/* The body with the leg's model; `shoal` and what is ours alone go to shoals only, and blocks that
 * only a shoal can read (signatures "shoal1.") are left out with a note. */
BASE_USE_RESULT bool dialect_ask_patch_body(struct buf *out, struct dialect_client_state *st,
                                            const struct dialect_ask_patch *p,
                                            struct api_error *e);
/* Checks that everything fitted: ERR_LIMIT else. */
BASE_USE_RESULT bool dialect_ask_fits(const struct buf *out, const struct dialect_client_state *st,
                                      struct api_error *e);

/* "key": [stop strings], if there are any. */
void dialect_ask_put_stop(struct json_writer *w, const char *key, const struct api_request *rq);

#endif
