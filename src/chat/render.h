/* render - a chat request as the text of one model, with the origin of every byte.
 *
 * Owns:      choosing and probing a model's template, the variables it sees, effort and thinking
 *            switches, merging roles for templates that insist on an order, the generation prompt,
 *            continuing an unfinished turn, exactly one BOS.
 * Not:       the template language (jinja), tokens (engine/prompt), reading a reply (output).
 * Invariant: spans cover the text without gaps. Only bytes of RENDER_TEMPLATE may become control
 *            tokens; everything that came with the request (content, tool results, names, argument
 *            values, schemas, template arguments) lies in other spans, whatever the template does
 *            to it. The same request gives the same text.
 *
 *     <|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n
 *     |   template    |   content  |  template                        |
 *                       message 0, part 0
 *
 *            Control tokens are looked for inside one span of RENDER_TEMPLATE; the text between two
 *            of them is encoded as one piece, across span borders, as the reference does.
 * Thread:    struct render is immutable: any; a call works in the request's arena and a scratch
 *            arena of its own.
 * Limits:    those of jinja; RENDER_SCRATCH_MAX bytes of scratch per call.
 */
#ifndef SHOAL_CHAT_RENDER_H
#define SHOAL_CHAT_RENDER_H

#include "api/api_request.h"
#include "chat/output_table.h"

#define RENDER_SCRATCH_MAX ((size_t)512 << 20)

enum render_origin {
    RENDER_TEMPLATE, /* scaffold, role words, BOS and EOS text */
    RENDER_CONTENT,  /* message, part: text, reasoning, arguments, ids, a tool's result */
    RENDER_NAME,     /* message: its name */
    RENDER_TOOLS,    /* part = index of the tool */
    RENDER_ARGS,     /* template_args */
    RENDER_FORMAT    /* the response format's schema */
};
struct render_span {
    size_t end; /* in bytes of the text; begins where the one before ends */
    enum render_origin origin;
    uint32_t message, part;
};
struct render_result {
    str text;
    const struct render_span *spans;
    uint32_t spans_count;
    bool has_bos; /* text begins with the model's BOS: the tokenizer adds none */
    const struct api_note *notes; /* roles_merged, effort_approximated, image_omitted, ... */
    uint32_t notes_count;
};

/* What is known about a model's chat form. Views must live as long as the struct render. */
struct render_source {
    str chat_template, tool_template; /* the model's own; "" = none */
    str template_name;                /* a built-in one by name; goes before the model's own */
    str bos, eos;                     /* text of these tokens; "" = the model has none */
    str arch, tool_format;            /* of the file; "" = found out (output_table_choose) */
    bool (*has_token)(void *ctx, str text); /* whether the vocabulary has this control token */
    void *ctx;
};

/* What a template can do, found by probing. */
enum render_cap {
    RENDER_CAP_SYSTEM = 1 << 0,   /* system text appears */
    RENDER_CAP_TOOLS = 1 << 1,    /* declarations appear */
    RENDER_CAP_CALLS = 1 << 2,    /* calls and their results in history appear */
    RENDER_CAP_THINK = 1 << 3,    /* it reads a switch, keeps reasoning or opens a reply with it */
    RENDER_CAP_SWITCH = 1 << 4,   /* enable_thinking or thinking changes the prompt */
    RENDER_CAP_EFFORT = 1 << 5,   /* reads reasoning_effort */
    RENDER_CAP_PARTS = 1 << 6,    /* content may be a list of parts */
    RENDER_CAP_STRING = 1 << 7,   /* content may be a string */
    RENDER_CAP_SHORT_IDS = 1 << 8, /* ids of calls must be nine letters or digits */
    RENDER_CAP_NULL = 1 << 9,     /* a turn with nothing but calls has content none, not "" */
    RENDER_CAP_GUESSED = 1 << 10, /* built-in, chosen by the vocabulary: note template_guess */
    RENDER_CAP_FULL_TOOLS = 1 << 11 /* raises at a tool without description or properties */
};

struct render;

/* Compiles and probes. No template of its own: a built-in one if the vocabulary has that family's
 * control tokens, else *out = NULL and success (chat is refused with no_template then). False: a
 * template that does not compile, with line and construct; a tool_format that the template cannot
 * declare tools for. Lives in a. */
BASE_USE_RESULT bool render_new(struct render **out, const struct render_source *src,
                                struct arena *a, struct err *e);
uint32_t render_caps(const struct render *r);
/* The source in use, "" if r is NULL. */
str render_template(const struct render *r);
/* How the model's replies are written; zero if r is NULL. */
const struct output_format *render_format(const struct render *r);

/* Whether tools can be declared, by the template or in the format's own way, and calls be read. */
bool render_can_tools(const struct render *r);

/* What a template writes where a reply begins ("<|im_start|>assistant\n"), "" where that cannot be
 * told or r is NULL. */
str render_opening(const struct render *r);

/* Renders a CHAT (or COUNT, PREFILL with messages) request into a, the request's arena. r may be
 * NULL. False: ERR_REQUEST with code no_template, template_error, tools_unsupported or "" and
 * param; ERR_LIMIT. */
BASE_USE_RESULT bool render_request(const struct render *r, const struct api_request *rq,
                                    struct arena *a, struct render_result *out,
                                    struct api_error *e);

#endif
