#include "serve/models_leg.h"

#include <stdlib.h>

#include "base/log.h"
#include "serve/catalog.h"
#include "serve/models_room.h"

#define MODELS_LEG_ROWS_MAX ((size_t)128 << 20) /* rows of one LIST with their texts */
#define MODELS_LEG_LIST_MS 15000 /* a LIST waits so long for descriptions of new files */
#define MODELS_LEG_ADDED_MAX 64u

struct models_leg {
    struct models_leg_options o;
    struct models_room room;
    struct catalog *catalog;
    struct list asks; /* LIST, SHOW, PS; those whose name is not looked up yet */
    struct loop_timer turn;
    struct arena arena; /* texts of added */
    struct library_entry added[MODELS_LEG_ADDED_MAX];
    uint32_t added_count;
};

/* --- what one model is served with ---------------------------------------------------------- */

const struct models_leg_setting *
models_leg_setting_find(const struct models_leg_setting *settings, uint32_t count, str name)
{
    for (uint32_t i = 0; i < count; i++)
        if (str_eq_nocase(settings[i].name, name))
            return &settings[i];
    return NULL;
}

void models_leg_setting_apply(const struct models_leg_setting *s, struct api_load *load)
{
    load->context = s->context ? s->context : load->context;
    load->slots = s->slots ? s->slots : load->slots;
    load->kv = s->has_kv ? s->kv : load->kv;
    load->chat_template = s->chat_template;
    load->tool_format = s->tool_format;
    load->tool_grammar = s->tool_grammar;
    if (s->has_place) {
        load->backend = s->backend;
        load->layers = s->layers;
    }
}

/* --- finding ------------------------------------------------------------------------------- */

static bool models_leg_find_added(const struct models_leg *m, str name, struct library_entry *out)
{
    if (str_ends(name, STR(":latest"))) /* as Ollama's clients name it */
        name = str_sub(name, 0, name.len - STR(":latest").len);
    for (uint32_t i = 0; i < m->added_count; i++)
        if (str_eq_nocase(m->added[i].name, name) || str_eq_nocase(m->added[i].file_name, name)) {
            *out = m->added[i];
            return true;
        }
    return false;
}

/* An alias of a model given by its path, which no store knows. */
static bool models_leg_find_alias(const struct models_leg *m, str name, struct library_entry *out)
{
    for (uint32_t i = 0; i + 1 < m->o.aliases_count; i += 2)
        if (str_glob(m->o.aliases[i], name))
            return models_leg_find_added(m, m->o.aliases[i + 1], out);
    return false;
}

enum models_leg_found { MODELS_LEG_FOUND, MODELS_LEG_ASKED, MODELS_LEG_MISSING };

/* ASKED: a younger picture is on its way; it may know the name. *out views the picture or a. */
static enum models_leg_found models_leg_find(struct models_leg *m, str name, struct arena *a,
                                             struct library_entry *out, struct api_error *e)
{
    struct library_query q = {.name = name, .aliases = m->o.aliases,
                              .aliases_count = m->o.aliases_count};
    struct err why = {0};
    const struct library *picture = catalog_picture(m->catalog, &why);
    if (models_leg_find_added(m, name, out))
        return MODELS_LEG_FOUND;
    if (picture && library_find(picture, &q, a, out, &why)) {
        if (!out->broken.len)
            return MODELS_LEG_FOUND;
        api_error_set(e, ERR_INTERNAL, "load_failed", STR("model"), "%.*s: %.*s",
                      STR_ARG(out->name), STR_ARG(out->broken));
    } else if (models_leg_find_alias(m, name, out)) {
        return MODELS_LEG_FOUND;
    } else if (why.code == ERR_NOT_FOUND) {
        api_error_set(e, ERR_NOT_FOUND, "model_not_found", STR("model"), "%s", why.text);
    } else if (why.code != ERR_NONE) {
        api_error_set(e, why.code, NULL, STR("model"), "%s", why.text);
    }
    if (catalog_is_fresh(m->catalog))
        return MODELS_LEG_MISSING;
    catalog_refresh(m->catalog);
    return MODELS_LEG_ASKED;
}

/* --- answers ------------------------------------------------------------------------------- */

