/* engine - one model, from its file to something that steps can run on.
 *
 * Owns:      everything that a load makes: file, vocabulary, template, plan, weights, device, pool.
 * Not:       frames and threads (engine_host), requests (sched), what the machine may spend beyond
 *            this process (the endpoint's ledger).
 * Invariant: a load either succeeds whole or leaves nothing. Nothing grows after it. The file's
 *            bytes are read once, with pread; what was read is in model_hash.
 *
 *     file -> arch -> plan -> bind -> weights by pieces -> budget -> prepare -> pages -> try
 *     engine_size: the same steps on a device that only counts, up to the pages
 *
 * Thread:    engine thread; e->prompt is handed to the prep thread after the load.
 * Limits:    struct budget; ENGINE_ARENA_MAX for plan and tables.
 */
#ifndef SHOAL_ENGINE_ENGINE_H
#define SHOAL_ENGINE_ENGINE_H

#include "api/api_frame.h"
#include "arch/arch.h"
#include "engine/budget.h"
#include "engine/prompt.h"
#include "kv/kv_trie.h"
#include "tensor/weights.h"

#define ENGINE_ARENA_MAX ((size_t)256 << 20)

struct engine {
    struct arena arena; /* plan, bindings, template, texts of model */
    struct mem mem;     /* pages' counts, the scheduler's arrays */
    struct model_file *file;
    struct hparams hparams;
    struct tok *tok;
    struct render *render;
    struct constrain *constrain;
    struct plan plan;
    struct weights weights;
    uint64_t file_hash; /* of headers and weights: rope base, epsilons and all, not only tensors */
    const struct backend *backend;
    struct device *device;
    struct device_info info;
    struct prepared *prepared;
    bool is_split; /* the backend is halves_backend */
    enum kv_type kv_type; /* of the pages */
    struct kv_layout layout;
    bool is_counted;       /* by engine_size: counted_room stands for what is free */
    uint64_t counted_room;
    struct engine_sizes {
        uint64_t weights, scratch, pool; /* bytes that the device holds for each */
        uint64_t available;              /* of the room, beside weights and scratch */
    } sizes;
    struct budget budget;
    struct step_limits limits;
    struct kv_pool pool;
    struct kv_trie trie;
    bool has_trie; /* prefix reuse is on */
    struct prompt_model prompt;
    struct api_model model; /* what LOADED says; after engine_size kv_tokens alone */
    int64_t load_ns;
};

/* Called between pieces of weights; false ends the load with ERR_CANCELLED. */
struct engine_progress {
    bool (*on_bytes)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
};

/* Header, vocabulary and template only: what the model is, without its weights. Texts lie in a.
 * model_hash stays 0. */
BASE_USE_RESULT bool engine_describe(str path, struct arena *a, struct api_model *out,
                                     struct err *e);

/* What settings say about a model's chat form; "": its own. */
struct engine_chat {
    str chat_template; /* a text, or the name of a built-in one */
    str tool_format;   /* row of chat/output_table */
};
/* The model's chat form. *out is NULL if it has none. Lives in a, with views into f, v, chat. */
BASE_USE_RESULT bool engine_render(struct render **out, const struct model_file *f,
                                   const struct vocab *v, const struct engine_chat *chat,
                                   struct arena *a, struct err *e);

/* ERR_NOT_FOUND, ERR_IO, ERR_FORMAT, ERR_UNSUPPORTED: the file; ERR_MEMORY: the arithmetic;
 * ERR_CONFIG: an option; ERR_INTERNAL: the first step gave numbers that cannot be. */
BASE_USE_RESULT bool engine_open(struct engine **out, const struct api_load *l,
                                 const struct engine_progress *progress, struct err *e);
void engine_close(struct engine *e); /* NULL is allowed */

/* What engine_open would take for l if `room` bytes were free: file, hparams, plan,
 * layout, sizes, budget, info as after a load; no text, no weights, nothing computed. The caller
 * closes it. why->code is ERR_MEMORY where it does not fit, with engine_open's sentence; sizes are
 * those of a first guess then, pool and budget 0. False for all else that engine_open refuses. */
BASE_USE_RESULT bool engine_size(struct engine **out, const struct api_load *l, uint64_t room,
                                 struct err *why, struct err *e);

#endif
