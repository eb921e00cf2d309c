#include "chat/render.h"

#include <stdio.h>
#include <string.h>

#include "chat/jinja.h"
#include "chat/jinja_json.h"
#include "chat/render_builtin.h"
#include "chat/render_tools.h"
#include "chat/render_turn.h"

#define OPENING_MAX 256u /* a longer one is not told */

struct render {
    const struct jinja_template *main, *tool; /* tool: with tools; often the same */
    str source, bos, eos;
    uint32_t caps;
    uint32_t efforts; /* bit per enum api_effort: levels that reasoning_effort may have */
    char opening[OPENING_MAX]; /* of a reply */
    size_t opening_len;
    struct output_format format;
};

/* ---- One run ---- */

struct run {
    const struct render *r;
    const struct api_request *rq;
    struct render_turns turns;
    struct jinja_heap heap;
    struct jinja_value think, effort; /* UNDEFINED: not given to the template */
    bool with_prompt;
    struct jinja_result out;
};

#define VARS_MAX 64
struct vars {
    struct jinja_var rows[VARS_MAX];
    size_t count;
};

static void set_var(struct vars *v, str name, struct jinja_value value)
{
    size_t i = 0;
    while (i < v->count && !str_eq(v->rows[i].name, name))
        i++;
    must(i < VARS_MAX);
    v->rows[i] = (struct jinja_var){name, value};
    v->count += i == v->count;
}

/* Template arguments of the request: names that the template reads and that are not ours. */
static bool set_args(struct run *run, struct vars *v, struct err *e)
{
    static const char *const ours[] = {"messages", "tools", "documents", "bos_token", "eos_token",
                                       "add_generation_prompt", "chat_template"};
    uint32_t origin = render_turn_mark(&run->turns, RENDER_ARGS, 0, 0);
    struct jinja_value args;
    if (run->rq->template_args.len == 0)
        return true;
    if (!jinja_json_value(&run->heap, run->rq->template_args, origin, &args, e))
        return err_wrap(e, "chat_template_kwargs");
    if (args.kind != JINJA_DICT)
        return err_set(e, ERR_REQUEST, "chat_template_kwargs: object expected");
    for (uint32_t i = 0; i < args.u.dict->count; i++) {
        str name = jinja_text_bytes(args.u.dict->entries[i].key.u.s);
        bool is_ours = v->count >= VARS_MAX - 1;
        for (size_t k = 0; k < countof(ours); k++)
            is_ours = is_ours || str_eq_z(name, ours[k]);
        if (is_ours || !jinja_reads(run->turns.t, name))
            return err_set(e, ERR_REQUEST, "chat_template_kwargs: %s '%.*s'",
                           is_ours ? "a request cannot set" : "the model's template does not read",
                           (int)base_min(name.len, 60), name.p);
        set_var(v, name, args.u.dict->entries[i].value);
    }
    return true;
}

static bool run_template(struct run *run, struct err *e)
{
    struct jinja_heap *h = &run->heap;
    struct jinja_value tools = jinja_value_none();
    struct vars v = {.count = 0};
    bool has_tools = api_request_has_tools(run->rq);
    if (has_tools && !render_turn_tools(&run->turns, &tools, e))
        return false;
    set_var(&v, STR("messages"), render_turn_messages(&run->turns));
    set_var(&v, STR("tools"), tools);
    set_var(&v, STR("documents"), jinja_value_none());
    set_var(&v, STR("add_generation_prompt"), jinja_value_bool(run->with_prompt));
    if (run->r->bos.len)
        set_var(&v, STR("bos_token"), jinja_value_text(h, run->r->bos, 0));
    if (run->r->eos.len)
        set_var(&v, STR("eos_token"), jinja_value_text(h, run->r->eos, 0));
    if (run->think.kind == JINJA_BOOL) {
        set_var(&v, STR("enable_thinking"), run->think);
        set_var(&v, STR("thinking"), run->think);
    }
    if (run->effort.kind == JINJA_STRING)
        set_var(&v, STR("reasoning_effort"), run->effort);
    if (!set_args(run, &v, e))
        return false;
    const struct jinja_input in = {v.rows, v.count, run->rq->time_s};
    return jinja_run(run->turns.t, h, &in, &run->out, e);
}

