#include "engine/prompt_replay.h"

#include <string.h>

/* ---- Finding. A turn is what lies between the last foreign byte before it and the first one after
 * it; in the template's own text there its opening and its end are looked for. ---- */

struct turn {
    size_t before, first, last, after; /* of its own bytes: first .. last */
    bool is_seen, is_torn;             /* something foreign lies inside */
    bool has_reasoning;
};

static bool is_of(const struct render_span *s, uint32_t message)
{
    return s->message == message && (s->origin == RENDER_CONTENT || s->origin == RENDER_NAME);
}

static struct turn find_turn(const struct api_request *rq, const struct render_result *r,
                             uint32_t message)
{
    const struct api_message *m = &rq->messages[message];
    struct turn t = {.after = r->text.len};
    size_t from = 0;
    for (uint32_t i = 0; i < r->spans_count; from = r->spans[i++].end) {
        const struct render_span *s = &r->spans[i];
        if (s->origin == RENDER_TEMPLATE || s->end == from)
            continue;
        if (is_of(s, message)) {
            t.is_torn = t.is_torn || t.after != r->text.len;
            t.first = t.is_seen ? t.first : from;
            t.last = s->end;
            t.is_seen = true;
            t.has_reasoning = t.has_reasoning ||
                              (s->origin == RENDER_CONTENT && s->part < m->parts_count &&
                               m->parts[s->part].kind == API_PART_REASONING);
        } else if (!t.is_seen) {
            t.before = s->end;
        } else if (t.after == r->text.len) {
            t.after = from;
        }
    }
    return t;
}

/* The end of opening's last place in text[from, to), or STR_NONE. */
static size_t find_opening(str text, size_t from, size_t to, str opening)
{
    for (size_t at = to; opening.len && at >= from + opening.len; at--)
        if (memcmp(text.p + at - opening.len, opening.p, opening.len) == 0)
            return at;
    return STR_NONE;
}

/* Where text[from, to) has the first token that ends a reply. */
static size_t find_end(const struct vocab *v, str text, size_t from, size_t to, int32_t *id)
{
    str part = str_sub(text, from, to - from);
    size_t best = STR_NONE;
    uint32_t count;
    const int32_t *ends = vocab_eog(v, &count);
    for (uint32_t i = 0; i < count; i++) {
        str bytes = vocab_bytes(v, ends[i]);
        size_t at = bytes.len ? str_find(part, bytes) : STR_NONE;
        if (at < best) {
            best = at;
            *id = ends[i];
        }
    }
    return best == STR_NONE ? STR_NONE : from + best;
}

static bool has_reasoning(const struct api_message *m)
{
    for (uint32_t i = 0; i < m->parts_count; i++)
        if (m->parts[i].kind == API_PART_REASONING && m->parts[i].text.len)
            return true;
    return false;
}

static bool are_ids(const struct vocab *v, const struct api_message *m)
{
    for (uint32_t i = 0; i < m->ids_count; i++)
        if (!vocab_has(v, m->ids[i]))
            return false;
    return m->ids_count > 0;
}

static bool find_region(const struct prompt_model *m, const struct api_request *rq,
                        const struct render_result *r, uint32_t message, struct prompt_region *out)
{
    const struct api_message *msg = &rq->messages[message];
    struct turn t = find_turn(rq, r, message);
    int32_t end = VOCAB_NONE;
    if (!are_ids(m->vocab, msg) || !t.is_seen || t.is_torn ||
        has_reasoning(msg) != t.has_reasoning)
        return false;
    *out = (struct prompt_region){
        .from = find_opening(r->text, t.before, t.first, render_opening(m->render)),
        .to = find_end(m->vocab, r->text, t.last, t.after, &end),
        .ids = msg->ids, .ids_count = msg->ids_count};
    if (out->from == STR_NONE || out->to == STR_NONE)
        return false;
    /* What the model ended with and what the template writes there may differ: the template's
     * counts, as in any other history. */
    if (msg->ids[msg->ids_count - 1] == end)
        out->to += vocab_bytes(m->vocab, end).len;
    else if (vocab_is_eog(m->vocab, msg->ids[msg->ids_count - 1]))
        out->ids_count--;
    return true;
}

void prompt_replay_find(const struct prompt_model *m, const struct api_request *rq,
                        const struct render_result *r, struct prompt_regions *out)
{
    struct prompt_region *rows = out->rows;
    uint32_t n = 0, last = rq->messages_count - (rq->continue_last ? 1 : 0);
    bool is_ours = rq->ids_hash && rq->ids_hash == m->model_hash;
    for (uint32_t i = 0; is_ours && i < last; i++)
        if (rq->messages[i].ids_count && find_region(m, rq, r, i, &rows[n]) &&
            (n == 0 || rows[n].from >= rows[n - 1].to))
            n++;
    out->count = n;
}

size_t prompt_replay_open_at(const struct prompt_model *m, const struct api_request *rq,
                             const struct render_result *r)
{
    if (!rq->continue_last || rq->messages_count == 0)
        return STR_NONE;
    struct turn t = find_turn(rq, r, rq->messages_count - 1);
    if (!t.is_seen)
        return STR_NONE;
    return t.has_reasoning ? find_opening(r->text, t.before, t.first, render_opening(m->render))
                           : t.first;
}

/* ---- Encoding ---- */

/* The piece text[from, to) with its share of the trusted spans, which go to spans. */
static struct tok_text piece_of(const struct tok_text *text, size_t from, size_t to,
                                struct tok_span *spans)
{
    struct tok_text out = {.text = str_sub(text->text, from, to - from), .trusted = spans,
                           .add_special = text->add_special && from == 0};
    for (size_t i = 0; i < text->trusted_count; i++) {
        size_t a = base_max(text->trusted[i].from, from), b = base_min(text->trusted[i].to, to);
        if (a < b)
            spans[out.trusted_count++] = (struct tok_span){a - from, b - from};
    }
    return out;
}

bool prompt_replay_encode(const struct prompt_model *m, const struct tok_text *text,
                          const struct prompt_regions *regions, struct arena *a,
                          struct tok_ids *ids, struct err *e)
{
    const struct prompt_region *rows = regions->rows;
    uint32_t count = regions->count;
    size_t from = 0;
    if (count == 0)
        return tok_encode(m->tok, text, ids, e);
    struct tok_span *spans = ARENA_ARRAY(a, struct tok_span, text->trusted_count);
    if (!spans)
        return err_set(e, ERR_LIMIT, "request: out of its memory");
    for (uint32_t i = 0; i <= count; i++) {
        struct tok_text piece = piece_of(text, from, i < count ? rows[i].from : text->text.len,
                                         spans);
        if (piece.text.len && !tok_encode(m->tok, &piece, ids, e))
            return false;
        if (piece.add_special && vocab_add_eos(m->vocab)) /* the first piece is no whole text */
            ids->bytes.len -= sizeof(int32_t);
        if (i < count && !buf_add_bytes(&ids->bytes, rows[i].ids,
                                        rows[i].ids_count * sizeof *rows[i].ids))
            return err_set(e, ERR_LIMIT, "messages: more than %zu tokens",
                           ids->bytes.size_max / sizeof(int32_t));
        from = i < count ? rows[i].to : from;
    }
    return true;
}
