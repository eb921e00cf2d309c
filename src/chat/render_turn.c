#include "chat/render_turn.h"

#include <string.h>

#include "base/digest.h"
#include "chat/jinja.h"
#include "chat/jinja_json.h"

#define IMAGE_NOTE "[an image was omitted: this model does not see images]"

/* Twice the room of an array in the heap. */
static bool grow(struct jinja_heap *h, void *array, uint32_t count, uint32_t *cap, size_t size)
{
    void *old, *more;
    if (count < *cap)
        return true;
    more = jinja_text_alloc(h, (size_t)*cap * 2 + 16, size);
    if (more == NULL)
        return false;
    memcpy(&old, array, sizeof old);
    if (count)
        memcpy(more, old, count * size);
    memcpy(array, &more, sizeof more);
    *cap = *cap * 2 + 16;
    return true;
}

uint32_t render_turn_mark(struct render_turns *r, enum render_origin origin, uint32_t message,
                          uint32_t part)
{
    if (r->marks_count == RENDER_ORIGINS_MAX)
        r->h->stop = JINJA_STOP_MEMORY;
    if (r->h->stop != JINJA_STOP_NONE ||
        !grow(r->h, &r->marks, r->marks_count, &r->marks_cap, sizeof *r->marks))
        return 0;
    r->marks[r->marks_count++] = (struct render_mark){origin, message, part};
    return r->marks_count;
}

str render_turn_tool_name(struct arena *a, str name_space, str name)
{
    if (name_space.len == 0)
        return name;
    return arena_printf(a, "%.*s%s%.*s", STR_ARG(name_space),
                        str_ends(name_space, STR("_")) ? "" : "__", STR_ARG(name));
}

static void add_text(struct render_turns *r, struct render_turn *t, str text, uint32_t origin);

static struct jinja_value undefined(void)
{
    return (struct jinja_value){.kind = JINJA_UNDEFINED, .flavour = JINJA_MISSING_HINT,
                                .u.hint = "a value is not given"};
}

static struct render_turn *new_turn(struct render_turns *r, enum api_role role, uint32_t message)
{
    if (!grow(r->h, &r->turns, r->turns_count, &r->turns_cap, sizeof *r->turns))
        return NULL;
    struct render_turn *t = &r->turns[r->turns_count];
    *t = (struct render_turn){.role = role, .reasoning = undefined(), .name = undefined(),
                              .id = undefined(), .message = message};
    t->parts = jinja_value_list(r->h, JINJA_LIST_LIST, 0);
    t->calls = jinja_value_list(r->h, JINJA_LIST_LIST, 0);
    r->turns_count++;
    return t;
}

bool render_turn_lead(struct render_turns *r, enum api_role role)
{
    if (!new_turn(r, role, UINT32_MAX))
        return false;
    struct render_turn lead = r->turns[r->turns_count - 1];
    memmove(r->turns + 1, r->turns, (r->turns_count - 1) * sizeof *r->turns);
    r->turns[0] = lead;
    return true;
}

void render_turn_add(struct render_turns *r, struct render_turn *t, struct jinja_str text)
{
    struct jinja_list *parts = t->parts.kind == JINJA_LIST ? t->parts.u.list : NULL;
    if (!parts || text.len == 0)
        return;
    if (parts->count == 0)
        add_text(r, t, STR(""), 0);
    if (parts->count == 0)
        return; /* no memory: h->stop says it */
    struct jinja_value *last =
        jinja_value_find_name(parts->items[parts->count - 1].u.dict, STR("text"));
    if (last)
        last->u.s = jinja_text_concat(r->h, last->u.s, text);
}

/* ---- Reading parts ---- */

static void add_text(struct render_turns *r, struct render_turn *t, str text, uint32_t origin)
{
    struct jinja_value part = jinja_value_dict(r->h, 0);
    jinja_value_put_z(r->h, part, "type", jinja_value_text(r->h, STR("text"), 0));
    jinja_value_put_z(r->h, part, "text", jinja_value_text(r->h, text, origin));
    jinja_value_push(r->h, t->parts, part);
}