static void models_leg_answer_ps(struct models_leg *m, struct models_ask *a)
{
    struct api_model rows[RESIDENCY_MODELS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < m->room.count; i++)
        if (m->room.models[i]->leg)
            rows[count++] = models_room_row(m->room.models[i]);
    models_room_answer(&m->room, a, rows, count);
}

/* What the file says, and what its child does. */
static enum catalog_about models_leg_row(struct models_leg *m, const struct library_entry *entry,
                                         bool with_texts, struct api_model *out, struct err *why)
{
    const struct models_room_model *at = models_room_of_path(&m->room, entry->path);
    enum catalog_about got = catalog_about(m->catalog, entry, with_texts, out, why);
    if (got != CATALOG_KNOWN || !at || !at->leg)
        return got;
    struct api_model live = models_room_row(at);
    out->state = live.state;
    out->expires_s = live.expires_s;
    out->device_bytes = live.device_bytes;
    out->gpu_bytes = live.gpu_bytes;
    out->slots = live.slots;
    out->kv_tokens = live.kv_tokens;
    out->model_hash = live.model_hash;
    return got;
}

static bool models_leg_is_added(const struct models_leg *m, str path)
{
    for (uint32_t i = 0; i < m->added_count; i++)
        if (str_eq(m->added[i].path, path))
            return true;
    return false;
}

/* Rows of every file that can be used. False: descriptions are still missing. */
static bool models_leg_rows(struct models_leg *m, const struct library *picture, struct arena *a,
                            struct api_model **rows, uint32_t *count)
{
    struct err why;
    uint32_t all = library_count(picture) + m->added_count;
    bool is_whole = true;
    *count = 0;
    *rows = ARENA_ARRAY(a, struct api_model, (size_t)all + 1);
    for (uint32_t i = 0; *rows && i < all; i++) {
        bool is_added = i < m->added_count;
        const struct library_entry *entry =
            is_added ? &m->added[i] : library_at(picture, i - m->added_count);
        bool is_again = !is_added && models_leg_is_added(m, entry->path);
        if (entry->broken.len || is_again)
            continue;
        enum catalog_about got = models_leg_row(m, entry, false, &(*rows)[*count], &why);
        *count += got == CATALOG_KNOWN;
        is_whole = is_whole && got != CATALOG_ASKED;
    }
    return is_whole;
}

static void models_leg_answer_list(struct models_leg *m, struct models_ask *a)
{
    struct err why = {0};
    const struct library *picture = catalog_picture(m->catalog, &why);
    struct arena arena;
    struct api_model *rows;
    uint32_t count;
    if (!catalog_is_fresh(m->catalog) && loop_ms() - a->came_ms < CATALOG_FRESH_MS) {
        catalog_refresh(m->catalog);
        return;
    }
    if (!picture && why.code == ERR_NONE)
        return; /* the first one is being taken */
    if (!picture) {
        struct api_error e = {0};
        api_error_set(&e, why.code, NULL, STR(""), "%s", why.text);
        models_room_fail(&m->room, a, &e);
        return;
    }
    arena_init(&arena, MODELS_LEG_ROWS_MAX);
    bool is_whole = models_leg_rows(m, picture, &arena, &rows, &count);
    if (is_whole || loop_ms() - a->came_ms >= MODELS_LEG_LIST_MS)
        models_room_answer(&m->room, a, rows, count);
    arena_deinit(&arena);
}

static void models_leg_answer_show(struct models_leg *m, struct models_ask *a,
                                   const struct library_entry *entry)
{
    struct api_model row;
    struct err why;
    struct api_error e = {0};
    switch (models_leg_row(m, entry, true, &row, &why)) {
    case CATALOG_ASKED:
        return;
    case CATALOG_KNOWN:
        models_room_answer(&m->room, a, &row, 1);
        return;
    case CATALOG_FAILED:
        api_error_set(&e, ERR_INTERNAL, "load_failed", STR("model"), "%.*s: %s",
                      STR_ARG(entry->name), why.text);
        models_room_fail(&m->room, a, &e);
        return;
    }
}

