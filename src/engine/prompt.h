/* prompt - from a request to the tokens that a model reads.
 *
 * Owns:      struct job, a request inside the child with its arena; rendering, encoding, the
 *            model's own defaults, limits of length, what a resumed reply begins with; the answers
 *            that need no model (COUNT, ENCODE, DECODE).
 * Not:       templates (chat/render), token rules (text/tok), who runs when (sched).
 * Invariant: tokens are a pure function of request and model. Text of the request never yields a
 *            control token unless parse_special is set on a raw prompt.
 *
 *     frame thread --job--> prep thread: prompt_make --job--> engine thread: sched
 *
 * Thread:    prep thread (tok_encode keeps scratch); a job belongs to who has it.
 * Limits:    prompt and reply fit model->context_max and rq.context_max, else ERR_CONTEXT with both
 *            numbers.
 */
#ifndef SHOAL_ENGINE_PROMPT_H
#define SHOAL_ENGINE_PROMPT_H

#include "api/api_event.h"
#include "api/api_frame.h"
#include "base/list.h"
#include "chat/render.h"
#include "engine/constrain.h"
#include "engine/reply.h"
#include "text/tok.h"

/* What prompts need of a loaded model. Immutable but for tok's scratch. */
struct prompt_model {
    struct tok *tok;
    const struct vocab *vocab;
    const struct render *render; /* NULL: no template */
    struct constrain *constrain; /* compiled grammars */
    enum api_tool_grammar tool_grammar;
    struct api_request defaults; /* values of the model's own for what `given` names here */
    uint32_t context_max;        /* tokens of one conversation */
    uint64_t model_hash;
};

struct kv_trie_pins;
struct prompt {
    const int32_t *ids;
    uint32_t count;
};

/* What a choice has already given before this child got the request. */
struct prompt_begun {
    const int32_t *ids;
    uint32_t count;
    uint32_t tokens_used;
    bool is_there;  /* a partial was given, even an empty one */
    bool is_silent; /* ids are known to the endpoint: their batch is not sent again */
};

/* The text that a prompt of messages was made of; kept for telling where two prompts differ. */
struct prompt_region;
struct prompt_source {
    str text; /* "": the prompt was no chat */
    const struct render_span *spans;
    uint32_t spans_count;
    const struct prompt_region *regions; /* replies that went in by their ids */
    uint32_t regions_count;
};

struct seq;
struct job {
    struct list link;
    struct arena arena; /* holds rq and everything below */
    struct api_request rq;
    struct prompt *prompts; /* [prompts_count]; choice c has prompt c / rq.n */
    uint32_t prompts_count;
    /* From here on prompts[0] is what an unfinished turn (continue_last) had said: tokens of the
     * reply to the sampler, not to those who count. 0: there is none. */
    uint32_t open_from;
    bool reads_open; /* ... and to the reader of the reply and its grammar: there is a call in it */
    struct prompt_source source;
    struct prompt_begun *begun; /* [api_request_choices(rq)] or NULL */
    struct constraint constraint; /* what the reply must be */
    struct reply reply;         /* how what the model says is read */
    const struct api_note *notes;
    uint32_t notes_count;
    uint32_t context_max; /* of this request */
    int64_t arrived_ns, admitted_ns, first_ns; /* chrono; 0 = not yet */
    /* The scheduler's. */
    struct seq *seqs;
    uint32_t choices, choices_left;
    uint32_t cached_tokens, output_tokens, reasoning_tokens, preemptions;
    int64_t credit; /* bytes that may still be sent */
    bool is_held, is_started;
    uint32_t parked_count; /* of its choices */
    uint64_t order; /* of arrival */
    uint32_t share; /* account of its agent */
    struct kv_trie_pins *promised; /* room for its pin; NULL: none */
};

/* Moves m's arena and its decoded request into a new job, which lies in that arena. NULL: no room;
 * the arena is the caller's still. */
struct job *prompt_job(struct arena *a, const struct api_request *rq);
/* Frees the arena, the job with it. */
void prompt_job_free(struct job *j);

/* Fills prompts, begun, notes, context_max; replaces values not given by the model's own. False
 * with what the client shall read: ERR_UNSUPPORTED for what is not built (images,
 * embeddings), ERR_CONTEXT, ERR_REQUEST, ERR_LIMIT. */
BASE_USE_RESULT bool prompt_make(const struct prompt_model *m, struct job *j, struct api_error *e);

/* COUNT, ENCODE, DECODE are answered from the prompts alone. */
bool prompt_is_answer(const struct job *j);
/* TOKENS per input, USAGE, DONE through the sink. After prompt_make succeeded. */
BASE_USE_RESULT bool prompt_answer(const struct prompt_model *m, struct job *j,
                                   struct api_sink sink, struct api_error *e);

#endif
