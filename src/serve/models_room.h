/* models_room - the models that have requests or children, and what moves between these.
 *
 * Owns:      a record per such model, its engine_leg, its waiting and running requests; carrying
 *            out what residency decides; the ledger's numbers.
 * Not:       names, LIST, SHOW, PS (models_leg), rules (route/residency).
 * Invariant: a request is in one list: of its model, or of models_leg while its name is looked up.
 *            Its last batch comes after it was forgotten, so a callback may submit or cancel. Legs
 *            are opened and closed only in models_room_turn, never inside one of their callbacks.
 *
 *     ask: waiting --give--> with the child --STARTED or PROGRESS--> begun --> over
 *             ^__ take back (drain, unload) __|
 *
 * Thread:    the endpoint's loop.
 * Limits:    RESIDENCY_MODELS_MAX records; waiting_max requests per model.
 */
#ifndef SHOAL_SERVE_MODELS_ROOM_H
#define SHOAL_SERVE_MODELS_ROOM_H

#include "base/list.h"
#include "base/map.h"
#include "route/residency.h"
#include "serve/engine_leg.h"
#include "serve/models_leg.h"

struct models_ask {
    struct list link;
    struct models_room *room;
    struct models_room_model *model; /* NULL: not found yet */
    const struct api_request *rq;
    struct api_request own; /* of a preload */
    struct api_sink sink;   /* on_batch NULL: nobody listens */
    int64_t came_ms;
    uint32_t dones_left;
    bool is_given, has_begun, is_held;
};

struct models_room_model {
    struct library_entry entry; /* texts are in arena */
    struct arena arena;
    struct models_leg_setting setting;
    enum residency_state state;
    struct engine_leg *leg;
    struct api_provider provider; /* of leg */
    struct list asks;             /* by arrival */
    uint32_t asks_count, begun;
    bool must_leave, has_served;
    int64_t keep_ms, ready_ms, idle_ms, retry_ms;
    int64_t left_ms;  /* when its child was told to end */
    int64_t token_ms;   /* of the last batch with ids; negative: none since the load */
    uint64_t bytes;     /* the ledger's share */
    struct api_error why; /* of the failed load, while retry_ms lies ahead */
};

struct models_room {
    const struct models_leg_options *o;
    struct models_room_model *models[RESIDENCY_MODELS_MAX];
    uint32_t count;
    struct map by_id; /* of all asks with an id, models_leg's too */
    struct loop_timer turn;
    uint64_t bytes_max, swaps;
    struct engine_leg_counts counts; /* of legs that are closed */
    bool is_touched, is_closing;
};

BASE_USE_RESULT bool models_room_open(struct models_room *r, const struct models_leg_options *o,
                                      struct err *e);
void models_room_close(struct models_room *r, int64_t grace_ms);

/* A kept request with room for it in by_id; NULL: no memory. */
struct models_ask *models_room_ask(struct models_room *r, const struct api_request *rq,
                                   struct api_sink sink);
struct models_ask *models_room_find(const struct models_room *r, uint64_t id);
/* Out of every list and counted as over; nothing is said. */
void models_room_forget(struct models_room *r, struct models_ask *a);
/* Forgets it and ends it with ERROR. */
void models_room_fail(struct models_room *r, struct models_ask *a, const struct api_error *why);
/* Forgets it and ends it with one MODELS event of these rows. */
void models_room_answer(struct models_room *r, struct models_ask *a, const struct api_model *rows,
                        uint32_t rows_count);

/* The record of that entry's model; NULL when there are too many: ERR_OVERLOADED. */
struct models_room_model *models_room_model(struct models_room *r,
                                            const struct library_entry *entry,
                                            struct api_error *e);
struct models_room_model *models_room_of_path(const struct models_room *r, str path);
/* The request (text kinds, LOAD, UNLOAD) now waits for that model; false: its queue is full. */
BASE_USE_RESULT bool models_room_add(struct models_room *r, struct models_room_model *m,
                                     struct models_ask *a, struct api_error *e);

/* The options' settings are others now. */
void models_room_change(struct models_room *r);
/* As PS tells it: what the child said, or what the store knows. */
struct api_model models_room_row(const struct models_room_model *m);
/* When it will be unloaded if nothing comes: ms from now, negative: not by time. */
int64_t models_room_idle_left(const struct models_room_model *m);

#endif