static void run_init(struct run *run, const struct render *r, const struct api_request *rq,
                     struct arena *scratch)
{
    *run = (struct run){.r = r, .rq = rq, .heap = jinja_heap(scratch), .with_prompt = true};
    run->turns = (struct render_turns){.rq = rq, .caps = r->caps,
                                       .t = api_request_has_tools(rq) ? r->tool : r->main};
    run->think.kind = run->effort.kind = JINJA_UNDEFINED;
}

/* heap lies in run: its address is stable only once run is at its place. */
static bool run_all(struct run *run, struct err *e)
{
    run->turns.h = &run->heap;
    return render_turn_read(&run->turns, e) && run_template(run, e);
}

/* ---- Probing ---- */

#define PROBE_STEPS 500000 /* a hostile template shall not hold up the load */
#define PROBE_SYSTEM "probe-system"
#define PROBE_USER   "probe-user"
#define PROBE_SECOND "probe-second"
#define PROBE_TOOL   "probe_tool"
#define PROBE_ARG    "probe-argument"
#define PROBE_RESULT "probe-result"
#define PROBE_THINK  "probe-reasoning"
#define PROBE_ID     "call_0123456789abcdefABCDEF"

struct probe {
    const struct render *r;
    struct api_request rq;
    struct arena scratch;
    struct run run;
    str text; /* "" when it did not render */
    bool without_prompt;
};

static bool probe_run(struct probe *p)
{
    struct err ignored;
    arena_reset(&p->scratch);
    struct jinja_value think = p->run.think, effort = p->run.effort;
    run_init(&p->run, p->r, &p->rq, &p->scratch);
    p->run.heap.steps_left = PROBE_STEPS;
    p->run.with_prompt = !p->without_prompt;
    p->run.think = think;
    p->run.effort = effort;
    bool ok = run_all(&p->run, &ignored);
    p->text = ok ? jinja_text_bytes(p->run.out.text) : (str){"", 0};
    return ok;
}

static bool probe_has(const struct probe *p, const char *what)
{
    return str_find(p->text, str_of(what)) != STR_NONE;
}

#define TEXT_PART(kind_, text_) {.kind = API_PART_##kind_, .text = STR_INIT(text_)}
static const struct api_part probe_system[] = {TEXT_PART(TEXT, PROBE_SYSTEM)};
static const struct api_part probe_user[] = {TEXT_PART(TEXT, PROBE_USER)};
static const struct api_part probe_two[] = {TEXT_PART(TEXT, PROBE_USER),
                                            TEXT_PART(TEXT, PROBE_SECOND)};
static const struct api_part probe_call[] = {
    TEXT_PART(REASONING, PROBE_THINK),
    {.kind = API_PART_CALL, .id = STR_INIT(PROBE_ID), .name = STR_INIT(PROBE_TOOL),
     .text = STR_INIT("{\"q\": \"" PROBE_ARG "\"}")}};
static const struct api_part probe_answer[] = {TEXT_PART(REASONING, PROBE_THINK),
                                               TEXT_PART(TEXT, PROBE_SECOND)};
static const struct api_part probe_result[] = {
    {.kind = API_PART_RESULT, .id = STR_INIT(PROBE_ID), .text = STR_INIT(PROBE_RESULT)}};
static const struct api_tool probe_tool = {
    .kind = API_TOOL_FUNCTION, .name = STR_INIT(PROBE_TOOL), .description = STR_INIT("probe"),
    .schema = STR_INIT("{\"type\": \"object\", \"properties\": {\"q\": {\"type\": \"string\", "
                       "\"description\": \"probe\"}}, \"required\": [\"q\"]}"),
    .allowed = true};