/* True: the request left the list. */
static void models_leg_look_up(struct models_leg *m, struct models_ask *a, struct arena *arena)
{
    struct library_entry entry;
    struct api_error why = {0};
    enum models_leg_found found = models_leg_find(m, a->rq->model, arena, &entry, &why);
    if (found == MODELS_LEG_ASKED)
        return;
    if (found == MODELS_LEG_FOUND && a->rq->kind == API_KIND_SHOW) {
        models_leg_answer_show(m, a, &entry);
        return;
    }
    struct models_room_model *at =
        found == MODELS_LEG_FOUND ? models_room_model(&m->room, &entry, &why) : NULL;
    if (!at || !models_room_add(&m->room, at, a, &why)) {
        if (!a->sink.on_batch)
            log_warn("preload: %s", why.err.text);
        models_room_fail(&m->room, a, &why);
    }
}

static void models_leg_do(struct models_leg *m, struct models_ask *a)
{
    struct arena arena;
    arena_init(&arena, 1u << 20);
    if (a->rq->kind == API_KIND_LIST)
        models_leg_answer_list(m, a);
    else if (a->rq->kind == API_KIND_PS)
        models_leg_answer_ps(m, a);
    else
        models_leg_look_up(m, a, &arena);
    arena_deinit(&arena);
}

/* Each request once. A callback may cancel any of them: those of this turn lie in a list of their
 * own, from which forgetting takes them too. */
static void models_leg_turn(void *ctx)
{
    struct models_leg *m = ctx;
    struct list now, *first;
    list_init(&now);
    while ((first = list_first(&m->asks))) {
        list_remove(first);
        list_push_last(&now, first);
    }
    while ((first = list_first(&now))) {
        struct models_ask *a = list_item(first, struct models_ask, link);
        list_remove(first);
        list_push_last(&m->asks, first);
        models_leg_do(m, a);
    }
    if (!list_is_empty(&m->asks))
        loop_timer_set(&m->turn, CATALOG_FRESH_MS); /* LIST's patience; the rest is told */
}

static void models_leg_on_catalog(void *ctx)
{
    struct models_leg *m = ctx;
    loop_timer_set(&m->turn, 0);
}

/* --- provider ------------------------------------------------------------------------------ */

static bool models_leg_submit(void *self, const struct api_request *rq, struct api_sink sink,
                              struct api_error *e)
{
    struct models_leg *m = self;
    must(rq->id && !models_room_find(&m->room, rq->id));
    struct models_ask *a = models_room_ask(&m->room, rq, sink);
    if (!a)
        return api_error_set(e, ERR_MEMORY, NULL, STR(""), "no memory for a request");
    struct library_entry entry;
    struct arena arena;
    arena_init(&arena, 1u << 20);
    bool ok = true;
    /* The usual case at once, so that a full queue refuses at once. */
    bool is_of_model = rq->kind < API_KIND_LIST || rq->kind > API_KIND_PS;
    struct api_error ignored = {0};
    if (is_of_model &&
        models_leg_find(m, rq->model, &arena, &entry, &ignored) == MODELS_LEG_FOUND) {
        struct models_room_model *at = models_room_model(&m->room, &entry, e);
        ok = at && models_room_add(&m->room, at, a, e);
        if (!ok)
            models_room_forget(&m->room, a);
    } else {
        list_push_last(&m->asks, &a->link);
        loop_timer_set(&m->turn, 0);
    }
    arena_deinit(&arena);
    return ok;
}

static void models_leg_cancel(void *self, uint64_t id)
{
    struct models_leg *m = self;
    struct models_ask *a = models_room_find(&m->room, id);
    if (!a)
        return;
    if (a->is_given)
        a->model->provider.cancel(a->model->provider.self, id);
    models_room_forget(&m->room, a);
}

static void models_leg_hold(void *self, uint64_t id, bool on)
{
    struct models_leg *m = self;
    struct models_ask *a = models_room_find(&m->room, id);
    if (!a)
        return;
    a->is_held = on;
    if (a->is_given)
        a->model->provider.hold(a->model->provider.self, id, on);
}

static void models_leg_credit(void *self, uint64_t id, uint32_t bytes)
{
    struct models_leg *m = self;
    struct models_ask *a = models_room_find(&m->room, id);
    if (a && a->is_given)
        a->model->provider.credit(a->model->provider.self, id, bytes);
}