/* Nine letters or digits that stand for the id; equal ids stay equal. */
static str short_id(struct render_turns *r, str id)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    bool fits = id.len == 9;
    for (size_t i = 0; i < id.len && fits; i++)
        fits = strchr(digits, id.p[i]) != NULL && id.p[i] != 0;
    if (fits || !(r->caps & RENDER_CAP_SHORT_IDS))
        return id;
    uint64_t hash = digest_xxh3(id, 0);
    char text[9];
    for (size_t i = 0; i < sizeof text; i++, hash /= 62)
        text[i] = digits[hash % 62];
    return arena_copy(r->h->arena, (str){text, sizeof text});
}

/* Arguments are an object where they are one, else the text as it came. */
static struct jinja_value arguments(struct render_turns *r, str text, uint32_t origin)
{
    struct jinja_value v;
    struct err ignored;
    if (text.len == 0)
        return jinja_value_dict(r->h, origin);
    if (jinja_json_value(r->h, text, origin, &v, &ignored) && v.kind == JINJA_DICT)
        return v;
    return jinja_value_text(r->h, text, origin);
}

static void add_call(struct render_turns *r, struct render_turn *t, const struct api_part *p,
                     uint32_t origin)
{
    struct jinja_value call = jinja_value_dict(r->h, 0), function = jinja_value_dict(r->h, 0);
    str name = render_turn_tool_name(r->h->arena, p->name_space, p->name);
    jinja_value_put_z(r->h, function, "name", jinja_value_text(r->h, name, origin));
    jinja_value_put_z(r->h, function, "arguments", arguments(r, p->text, origin));
    if (p->id.len)
        jinja_value_put_z(r->h, call, "id", jinja_value_text(r->h, short_id(r, p->id), origin));
    jinja_value_put_z(r->h, call, "type", jinja_value_text(r->h, STR("function"), 0));
    jinja_value_put_z(r->h, call, "function", function);
    jinja_value_push(r->h, t->calls, call);
}

static void add_reasoning(struct render_turns *r, struct render_turn *t, str text,
                          uint32_t origin)
{
    struct jinja_value more = jinja_value_text(r->h, text, origin);
    if (t->reasoning.kind == JINJA_STRING)
        more.u.s = jinja_text_concat(r->h, t->reasoning.u.s, more.u.s);
    t->reasoning = more;
}

/* The tool that the call of this id named, looked for backwards. */
static const struct api_part *call_of(const struct api_request *rq, uint32_t before, str id)
{
    for (uint32_t m = before; m-- > 0 && id.len;)
        for (uint32_t i = rq->messages[m].parts_count; i-- > 0;) {
            const struct api_part *p = &rq->messages[m].parts[i];
            if (p->kind == API_PART_CALL && str_eq(p->id, id))
                return p;
        }
    return NULL;
}

/* A result is a turn of its own; further parts of the same call join it. */
static struct render_turn *result_turn(struct render_turns *r, const struct api_part *p,
                                       uint32_t message, uint32_t origin, str *last_id)
{
    struct render_turn *t = r->turns_count ? &r->turns[r->turns_count - 1] : NULL;
    if (t && t->role == API_ROLE_TOOL && t->message == message && str_eq(*last_id, p->id))
        return t;
    *last_id = p->id;
    t = new_turn(r, API_ROLE_TOOL, message);
    if (t == NULL)
        return NULL;
    const struct api_part *call = p->name.len ? NULL : call_of(r->rq, message, p->id);
    str name = p->name.len ? render_turn_tool_name(r->h->arena, p->name_space, p->name)
               : call ? render_turn_tool_name(r->h->arena, call->name_space, call->name)
                      : (str){NULL, 0};
    if (name.len)
        t->name = jinja_value_text(r->h, name, origin);
    if (p->id.len)
        t->id = jinja_value_text(r->h, short_id(r, p->id), origin);
    return t;
}