static const struct api_tool probe_sparse = {.kind = API_TOOL_FUNCTION,
                                             .name = STR_INIT(PROBE_TOOL), .allowed = true};

#define MESSAGE(role_, parts_) {.role = API_ROLE_##role_, .parts = parts_, \
                                .parts_count = countof(parts_)}

static void probe_messages(struct probe *p, const struct api_message *m, uint32_t count,
                           bool with_tool)
{
    p->rq.messages = m;
    p->rq.messages_count = count;
    p->rq.tools = &probe_tool;
    p->rq.tools_count = with_tool;
}

/* String and list content, with and without a system turn. */
static void probe_content(struct probe *p, struct render *r)
{
    static const struct api_message one[] = {MESSAGE(USER, probe_user)};
    static const struct api_message two[] = {MESSAGE(USER, probe_two)};
    static const struct api_message with_system[] = {MESSAGE(SYSTEM, probe_system),
                                                     MESSAGE(USER, probe_user)};
    r->caps = RENDER_CAP_STRING | (r->caps & RENDER_CAP_GUESSED);
    probe_messages(p, one, 1, false);
    bool string = probe_run(p) && probe_has(p, PROBE_USER);
    r->caps |= RENDER_CAP_PARTS;
    probe_messages(p, two, 1, false);
    bool parts = probe_run(p) && probe_has(p, PROBE_USER) && probe_has(p, PROBE_SECOND) &&
                 !probe_has(p, "'text'") && !probe_has(p, "\"text\"");
    r->caps &= ~(uint32_t)(RENDER_CAP_STRING | RENDER_CAP_PARTS);
    r->caps |= (string || !parts ? RENDER_CAP_STRING : 0u) | (parts ? RENDER_CAP_PARTS : 0u);
    probe_messages(p, with_system, 2, false);
    if (probe_run(p) && probe_has(p, PROBE_SYSTEM))
        r->caps |= RENDER_CAP_SYSTEM;
}

static bool shows_calls(struct probe *p)
{
    return probe_run(p) && probe_has(p, PROBE_ARG) && probe_has(p, PROBE_RESULT);
}

static void probe_tools(struct probe *p, struct render *r)
{
    static const uint32_t forms[] = {0, RENDER_CAP_NULL, RENDER_CAP_SHORT_IDS,
                                     RENDER_CAP_NULL | RENDER_CAP_SHORT_IDS};
    static const struct api_message plain[] = {MESSAGE(USER, probe_user)};
    static const struct api_message turns[] = {MESSAGE(USER, probe_user),
                                               MESSAGE(ASSISTANT, probe_call),
                                               MESSAGE(TOOL, probe_result)};
    uint32_t caps = r->caps;
    probe_messages(p, plain, 1, true);
    if (probe_run(p) && probe_has(p, PROBE_TOOL))
        caps |= RENDER_CAP_TOOLS;
    p->rq.tools = &probe_sparse;
    if (caps & RENDER_CAP_TOOLS && !probe_run(p))
        caps |= RENDER_CAP_FULL_TOOLS;
    probe_messages(p, turns, countof(turns), true);
    for (size_t i = 0; i < countof(forms); i++) {
        r->caps = caps | forms[i];
        if (!shows_calls(p))
            continue;
        r->caps |= RENDER_CAP_CALLS | (probe_has(p, PROBE_THINK) ? RENDER_CAP_THINK : 0u);
        return;
    }
    r->caps = caps;
}

/* Which levels make a difference. A template that prints whatever it is given is taken to know the
 * three levels that all such models were trained on. */