static size_t models_leg_models(void *self, struct api_model *out, size_t out_max)
{
    struct models_leg *m = self;
    size_t count = 0;
    for (uint32_t i = 0; i < m->room.count; i++) {
        if (!m->room.models[i]->leg)
            continue;
        if (count < out_max)
            out[count] = models_room_row(m->room.models[i]);
        count++;
    }
    return count;
}

/* Without any child: whether one will be started at once, or the last try failed. */
static struct api_health models_leg_health_idle(const struct models_leg *m)
{
    struct api_health h = {.state = API_HEALTH_READY, .reason = STR("")};
    int64_t last_ms = 0;
    for (uint32_t i = 0; i < m->room.count; i++) {
        const struct models_room_model *at = m->room.models[i];
        if (at->asks_count)
            h.state = API_HEALTH_STARTING;
        if (at->retry_ms <= last_ms || at->leg || h.state == API_HEALTH_STARTING)
            continue;
        last_ms = at->retry_ms;
        h.state = API_HEALTH_FAILED;
        h.reason = str_of(at->why.err.text);
    }
    return h;
}

/* The best state of any; sums of the numbers; the largest age. */
static void models_leg_health(void *self, struct api_health *out)
{
    struct models_leg *m = self;
    static const uint8_t rank[API_HEALTH_COUNT_] = {
        [API_HEALTH_READY] = 4, [API_HEALTH_STARTING] = 3, [API_HEALTH_RESTARTING] = 2,
        [API_HEALTH_FAILED] = 1, [API_HEALTH_STOPPED] = 0};
    struct api_health sum = models_leg_health_idle(m);
    bool is_first = true;
    for (uint32_t i = 0; i < m->room.count; i++) {
        const struct models_room_model *at = m->room.models[i];
        struct api_health h;
        if (!at->leg || at->state == RESIDENCY_LEAVING)
            continue;
        at->provider.health(at->provider.self, &h);
        if (is_first || rank[h.state] > rank[sum.state]) {
            sum.state = h.state;
            sum.reason = h.reason;
            sum.progress = h.progress;
        }
        is_first = false;
        sum.running += h.running;
        sum.queued += h.queued;
        sum.queued_tokens += h.queued_tokens;
        sum.prefill_tokens_per_s += h.prefill_tokens_per_s;
        sum.decode_tokens_per_s += h.decode_tokens_per_s;
        sum.restarts += h.restarts;
        sum.wedges += h.wedges;
        if (h.progress_age_ms > sum.progress_age_ms)
            sum.progress_age_ms = h.progress_age_ms;
    }
    *out = sum;
}

struct api_provider models_leg_provider(struct models_leg *m)
{
    return (struct api_provider){m, models_leg_submit, models_leg_cancel, models_leg_hold,
                                 models_leg_credit, models_leg_models, models_leg_health};
}

/* --- what a reload changes, what a request takes of it -------------------------------------- */

void models_leg_change(struct models_leg *m, const struct models_leg_next *next)
{
    m->o.aliases = next->aliases;
    m->o.aliases_count = next->aliases_count;
    m->o.settings = next->settings;
    m->o.settings_count = next->settings_count;
    m->o.engine_stall_ms = next->engine_stall_ms;
    m->o.load_stall_ms = next->load_stall_ms;
    m->o.load.loop_tokens = next->loop_tokens;
    m->o.load.miss_excerpt = next->miss_excerpt;
    m->o.load.idle_permille = next->idle_permille;
    m->o.load.no_prefix = next->no_prefix;
    m->o.load.pin_permille = next->pin_permille;
    models_room_change(&m->room);
}

/* Only numbers have defaults in a table; the rest one by one. */
static void models_leg_fill_fields(struct api_request *rq, const struct api_request *d)
{
    uint64_t missing = d->given & ~rq->given;
#define X(name, field, type, low, high)                                                            \
    if (missing & API_GIVEN(name))                                                                 \
        rq->field = d->field;
    API_NUMBERS(X)
#undef X
    if (missing & API_GIVEN(STOP)) {
        rq->stop = d->stop;
        rq->stop_count = d->stop_count;
    }
    if (missing & API_GIVEN(EFFORT) && !(rq->given & API_GIVEN(THINK)))
        rq->effort = d->effort;
    else
        missing &= ~API_GIVEN(EFFORT);
    rq->given |= missing;
}