/* No call in front of it has this result's id, or there is no call at all. */
static bool is_orphan(const struct api_request *rq, uint32_t m, const struct api_part *p)
{
    if (p->id.len)
        return call_of(rq, m, p->id) == NULL;
    for (uint32_t k = m; k-- > 0;)
        for (uint32_t i = 0; i < rq->messages[k].parts_count; i++)
            if (rq->messages[k].parts[i].kind == API_PART_CALL)
                return false;
    return true;
}

/* Templates refuse a result without its call, or show it as if it answered another one. */
static void add_orphan(struct render_turns *r, struct render_turn *t, const struct api_part *p,
                       uint32_t origin)
{
    str id = p->id.len ? p->id : p->name;
    str head = arena_printf(r->h->arena, "[tool result%s%.*s] ", id.len ? " " : "", STR_ARG(id));
    char *text = head.p ? arena_alloc_text(r->h->arena, head.len + p->text.len) : NULL;
    if (text == NULL)
        return; /* the arena is full, which render_turn_read says */
    memcpy(text, head.p, head.len);
    if (p->text.len)
        memcpy(text + head.len, p->text.p, p->text.len);
    add_text(r, t, str_view(text, head.len + p->text.len), origin);
}

static void read_part(struct render_turns *r, uint32_t m, uint32_t i, str *last_id)
{
    const struct api_message *message = &r->rq->messages[m];
    const struct api_part *p = &message->parts[i];
    uint32_t origin = render_turn_mark(r, RENDER_CONTENT, m, i);
    bool is_result = p->kind == API_PART_RESULT ||
                     (p->kind == API_PART_IMAGE && message->role == API_ROLE_TOOL);
    bool orphan = is_result && is_orphan(r->rq, m, p);
    enum api_role role = orphan ? API_ROLE_USER : message->role;
    is_result = is_result && !orphan;
    struct render_turn *t = is_result ? result_turn(r, p, m, origin, last_id)
                                      : r->turns_count ? &r->turns[r->turns_count - 1] : NULL;
    /* The turn of the message itself: made at the first part that is no result. */
    if (!is_result && (t == NULL || t->message != m || t->role != role))
        t = new_turn(r, role, m);
    if (t == NULL)
        return;
    if (orphan && p->kind == API_PART_RESULT) {
        add_orphan(r, t, p, origin);
        return;
    }
    switch (p->kind) {
    case API_PART_TEXT: case API_PART_RESULT:
        add_text(r, t, p->text, origin);
        break;
    case API_PART_IMAGE:
        add_text(r, t, STR(IMAGE_NOTE), origin);
        r->has_images = true;
        break;
    case API_PART_REASONING:
        add_reasoning(r, t, p->text, origin);
        break;
    case API_PART_CALL:
        add_call(r, t, p, origin);
        break;
    case API_PART_COUNT_:
        break;
    }
}

bool render_turn_read(struct render_turns *r, struct err *e)
{
    for (uint32_t m = 0; m < r->rq->messages_count && r->h->stop == JINJA_STOP_NONE; m++) {
        const struct api_message *message = &r->rq->messages[m];
        str last_id = {NULL, 0};
        uint32_t before = r->turns_count;
        for (uint32_t i = 0; i < message->parts_count && r->h->stop == JINJA_STOP_NONE; i++)
            read_part(r, m, i, &last_id);
        if (r->turns_count == before && new_turn(r, message->role, m) == NULL)
            break;
        if (message->name.len && r->turns_count > before)
            r->turns[r->turns_count - 1].name = jinja_value_text(
                r->h, message->name, render_turn_mark(r, RENDER_NAME, m, 0));
    }
    if (r->h->stop == JINJA_STOP_NONE && r->h->arena->is_full)
        r->h->stop = JINJA_STOP_MEMORY;
    return r->h->stop == JINJA_STOP_NONE ||
           err_set(e, ERR_LIMIT, "messages: rendering them needs more than %zu MiB",
                   r->h->arena->bytes_max >> 20);
}