static void probe_effort(struct probe *p, struct render *r)
{
    char nothing[] = "probe-level";
    struct arena keep;
    r->efforts = 0;
    if (!jinja_reads(r->main, STR("reasoning_effort")))
        return;
    r->caps |= RENDER_CAP_EFFORT | RENDER_CAP_THINK;
    arena_init(&keep, (size_t)1 << 22);
    struct jinja_heap h = jinja_heap(&keep);
    p->run.effort = jinja_value_text(&h, str_of(nothing), 0);
    bool takes_any = probe_run(p);
    bool prints = takes_any && probe_has(p, nothing);
    str other = arena_copy(&keep, p->text);
    for (int level = API_EFFORT_MINIMAL; level < API_EFFORT_COUNT_; level++) {
        p->run.effort = jinja_value_text(
            &h, str_of(api_request_effort_name((enum api_effort)level)), 0);
        bool is_common = level >= API_EFFORT_LOW && level <= API_EFFORT_HIGH;
        bool ok = probe_run(p);
        if (prints ? is_common : ok && (!takes_any || !str_eq(p->text, other)))
            r->efforts |= 1u << level;
    }
    /* A level that is the default looks like nonsense: it is one if the template names it. */
    for (int level = API_EFFORT_MINIMAL; level < API_EFFORT_COUNT_; level++)
        if (jinja_mentions(r->main, str_of(api_request_effort_name((enum api_effort)level))))
            r->efforts |= 1u << level;
    p->run.effort.kind = JINJA_UNDEFINED;
    arena_deinit(&keep);
}

static void probe_thinking(struct probe *p, struct render *r)
{
    static const struct api_message plain[] = {MESSAGE(USER, probe_user)};
    static const struct api_message turns[] = {MESSAGE(USER, probe_user),
                                               MESSAGE(ASSISTANT, probe_answer)};
    struct arena keep;
    probe_messages(p, turns, countof(turns), false);
    if (probe_run(p) && probe_has(p, PROBE_THINK))
        r->caps |= RENDER_CAP_THINK;
    probe_messages(p, plain, 1, false);
    arena_init(&keep, (size_t)1 << 22);
    p->run.think = jinja_value_bool(true);
    bool on = probe_run(p);
    str first = arena_copy(&keep, p->text);
    p->run.think = jinja_value_bool(false);
    bool off = probe_run(p);
    if (on != off || !str_eq(first, p->text))
        r->caps |= RENDER_CAP_SWITCH | RENDER_CAP_THINK;
    p->run.think.kind = JINJA_UNDEFINED;
    arena_deinit(&keep);
    probe_effort(p, r);
}

/* What the generation prompt adds behind a user's turn. */
static void probe_opening(struct probe *p, struct render *r)
{
    static const struct api_message plain[] = {MESSAGE(USER, probe_user)};
    struct arena keep;
    probe_messages(p, plain, 1, false);
    arena_init(&keep, (size_t)1 << 22);
    p->without_prompt = true;
    bool ok = probe_run(p);
    str shorter = arena_copy(&keep, p->text);
    p->without_prompt = false;
    if (ok && shorter.len && probe_run(p) && str_starts(p->text, shorter) &&
        p->text.len - shorter.len <= OPENING_MAX) {
        r->opening_len = p->text.len - shorter.len;
        memcpy(r->opening, p->text.p + shorter.len, r->opening_len);
    }
    arena_deinit(&keep);
    str tail = str_trim(render_opening(r));
    const struct output_think *think = r->format.think;
    if (think && str_ends(tail, str_trim(think->open)))
        r->caps |= RENDER_CAP_THINK; /* always, though it has no switch and keeps no reasoning */
}

static void probe_all(struct render *r)
{
    struct probe p = {.r = r};
    api_request_init(&p.rq);
    arena_init(&p.scratch, (size_t)64 << 20);
    p.run.think.kind = p.run.effort.kind = JINJA_UNDEFINED;
    probe_content(&p, r);
    probe_tools(&p, r);
    probe_thinking(&p, r);
    probe_opening(&p, r);
    arena_deinit(&p.scratch);
}

/* ---- Choosing ---- */