static const struct models_leg_setting *models_leg_setting_of(const struct models_leg *m, str name)
{
    return models_leg_setting_find(m->o.settings, m->o.settings_count, name);
}

str models_leg_fill(struct models_leg *m, struct api_request *rq, struct arena *a)
{
    struct library_entry entry;
    struct api_error ignored = {0};
    if (rq->kind == API_KIND_LIST || rq->kind == API_KIND_PS ||
        models_leg_find(m, rq->model, a, &entry, &ignored) != MODELS_LEG_FOUND)
        return rq->model;
    const struct models_leg_setting *s = models_leg_setting_of(m, entry.name);
    if (s && s->defaults && rq->kind < API_KIND_LIST)
        models_leg_fill_fields(rq, s->defaults);
    if (s && s->max_context && (!rq->context_max || s->max_context < rq->context_max))
        rq->context_max = s->max_context;
    return arena_copy(a, entry.name);
}

bool models_leg_resolve(struct models_leg *m, str name, struct arena *a, str *own,
                        struct api_error *e)
{
    struct library_entry entry;
    struct api_model row;
    struct err why = {0};
    if (models_leg_find(m, name, a, &entry, e) == MODELS_LEG_FOUND) {
        *own = arena_copy(a, entry.name);
        if (models_leg_row(m, &entry, false, &row, &why) == CATALOG_FAILED)
            return err_set(&e->err, ERR_FORMAT, "%.*s: %s", STR_ARG(entry.name), why.text);
        return own->p || err_set(&e->err, ERR_MEMORY, "no memory for a name");
    }
    if (e->err.code == ERR_NONE)
        api_error_set(e, ERR_OVERLOADED, NULL, STR("model"), "the stores are not read yet");
    return false;
}

bool models_leg_has_any(const struct models_leg *m)
{
    struct err why = {0};
    const struct library *picture = catalog_picture(m->catalog, &why);
    for (uint32_t i = 0; picture && i < library_count(picture); i++)
        if (!library_at(picture, i)->broken.len)
            return true;
    return m->added_count > 0 || (!picture && why.code == ERR_NONE);
}

/* --- what else is told --------------------------------------------------------------------- */

size_t models_leg_residents(struct models_leg *m, struct models_leg_resident *out, size_t out_max)
{
    size_t count = 0;
    for (uint32_t i = 0; i < m->room.count; i++) {
        const struct models_room_model *at = m->room.models[i];
        if (!at->leg)
            continue;
        if (count++ >= out_max)
            continue;
        struct models_leg_resident *r = &out[count - 1];
        *r = (struct models_leg_resident){
            .name = at->entry.name, .beat = *engine_leg_beat(at->leg),
            .stats = engine_leg_stats(at->leg),
            .model = models_room_row(at), .idle_left_ms = models_room_idle_left(at),
            .token_age_ms = at->token_ms < 0 ? -1 : loop_ms() - at->token_ms,
            .budget_bytes = at->bytes, .running = at->begun,
            .waiting = at->asks_count - at->begun,
            .is_draining = at->state == RESIDENCY_DRAINING, .pid = engine_leg_pid(at->leg)};
        at->provider.health(at->provider.self, &r->health);
    }
    return count;
}

int models_leg_child(const struct models_leg *m, str model)
{
    struct api_health h;
    for (uint32_t i = 0; i < m->room.count; i++) {
        const struct models_room_model *at = m->room.models[i];
        if (!at->leg || at->state == RESIDENCY_DRAINING || !str_eq(at->entry.name, model))
            continue;
        at->provider.health(at->provider.self, &h);
        if (h.state == API_HEALTH_READY)
            return engine_leg_pid(at->leg);
    }
    return 0;
}

void models_leg_unpin(struct models_leg *m, str model, str name)
{
    for (uint32_t i = 0; i < m->room.count; i++)
        if (m->room.models[i]->leg && str_eq(m->room.models[i]->entry.name, model))
            engine_leg_unpin(m->room.models[i]->leg, name);
}

