/* models_leg - every local model behind one provider: found by name, loaded on demand, unloaded.
 *
 * Owns:      finding the model of a request, the answers to LIST, SHOW, PS, LOAD and UNLOAD, what
 *            health and metrics are told about the children.
 * Not:       when a model may take another's place (route/residency), how it comes and goes
 *            (models_room), what a child does (engine_leg), what a file holds (catalog), deadlines
 *            and the queue limits of keys (exchange, limits).
 * Invariant: a request that was taken gets its whole reply or one ERROR. Requests for a model that
 *            is not there wait together for one load. A swap or unload never touches a reply that
 *            has begun: only requests that have not are taken back, and wait for the next child.
 *            UNLOAD is answered when the child is gone and its memory is back.
 *
 *     submit --> name known? --no: picture older than 1 s? read again, else ERR_NOT_FOUND
 *                   | yes
 *            child READY? --no: wait; residency says LOAD, DRAIN, UNLOAD --> engine_leg
 *                   | yes
 *            engine_leg.submit; its batches pass through
 *
 * Thread:    the endpoint's loop; a scan of the stores and descriptions of files run elsewhere.
 * Limits:    RESIDENCY_MODELS_MAX models with requests or children at once; waiting_max requests
 *            per model, then ERR_OVERLOADED at once.
 */
#ifndef SHOAL_SERVE_MODELS_LEG_H
#define SHOAL_SERVE_MODELS_LEG_H

#include "api/api_frame.h"
#include "api/api_provider.h"
#include "serve/engine_leg.h"
#include "store/library.h"
#include "wire/loop.h"

/* models.NAME of the configuration. */
struct models_leg_setting {
    str name;
    const str *aliases; /* globs */
    uint32_t aliases_count;
    bool is_pinned;
    bool has_keep_alive;
    int64_t keep_alive_ms;
    uint32_t max_context; /* of a request; 0: the model's */
    /* Its given fields go into requests that do not give them; NULL: none. */
    const struct api_request *defaults;
    /* Of the next load. */
    uint32_t context, slots; /* 0: as all */
    bool has_place, has_kv;
    str backend;             /* has_place: instead of all's, with layers */
    uint32_t layers;
    enum api_kv kv;
    str chat_template;       /* "": the model's own; without '{': the name of a built-in one */
    str tool_format;         /* "": found out */
    enum api_tool_grammar tool_grammar;
};

/* The one of that model among count, or NULL. */
const struct models_leg_setting *
models_leg_setting_find(const struct models_leg_setting *settings, uint32_t count, str name);
/* Its part of a load that holds what counts for every model. */
void models_leg_setting_apply(const struct models_leg_setting *s, struct api_load *load);

/* Everything viewed must outlive the leg. */
struct models_leg_options {
    struct loop *loop;
    str build_id;
    const char *const *argv;        /* of a child: "shoal", "engine", NULL */
    const struct library_options *library; /* its check is called on another thread */
    const str *aliases;             /* glob, model, glob, model, ... */
    uint32_t aliases_count;         /* strings */
    struct api_load load;           /* for every model; path, name, memory_bytes are set here */
    const struct models_leg_setting *settings;
    uint32_t settings_count;
    const struct api_request *prefixes; /* cache.public; outlive it */
    uint32_t prefixes_count;
    uint32_t resident_max;          /* engine.resident; 0 counts as 1 */
    uint32_t waiting_max;           /* limits.queue: requests per model, begun ones included */
    int64_t keep_alive_ms;          /* engine.keep_alive; negative: never unload */
    int64_t min_residency_ms, swap_wait_ms;
    int64_t engine_stall_ms, load_stall_ms;
    /* RAM of all children. 0: with one place what its child finds free, with more what is free at
     * open, cgroup counted. */
    uint64_t memory_bytes;
    /* Something that health, models or residents tell has changed; may be NULL. */
    void (*on_change)(void *ctx);
    void *ctx;
};

struct models_leg;
/* Starts nothing; the stores are read when the first name is asked for. */
BASE_USE_RESULT bool models_leg_open(struct models_leg **out, const struct models_leg_options *o,
                                     struct err *e);
/* Ends all children, waiting at most grace_ms, then kills. Requests get nothing any more. Not from
 * a callback. NULL is allowed. */
void models_leg_close(struct models_leg *m, int64_t grace_ms);