static const struct render_builtin *builtin_by_tokens(const struct render_source *src)
{
    for (uint32_t i = 0; i < render_builtin_count && src->has_token; i++) {
        bool all = true;
        for (size_t k = 0; k < RENDER_BUILTIN_TOKENS_MAX && all; k++) {
            const char *token = render_builtin_rows[i].tokens[k];
            all = token == NULL || src->has_token(src->ctx, str_of(token));
        }
        if (all)
            return &render_builtin_rows[i];
    }
    return NULL;
}

static bool compile(const struct jinja_template **out, str source, struct arena *a, struct err *e)
{
    struct jinja_template *t;
    if (!jinja_compile(&t, source, a, e))
        return err_wrap(e, "chat template");
    *out = t;
    return true;
}

bool render_new(struct render **out, const struct render_source *src, struct arena *a,
                struct err *e)
{
    const struct render_builtin *row = NULL;
    *out = NULL;
    if (src->template_name.len) {
        row = render_builtin_find(src->template_name);
        if (row == NULL)
            return err_set(e, ERR_NOT_FOUND, "template '%.*s': the built-in ones are chatml, "
                           "llama3 and mistral", STR_ARG(src->template_name));
    } else if (src->chat_template.len == 0) {
        row = builtin_by_tokens(src);
        if (row == NULL)
            return true;
    }
    struct render *r = ARENA_NEW(a, struct render);
    if (r == NULL)
        return err_set(e, ERR_LIMIT, "chat template: out of memory");
    *r = (struct render){.source = row ? str_of(row->source) : src->chat_template,
                         .bos = src->bos, .eos = src->eos};
    r->caps = row && src->template_name.len == 0 ? RENDER_CAP_GUESSED : 0;
    if (!compile(&r->main, r->source, a, e))
        return false;
    r->tool = r->main;
    if (row == NULL && src->tool_template.len && !compile(&r->tool, src->tool_template, a, e))
        return false;
    const str texts[2] = {r->source, row ? STR("") : src->tool_template};
    if (!output_table_choose(&r->format, src->tool_format, texts, src->arch, e))
        return false;
    probe_all(r);
    /* A setting that no request with tools could ever use. */
    if (src->tool_format.len && !render_can_tools(r))
        return err_set(e, ERR_CONFIG, "tool_format: '%.*s' needs a chat template that declares "
                       "tools itself, and the model's does not", STR_ARG(src->tool_format));
    *out = r;
    return true;
}

uint32_t render_caps(const struct render *r) { return r ? r->caps : 0; }

str render_opening(const struct render *r)
{
    return r ? str_view(r->opening, r->opening_len) : (str){"", 0};
}

str render_template(const struct render *r) { return r ? r->source : (str){"", 0}; }

const struct output_format *render_format(const struct render *r)
{
    static const struct output_format none = {NULL, NULL};
    return r ? &r->format : &none;
}

bool render_can_tools(const struct render *r)
{
    return r && r->format.calls && (r->caps & RENDER_CAP_TOOLS || render_tools_can(&r->format));
}

/* ---- Requests ---- */

struct notes {
    struct api_note rows[8];
    uint32_t count;
};

static void note(struct notes *n, const char *code, str text)
{
    must(n->count < countof(n->rows));
    n->rows[n->count++] = (struct api_note){str_of(code), text};
}

/* The nearest level that the template has, the lower one of two equally near. What it does without
 * a level counts as the middle: a template that knows nothing but "max" is not to be asked for it
 * when the request wants little. */
static enum api_effort nearest(uint32_t efforts, enum api_effort wanted)
{
    uint32_t all = efforts | 1u << API_EFFORT_MEDIUM;
    for (int far = 0; far < API_EFFORT_COUNT_; far++)
        for (int sign = -1; sign <= 1; sign += 2) {
            int level = (int)wanted + sign * far;
            if (level > API_EFFORT_NONE && level < API_EFFORT_COUNT_ && all >> level & 1u)
                return efforts >> level & 1u ? (enum api_effort)level : API_EFFORT_DEFAULT;
        }
    return API_EFFORT_DEFAULT;
}

