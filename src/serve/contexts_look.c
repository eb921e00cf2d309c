#include "serve/contexts_look.h"

#include "route/residency.h"
#include "serve/contexts_state.h"
#include "serve/models_leg.h"

/* One child, and the contexts that it was asked for, in the order of the list. */
struct contexts_look_ask {
    struct engine_leg_look ask;
    struct contexts_look *look;
    str model;
    struct api_prefix *prefixes; /* [count] */
    uint64_t *numbers;           /* [count] */
    uint32_t count;
};

struct contexts_look {
    struct contexts *s;
    struct contexts_looker looker;
    struct contexts_look_ask asks[RESIDENCY_MODELS_MAX];
    uint32_t asks_count, left;
};

/* Some of them may be gone since. */
static void contexts_look_note(const struct contexts_look_ask *k, str places)
{
    uint32_t i = 0;
    list_each (at, &k->look->s->all) {
        struct context *c = list_item(at, struct context, link);
        while (i < k->count && k->numbers[i] < c->number)
            i++;
        if (i < k->count && k->numbers[i] == c->number)
            c->place = i < places.len ? (enum api_place)places.p[i] : API_PLACE_NOWHERE;
    }
}

static void contexts_look_on_looked(void *ctx, str places)
{
    struct contexts_look_ask *k = ctx;
    struct contexts_look *l = k->look;
    contexts_look_note(k, places);
    if (--l->left == 0)
        l->looker.on_done(l->looker.ctx);
}

/* The question to the child of that model. NULL: there are more than can be loaded, no memory. */
static struct contexts_look_ask *contexts_look_of(struct contexts_look *l, str model)
{
    struct arena *a = l->looker.a;
    for (uint32_t i = 0; i < l->asks_count; i++)
        if (str_eq_nocase(l->asks[i].model, model))
            return &l->asks[i];
    if (l->asks_count == countof(l->asks))
        return NULL;
    struct contexts_look_ask *k = &l->asks[l->asks_count];
    *k = (struct contexts_look_ask){.ask = {.on_done = contexts_look_on_looked, .ctx = k},
                                    .look = l, .model = arena_copy(a, model),
                                    .prefixes = ARENA_ARRAY(a, struct api_prefix, l->s->count),
                                    .numbers = ARENA_ARRAY(a, uint64_t, l->s->count)};
    list_init(&k->ask.link);
    if (!k->model.p || !k->prefixes || !k->numbers)
        return NULL;
    l->asks_count++;
    return k;
}

static void contexts_look_add(struct contexts_look *l, struct context *c)
{
    struct contexts_look_ask *k = c->prefix.pages ? contexts_look_of(l, c->model) : NULL;
    if (!k) {
        c->place = API_PLACE_NOWHERE;
        return;
    }
    k->prefixes[k->count] = c->prefix;
    k->numbers[k->count++] = c->number;
}

/* False: nobody can tell. */
static bool contexts_look_ask(struct contexts_look *l, struct contexts_look_ask *k)
{
    struct models_leg *models = l->s->o.models;
    const struct api_look what = {k->prefixes, k->count};
    if (models && models_leg_look(models, k->model, &what, &k->ask))
        return true;
    contexts_look_note(k, STR(""));
    return false;
}

struct contexts_look *contexts_look_begin(struct contexts *s, const struct contexts_looker *k)
{
    struct contexts_look *l = ARENA_NEW(k->a, struct contexts_look);
    struct context *one = k->id.len ? contexts_seen(s, &k->who, k->id, false, loop_ms()) : NULL;
    if (!l)
        return NULL;
    l->s = s;
    l->looker = *k;
    list_each (at, &s->all) {
        struct context *c = list_item(at, struct context, link);
        if (k->id.len ? c == one : contexts_is_listed(c, &k->who))
            contexts_look_add(l, c);
    }
    for (uint32_t i = 0; i < l->asks_count; i++)
        l->left += contexts_look_ask(l, &l->asks[i]);
    return l->left ? l : NULL;
}

void contexts_look_end(struct contexts_look *l)
{
    for (uint32_t i = 0; l && i < l->asks_count; i++)
        list_remove(&l->asks[i].ask.link);
}