/* Takes every kind of request. `model` may be a name, an alias, a file name; with LIST and PS it is
 * ignored. Refusals of submit: ERR_OVERLOADED. As ERROR events: ERR_NOT_FOUND, code
 * "model_not_found", with near names; ERR_INTERNAL, code "load_failed", remembered for 5 s;
 * ERR_MEMORY, code "load_failed", where pinned models hold every place; and engine_leg's own.
 *
 * LOAD ends when the model can answer, UNLOAD when its memory is back (also of a model that was not
 * loaded); both answer with its row. keep_alive_ms counts when given, else the model's setting:
 * it governs the idle time after this request. models() and health() tell of resident models: rows
 * as PS gives them. health() is READY when one can answer or none is resident (idle), FAILED when
 * none is and the last load failed. */
struct api_provider models_leg_provider(struct models_leg *m);

/* What a reload may change; the rest of models_leg_options stays. */
struct models_leg_next {
    const str *aliases;
    uint32_t aliases_count;
    const struct models_leg_setting *settings;
    uint32_t settings_count;
    int64_t engine_stall_ms, load_stall_ms;
    uint32_t loop_tokens, miss_excerpt, pin_permille, idle_permille; /* of the next load */
    bool no_prefix;
};
/* From now on; what it views lives until the next change. A model that is resident keeps what it
 * was loaded with; its keep-alive and pin are the new ones. */
void models_leg_change(struct models_leg *m, const struct models_leg_next *next);

/* Fills what the configuration says for the request's model where the request does not say it
 * itself. The model's own name; rq->model where nothing of that name is known. May be in a. */
str models_leg_fill(struct models_leg *m, struct api_request *rq, struct arena *a);

/* The own name of the model that a request for name would be answered by, in a; as far as the
 * stores are known now: a younger picture may be on its way. ERR_NOT_FOUND; ERR_OVERLOADED: they
 * are not read yet; other codes: it is there and its file is none that can be loaded. */
BASE_USE_RESULT bool models_leg_resolve(struct models_leg *m, str name, struct arena *a, str *own,
                                        struct api_error *e);
/* Some model is known that could be loaded, or the stores are not read yet. */
bool models_leg_has_any(const struct models_leg *m);

/* A model that is in no store (given by its path at start), found by its name before all others. */
BASE_USE_RESULT bool models_leg_add(struct models_leg *m, const struct library_entry *entry,
                                    struct err *e);
/* A model has come into the stores or is gone: they are read anew. */
void models_leg_expire(struct models_leg *m);
/* Wants it resident from the start: a LOAD that nobody waits for. A failure is logged, and told by
 * health while no other model is resident; the next request tries again. Not from a callback. */
void models_leg_preload(struct models_leg *m, str name);

/* One child, for /health, /ready, /v1/status and metrics; views valid until the next call. */
struct models_leg_resident {
    str name;
    struct api_health health;
    struct api_beat beat;
    str stats;                /* what the child said of its cache, a JSON object, or "" */
    struct api_model model;   /* context_max 0: not loaded yet */
    int64_t idle_left_ms;     /* until it is unloaded; negative: not by time */
    int64_t token_age_ms;     /* since it last gave a token; negative: never since its load */
    uint64_t budget_bytes;    /* the ledger's; 0: none */
    uint32_t running, waiting; /* begun and not begun requests, ours included */
    bool is_draining;
    int pid;
};
/* Fills at most out_max rows, returns how many there are. */
size_t models_leg_residents(struct models_leg *m, struct models_leg_resident *out,
                            size_t out_max);
/* The child of that model that can be asked now; 0: none. */
int models_leg_child(const struct models_leg *m, str model);
/* In the child of that model, if there is one, the pin of that name is off. */
void models_leg_unpin(struct models_leg *m, str model, str name);
/* Asks the child of that model, or with "" of each, to give up cached pages; drops[drops_max] are
 * whom it will tell, NULL: nobody. How many were asked. */
uint32_t models_leg_drop(struct models_leg *m, str model, const struct api_drop *what,
                         struct engine_leg_drop *drops, uint32_t drops_max);
/* Asks the child of that model where pages lie. False: it has none that serves. */
BASE_USE_RESULT bool models_leg_look(struct models_leg *m, str model, const struct api_look *what,
                                     struct engine_leg_look *k);
/* Loads that took another model's place, since open. */
uint64_t models_leg_swaps(const struct models_leg *m);
/* Of all children since open, those that are gone too. */
struct engine_leg_counts models_leg_counts(const struct models_leg *m);

#endif