static void set_thinking(struct run *run, struct notes *n)
{
    const struct api_request *rq = run->rq;
    bool off = rq->think == API_THINK_OFF || rq->effort == API_EFFORT_NONE;
    bool asks = rq->think != API_THINK_DEFAULT || rq->effort != API_EFFORT_DEFAULT;
    if (!asks)
        return;
    if (!(run->r->caps & RENDER_CAP_THINK)) {
        if (!off)
            note(n, "thinking_unsupported", STR("the model's template has no thinking"));
        return;
    }
    run->think = jinja_value_bool(!off);
    if (off || rq->effort <= API_EFFORT_NONE || !(run->r->caps & RENDER_CAP_EFFORT))
        return;
    enum api_effort level = nearest(run->r->efforts, rq->effort);
    if (level != rq->effort)
        note(n, "effort_approximated", str_of(api_request_effort_name(level)));
    if (level != API_EFFORT_DEFAULT)
        run->effort = jinja_value_text(&run->heap, str_of(api_request_effort_name(level)), 0);
}

/* The text behind the last byte of the turn that goes on is the template's end of turn: cut. */
static bool cut_for_continuing(struct run *run, struct jinja_str *text)
{
    uint32_t last = run->rq->messages_count - 1, keep = 0;
    for (uint32_t at = 0, end; at < text->len; at = end) {
        uint32_t origin = jinja_text_origin(*text, at, &end);
        const struct render_mark *m = origin ? &run->turns.marks[origin - 1] : NULL;
        if (m && m->origin == RENDER_CONTENT && m->message == last &&
            run->rq->messages[last].parts[m->part].kind == API_PART_TEXT)
            keep = end;
    }
    *text = jinja_text_cut(*text, 0, keep);
    return keep > 0;
}

static bool spans_of(const struct run *run, struct jinja_str text, struct arena *a,
                     struct render_result *out)
{
    uint32_t count = 0;
    for (uint32_t at = 0; at < text.len; count++)
        (void)jinja_text_origin(text, at, &at);
    struct render_span *spans = ARENA_ARRAY(a, struct render_span, count);
    out->text = arena_copy(a, jinja_text_bytes(text));
    if (spans == NULL || out->text.p == NULL)
        return false;
    uint32_t n = 0;
    for (uint32_t at = 0; at < text.len;) {
        uint32_t origin = jinja_text_origin(text, at, &at);
        struct render_span s = {.end = at};
        if (origin) {
            const struct render_mark *m = &run->turns.marks[origin - 1];
            s = (struct render_span){at, m->origin, m->message, m->part};
        }
        spans[n++] = s;
    }
    out->spans = spans;
    out->spans_count = n;
    return true;
}

static bool starts_with_bos(struct jinja_str text, str bos)
{
    uint32_t end = 0;
    return bos.len && text.len >= bos.len && str_starts(jinja_text_bytes(text), bos) &&
           jinja_text_origin(text, 0, &end) == 0 && end >= bos.len;
}

static bool finish(struct run *run, const struct notes *n, struct arena *a,
                   struct render_result *out)
{
    struct jinja_str text = run->out.text;
    str bos = run->r->bos;
    /* A template may write BOS twice, itself and from a variable: one is kept. */
    while (starts_with_bos(text, bos) &&
           starts_with_bos(jinja_text_cut(text, bos.len, text.len), bos))
        text = jinja_text_cut(text, bos.len, text.len);
    out->has_bos = starts_with_bos(text, bos);
    struct api_note *notes = ARENA_ARRAY(a, struct api_note, n->count);
    if (notes)
        memcpy(notes, n->rows, n->count * sizeof *notes);
    out->notes = notes;
    out->notes_count = n->count;
    return spans_of(run, text, a, out) && notes;
}