/* ---- Merging ---- */

static void append_list(struct jinja_heap *h, struct jinja_value to, struct jinja_value from)
{
    for (uint32_t i = 0; from.kind == JINJA_LIST && i < from.u.list->count; i++)
        jinja_value_push(h, to, from.u.list->items[i]);
}

/* from's texts behind to's, a blank line between them. */
static void join_turns(struct render_turns *r, struct render_turn *to,
                       const struct render_turn *from)
{
    if (to->parts.u.list->count && from->parts.u.list->count)
        add_text(r, to, STR("\n\n"), 0);
    append_list(r->h, to->parts, from->parts);
    append_list(r->h, to->calls, from->calls);
    if (from->reasoning.kind == JINJA_STRING)
        add_reasoning(r, to, jinja_text_bytes(from->reasoning.u.s),
                      jinja_text_taint(from->reasoning.u.s));
}

static bool is_system(enum api_role role)
{
    return role == API_ROLE_SYSTEM || role == API_ROLE_DEVELOPER;
}

bool render_turn_merge(struct render_turns *r)
{
    bool changed = false, can_system = (r->caps & RENDER_CAP_SYSTEM) != 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->turns_count; i++) {
        struct render_turn *t = &r->turns[i], *last = n ? &r->turns[n - 1] : NULL;
        bool leads = n == 0 || (n == 1 && is_system(last->role));
        if (is_system(t->role) && (!leads || !can_system)) {
            t->role = API_ROLE_USER;
            changed = true;
        }
        bool same = last && t->role != API_ROLE_TOOL &&
                    (t->role == last->role || (is_system(t->role) && is_system(last->role)));
        if (same) {
            join_turns(r, last, t);
            changed = true;
        } else {
            r->turns[n++] = *t;
        }
    }
    r->turns_count = n;
    return changed;
}

/* ---- Dicts ---- */

/* One string of a list of parts; pieces that were merged join as they are, others by a newline. */
static struct jinja_value one_string(struct render_turns *r, struct jinja_value parts)
{
    struct jinja_str all = {0};
    bool glue = false;
    for (uint32_t i = 0; parts.kind == JINJA_LIST && i < parts.u.list->count; i++) {
        struct jinja_value *text =
            jinja_value_find_name(parts.u.list->items[i].u.dict, STR("text"));
        bool is_glue = str_eq_z(jinja_text_bytes(text->u.s), "\n\n") &&
                       jinja_text_taint(text->u.s) == 0;
        if (i && !is_glue && !glue)
            all = jinja_text_concat(r->h, all, jinja_text_of(r->h, STR("\n"), 0));
        all = jinja_text_concat(r->h, all, text->u.s);
        glue = is_glue;
    }
    return jinja_value_str(all);
}

static struct jinja_value content(struct render_turns *r, const struct render_turn *t)
{
    uint32_t count = t->parts.u.list->count;
    bool only_calls = count == 0 && t->calls.u.list->count;
    if (only_calls && (r->caps & RENDER_CAP_NULL))
        return jinja_value_none();
    bool wants_list = !(r->caps & RENDER_CAP_STRING) && (r->caps & RENDER_CAP_PARTS);
    if (wants_list || (count > 1 && (r->caps & RENDER_CAP_PARTS) && t->role != API_ROLE_TOOL))
        return t->parts;
    return one_string(r, t->parts);
}

static const char *role_word(const struct render_turns *r, enum api_role role)
{
    if (role == API_ROLE_DEVELOPER && !jinja_mentions(r->t, STR("developer")))
        role = API_ROLE_SYSTEM;
    return api_request_role_name(role);
}

/* transformers gives reasoning under several names; here under those that the template reads. */
static void put_reasoning(struct render_turns *r, struct jinja_value dict, struct jinja_value text)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    for (size_t i = 0; i < countof(names); i++)
        if (jinja_mentions(r->t, str_of(names[i])))
            jinja_value_put_z(r->h, dict, names[i], text);
}