uint32_t models_leg_drop(struct models_leg *m, str model, const struct api_drop *what,
                         struct engine_leg_drop *drops, uint32_t drops_max)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < m->room.count && (!drops || count < drops_max); i++) {
        const struct models_room_model *at = m->room.models[i];
        bool is_meant = model.len == 0 || str_eq_nocase(at->entry.name, model);
        if (at->leg && is_meant)
            count += engine_leg_drop(at->leg, what, drops ? &drops[count] : NULL);
    }
    return count;
}

bool models_leg_look(struct models_leg *m, str model, const struct api_look *what,
                     struct engine_leg_look *k)
{
    for (uint32_t i = 0; i < m->room.count; i++) {
        const struct models_room_model *at = m->room.models[i];
        if (at->leg && str_eq_nocase(at->entry.name, model))
            return engine_leg_look(at->leg, what, k);
    }
    return false;
}

uint64_t models_leg_swaps(const struct models_leg *m) { return m->room.swaps; }

struct engine_leg_counts models_leg_counts(const struct models_leg *m)
{
    struct engine_leg_counts sum = m->room.counts;
    for (uint32_t i = 0; i < m->room.count; i++) {
        if (!m->room.models[i]->leg)
            continue;
        struct engine_leg_counts one = engine_leg_counts(m->room.models[i]->leg);
        engine_leg_counts_add(&sum, &one);
    }
    return sum;
}

bool models_leg_add(struct models_leg *m, const struct library_entry *entry, struct err *e)
{
    if (m->added_count == MODELS_LEG_ADDED_MAX)
        return err_set(e, ERR_LIMIT, "at most %u models by path", MODELS_LEG_ADDED_MAX);
    struct library_entry *to = &m->added[m->added_count];
    *to = *entry;
    str *const texts[] = {&to->name, &to->path, &to->file_name, &to->broken, &to->projector,
                          &to->draft, &to->params, &to->system};
    for (size_t i = 0; i < countof(texts); i++)
        *texts[i] = arena_copy(&m->arena, *texts[i]);
    if (m->arena.is_full)
        return err_set(e, ERR_MEMORY, "no memory for a model's path");
    m->added_count++;
    return true;
}

void models_leg_preload(struct models_leg *m, str name)
{
    struct api_request rq;
    api_request_init(&rq);
    rq.kind = API_KIND_LOAD;
    struct models_ask *a = models_room_ask(&m->room, &rq, (struct api_sink){0});
    if (!a) {
        log_warn("preload %.*s: no memory", STR_ARG(name));
        return;
    }
    a->own = rq;
    a->own.model = arena_copy(&m->arena, name);
    a->rq = &a->own;
    list_push_last(&m->asks, &a->link);
    models_leg_turn(m); /* what is known by its path loads from now on */
}

/* --- open, close --------------------------------------------------------------------------- */

bool models_leg_open(struct models_leg **out, const struct models_leg_options *o, struct err *e)
{
    struct models_leg *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_MEMORY, "no memory for the models");
    m->o = *o;
    list_init(&m->asks);
    arena_init(&m->arena, 1u << 20);
    struct catalog_options co = {.loop = o->loop, .library = o->library, .build_id = o->build_id,
                                 .argv = o->argv, .on_change = models_leg_on_catalog, .ctx = m};
    if (!models_room_open(&m->room, &m->o, e) || !catalog_open(&m->catalog, &co, e) ||
        !loop_timer_open(&m->turn, o->loop, models_leg_turn, m, e)) {
        models_leg_close(m, 0);
        return false;
    }
    catalog_refresh(m->catalog);
    *out = m;
    return true;
}

void models_leg_expire(struct models_leg *m) { catalog_expire(m->catalog); }

void models_leg_close(struct models_leg *m, int64_t grace_ms)
{
    if (!m)
        return;
    while (!list_is_empty(&m->asks))
        models_room_forget(&m->room,
                           list_item(list_first(&m->asks), struct models_ask, link));
    loop_timer_close(&m->turn);
    models_room_close(&m->room, grace_ms);
    catalog_close(m->catalog);
    arena_deinit(&m->arena);
    free(m);
}