static bool refuse(struct api_error *e, const struct err *why)
{
    /* What is no fault of the template begins with the field. */
    static const struct {
        const char *begin, *param;
    } fields[] = {{"chat_template_kwargs", "chat_template_kwargs"}, {"tools[", "tools"},
                  {"messages[", "messages"}};
    char text[ERR_TEXT_MAX];
    snprintf(text, sizeof text, "%s", why->text);
    for (size_t i = 0; i < countof(fields); i++)
        if (str_starts(str_of(text), str_of(fields[i].begin)))
            return api_error_set(e, ERR_REQUEST, "", str_of(fields[i].param), "%s", text);
    return api_error_set(e, ERR_REQUEST, "template_error", STR("messages"), "%s", text);
}

/* A template that raises gets a second try with merged roles, if merging changes anything. */
static bool run_twice(struct run *run, struct notes *n, struct err *e)
{
    bool folds = !(run->r->caps & RENDER_CAP_SYSTEM);
    run->turns.h = &run->heap;
    if (!render_turn_read(&run->turns, e))
        return false;
    if (api_request_has_tools(run->rq) && !(run->r->caps & RENDER_CAP_TOOLS) &&
        !render_tools_write(&run->turns, &run->r->format, run->r->caps & RENDER_CAP_CALLS, e))
        return false;
    bool has_system = run->turns.turns_count && run->turns.turns[0].role <= API_ROLE_DEVELOPER;
    bool merged = folds && has_system && render_turn_merge(&run->turns);
    bool ok = run_template(run, e);
    if (!ok && run->out.is_raised && !merged && run->heap.stop == JINJA_STOP_NONE &&
        render_turn_merge(&run->turns)) {
        merged = true;
        ok = run_template(run, e);
    }
    if (merged)
        note(n, "roles_merged", STR("turns were merged as the model's template wants them"));
    return ok;
}

static bool render_into(struct run *run, struct arena *a, struct render_result *out,
                        struct api_error *e)
{
    const struct api_request *rq = run->rq;
    struct notes n = {.count = 0};
    struct err why = {0};
    bool goes_on = rq->continue_last && rq->messages_count > 0;
    run->with_prompt = !goes_on;
    if (run->r->caps & RENDER_CAP_GUESSED)
        note(&n, "template_guess", STR("the model has no template; a built-in one is used"));
    set_thinking(run, &n);
    if (!run_twice(run, &n, &why))
        return refuse(e, &why);
    if (goes_on && !cut_for_continuing(run, &run->out.text))
        return api_error_set(e, ERR_REQUEST, "", STR("messages"), "messages: the last turn has no "
                             "text that the model's template would show to go on from");
    if (run->turns.has_images)
        note(&n, "image_omitted", STR("an image became a note in the text"));
    for (uint32_t i = 0; i < rq->tools_count; i++)
        if (rq->tools[i].kind == API_TOOL_HOSTED) {
            note(&n, "tool_skipped", STR("hosted tools run at an upstream only"));
            break;
        }
    return finish(run, &n, a, out) ||
           api_error_set(e, ERR_LIMIT, "", STR("messages"), "messages: the rendered prompt does "
                         "not fit the request's memory of %zu MiB", a->bytes_max >> 20);
}

bool render_request(const struct render *r, const struct api_request *rq, struct arena *a,
                    struct render_result *out, struct api_error *e)
{
    struct arena scratch;
    struct run run;
    *out = (struct render_result){0};
    if (r == NULL)
        return api_error_set(e, ERR_REQUEST, "no_template", STR("messages"), "messages: this model "
                             "has no chat template; raw completion works");
    if (api_request_has_tools(rq) && !(r->caps & RENDER_CAP_TOOLS) &&
        !render_tools_can(&r->format))
        return api_error_set(e, ERR_REQUEST, "tools_unsupported", STR("tools"), "tools: this "
                             "model's template has no form for tools, nor is its form of "
                             "calls known (tool_format)");
    arena_init(&scratch, RENDER_SCRATCH_MAX);
    run_init(&run, r, rq, &scratch);
    bool ok = render_into(&run, a, out, e);
    arena_deinit(&scratch);
    return ok;
}