struct jinja_value render_turn_messages(struct render_turns *r)
{
    struct jinja_value list = jinja_value_list(r->h, JINJA_LIST_LIST, 0);
    for (uint32_t i = 0; i < r->turns_count && r->h->stop == JINJA_STOP_NONE; i++) {
        const struct render_turn *t = &r->turns[i];
        struct jinja_value dict = jinja_value_dict(r->h, 0);
        str role = str_of(role_word(r, t->role));
        jinja_value_put_z(r->h, dict, "role", jinja_value_text(r->h, role, 0));
        jinja_value_put_z(r->h, dict, "content", content(r, t));
        if (t->name.kind == JINJA_STRING)
            jinja_value_put_z(r->h, dict, "name", t->name);
        if (t->id.kind == JINJA_STRING)
            jinja_value_put_z(r->h, dict, "tool_call_id", t->id);
        if (t->reasoning.kind == JINJA_STRING)
            put_reasoning(r, dict, t->reasoning);
        if (t->calls.kind == JINJA_LIST && t->calls.u.list->count)
            jinja_value_put_z(r->h, dict, "tool_calls", t->calls);
        jinja_value_push(r->h, list, dict);
    }
    return list;
}

/* A template that reads what a client may leave out finds it there, empty. */
static bool turn_tool_schema(struct render_turns *r, str text, uint32_t origin,
                             struct jinja_value *out, struct err *e)
{
    bool is_full = r->caps & RENDER_CAP_FULL_TOOLS;
    if (text.len == 0 && is_full)
        text = STR("{\"type\": \"object\"}");
    if (text.len && !jinja_json_value(r->h, text, origin, out, e))
        return false;
    if (is_full && out->kind == JINJA_DICT &&
        !jinja_value_find_name(out->u.dict, STR("properties")))
        jinja_value_put_z(r->h, *out, "properties", jinja_value_dict(r->h, origin));
    return true;
}

bool render_turn_tools(struct render_turns *r, struct jinja_value *out, struct err *e)
{
    struct jinja_value list = jinja_value_list(r->h, JINJA_LIST_LIST, 0);
    *out = list;
    for (uint32_t i = 0; i < r->rq->tools_count && r->h->stop == JINJA_STOP_NONE; i++) {
        const struct api_tool *tool = &r->rq->tools[i];
        uint32_t origin = render_turn_mark(r, RENDER_TOOLS, 0, i);
        if (tool->kind == API_TOOL_HOSTED)
            continue;
        if (list.kind == JINJA_LIST && list.u.list->origin == 0)
            list.u.list->origin = origin;
        struct jinja_value dict = jinja_value_dict(r->h, origin);
        struct jinja_value function = jinja_value_dict(r->h, origin);
        str name = render_turn_tool_name(r->h->arena, tool->name_space, tool->name);
        str text = tool->kind == API_TOOL_CUSTOM ? STR(OUTPUT_TOOLS_CUSTOM_SCHEMA) : tool->schema;
        jinja_value_put_z(r->h, dict, "type", jinja_value_text(r->h, STR("function"), origin));
        jinja_value_put_z(r->h, function, "name", jinja_value_text(r->h, name, origin));
        struct jinja_value schema = {.kind = JINJA_UNDEFINED};
        if (tool->description.p || r->caps & RENDER_CAP_FULL_TOOLS)
            jinja_value_put_z(r->h, function, "description",
                              jinja_value_text(r->h, tool->description, origin));
        if (!turn_tool_schema(r, text, origin, &schema, e))
            return err_wrap(e, "tools[%u]", i);
        if (schema.kind != JINJA_UNDEFINED)
            jinja_value_put_z(r->h, function, "parameters", schema);
        if (tool->strict)
            jinja_value_put_z(r->h, function, "strict", jinja_value_bool(true));
        jinja_value_put_z(r->h, dict, "function", function);
        jinja_value_push(r->h, list, dict);
    }
    return true;
}
