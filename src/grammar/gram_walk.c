#include "grammar/gram_walk.h"

#include <string.h>

/* --- frames -------------------------------------------------------------------------------- */

static uint32_t walk_depth(const struct gram_walk *w, uint32_t parent)
{
    return parent == GRAM_NONE ? 0 : w->frames[parent].depth;
}

/* Whether a value of that height fits below so many frames. */
static bool walk_fits(uint32_t depth, uint32_t height)
{
    return height != GRAM_NONE && depth + 1 + height <= GRAM_DEPTH_MAX;
}

static uint32_t walk_push(struct gram_walk *w, uint32_t node, uint32_t count, uint32_t parent,
                          uint32_t keys)
{
    uint32_t depth = walk_depth(w, parent) + 1;
    if (depth > GRAM_DEPTH_MAX)
        return GRAM_NONE;
    if (w->frames_count == w->frames_max) {
        w->is_unsure = true;
        return GRAM_NONE;
    }
    w->frames[w->frames_count] = (struct gram_frame){node, count, parent, depth, keys};
    return w->frames_count++;
}

/* Where inside MEMBERS and ITEMS a thread is. */
enum walk_place { WALK_BEFORE, WALK_FIRST, WALK_AFTER, WALK_COMMA, WALK_SPACE, WALK_NAME,
                  WALK_COLON, WALK_VALUE, WALK_BLANK };

void gram_walk_enter(const struct gram_walk *w, uint32_t node, uint32_t parent,
                     struct gram_thread *out)
{
    uint32_t pos = 0, count = 0, keys = GRAM_NONE;
    for (;;) {
        const struct gram_node *n = gram_node(w->g, node);
        if (n->kind == GRAM_KIND_JUMP) {
            node = n->next;
            continue;
        }
        if (n->kind != GRAM_KIND_RET)
            break;
        must(parent != GRAM_NONE);
        const struct gram_frame *f = &w->frames[parent];
        n = gram_node(w->g, f->node);
        parent = f->parent;
        if (n->kind == GRAM_KIND_CALL) {
            node = n->next;
            continue;
        }
        node = f->node;
        pos = WALK_AFTER;
        count = f->count;
        keys = f->keys;
        break;
    }
    *out = (struct gram_thread){.node = node, .pos = pos, .count = count, .dfa = GRAM_NONE,
                                .parent = parent, .keys = keys};
}

static void walk_put(struct gram_threads *out, const struct gram_thread *t)
{
    for (uint32_t i = 0; i < out->count; i++) {
        const struct gram_thread *o = &out->items[i];
        if (o->node == t->node && o->pos == t->pos && o->count == t->count && o->dfa == t->dfa &&
            o->parent == t->parent && o->keys == t->keys)
            return;
    }
    if (out->count < out->max)
        out->items[out->count++] = *t;
}

/* The node is done. */
static void walk_done(struct gram_walk *w, const struct gram_node *n, const struct gram_thread *t,
                      struct gram_threads *out)
{
    struct gram_thread to;
    gram_walk_enter(w, n->next, t->parent, &to);
    walk_put(out, &to);
}

static void walk_at(struct gram_threads *out, const struct gram_thread *t, uint32_t pos)
{
    struct gram_thread to = *t;
    to.pos = pos;
    walk_put(out, &to);
}

static void walk_into(struct gram_walk *w, uint32_t node, uint32_t parent, uint8_t byte,
                      struct gram_threads *out)
{
    struct gram_thread t;
    gram_walk_enter(w, node, parent, &t);
    uint32_t height = gram_node(w->g, t.node)->height;
    if (t.pos != 0 || (height != GRAM_NONE && walk_depth(w, t.parent) + height <= GRAM_DEPTH_MAX))
        gram_walk_step(w, &t, byte, out); /* else it could not be completed */
}

/* --- patterns, choices --------------------------------------------------------------------- */

static struct gram_dfa_table *walk_table(const struct gram_walk *w, const struct gram_node *n)
{
    return w->tables[n->dfa];
}

static void walk_pattern(struct gram_walk *w, const struct gram_node *n,
                         const struct gram_thread *t, uint8_t byte, struct gram_threads *out)
{
    struct gram_dfa_table *table = walk_table(w, n);
    uint32_t state = t->pos ? t->dfa : gram_dfa_start(table);
    if (state == GRAM_DFA_FULL) {
        w->is_unsure = true;
        return;
    }
    if (t->pos && gram_dfa_accepts(table, state))
        walk_into(w, n->next, t->parent, byte, out);
    if (w->is_control)
        return; /* no value is spelled by one */
    uint32_t to = gram_dfa_next(table, state, byte);
    w->is_unsure = w->is_unsure || to == GRAM_DFA_FULL;
    if (to == GRAM_DFA_DEAD || to == GRAM_DFA_FULL)
        return;
    struct gram_thread next = *t;
    next.pos = 1;
    next.dfa = to;
    if (gram_dfa_is_last(table, to))
        walk_done(w, n, t, out);
    else
        walk_put(out, &next);
}

/* Where a choice goes on behind the text that ends at leaf. */
static uint32_t walk_chosen(const struct gram_walk *w, const struct gram_node *n, uint32_t leaf)
{
    return n->count ? *gram_list(w->g, n->first + gram_leaf(w->g, leaf)->id) : n->next;
}

static void walk_choice(struct gram_walk *w, const struct gram_node *n,
                        const struct gram_thread *t, uint8_t byte, struct gram_threads *out)
{
    uint32_t leaf = t->pos ? t->dfa : n->trie;
    if (t->pos && gram_leaf(w->g, leaf)->id != GRAM_NONE)
        walk_into(w, walk_chosen(w, n, leaf), t->parent, byte, out);
    bool is_value = w->is_control && !n->is_marker;
    uint32_t to = is_value ? GRAM_NONE : gram_trie_step(w->g, leaf, byte);
    if (to == GRAM_NONE) {
        bool is_blank = byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
        if (n->can_end && n->min && t->pos == 0 && is_blank)
            walk_put(out, t);
        else if (n->can_end)
            walk_into(w, n->rule, t->parent, byte, out);
        return;
    }
    struct gram_thread next = *t;
    next.pos = 1;
    next.dfa = to;
    if (gram_leaf(w->g, to)->id != GRAM_NONE && gram_leaf(w->g, to)->child == GRAM_NONE)
        gram_walk_enter(w, walk_chosen(w, n, to), t->parent, &next);
    walk_put(out, &next);
}

/* --- free text ----------------------------------------------------------------------------- */

/* Markers start at any byte, so that many readings of one segment would run at once; instead the
 * thread keeps the longest begun marker and finds the next shorter one when it breaks. */
static uint32_t walk_marker(const struct gram *g, const struct gram_node *n, uint32_t leaf,
                            uint8_t byte)
{
    for (;;) {
        uint32_t to = gram_trie_step(g, leaf, byte);
        if (to != GRAM_NONE || leaf == n->trie)
            return to == GRAM_NONE ? n->trie : to;
        uint8_t path[256];
        uint32_t len = 0, at;
        for (at = leaf; at != n->trie && len < sizeof path; at = gram_leaf(g, at)->parent)
            path[len++] = gram_leaf(g, at)->byte; /* last byte first */
        for (leaf = n->trie; len-- > 1;) { /* the longest proper end that begins a marker */
            at = n->trie;
            for (uint32_t i = len; i-- > 0 && at != GRAM_NONE;)
                at = gram_trie_step(g, at, path[i]);
            if (at != GRAM_NONE) {
                leaf = at;
                break;
            }
        }
    }
}

static void walk_open(struct gram_walk *w, const struct gram_node *n, const struct gram_thread *t,
                      uint8_t byte, struct gram_threads *out)
{
    struct gram_thread next = *t;
    uint32_t leaf = walk_marker(w->g, n, t->pos ? t->dfa : n->trie, byte);
    uint32_t id = gram_leaf(w->g, leaf)->id;
    next.pos = leaf != n->trie;
    next.dfa = leaf == n->trie ? GRAM_NONE : leaf;
    if (id == GRAM_NONE) {
        walk_put(out, &next);
        return;
    }
    gram_walk_enter(w, *gram_list(w->g, n->first + id), t->parent, &next);
    if (gram_node(w->g, next.node)->height != GRAM_NONE)
        walk_put(out, &next);
}

/* --- strings ------------------------------------------------------------------------------- */

/* pos: mode in bits 0-3, hexadecimal digits read in 4-5, high surrogate in 6-15, value in 16-31. */
static uint32_t walk_pos(enum gram_text mode, uint32_t digits, uint32_t high, uint32_t value)
{
    return (uint32_t)mode | digits << 4 | high << 6 | value << 16;
}

/* What stands for itself behind a backslash, and what it means. */
static int walk_escape(uint8_t byte)
{
    switch (byte) {
    case '"': case '\\': case '/': return byte;
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return -1;
    }
}

/* One byte of the text as it means, through the pattern or the trie of exceptions. False: not
 * allowed here. */
static bool walk_feed(struct gram_walk *w, const struct gram_node *n, struct gram_thread *t,
                      uint8_t byte)
{
    if (n->is_name)
        t->keys = (t->keys ^ byte) * 16777619u; /* FNV-1a: isthe.com/chongo/tech/comp/fnv */
    if (n->trie != GRAM_NONE && t->dfa != GRAM_NONE)
        t->dfa = gram_trie_step(w->g, t->dfa, byte);
    if (n->dfa == GRAM_NONE)
        return true;
    uint32_t to = gram_dfa_next(walk_table(w, n), t->dfa, byte);
    w->is_unsure = w->is_unsure || to == GRAM_DFA_FULL;
    if (to == GRAM_DFA_DEAD || to == GRAM_DFA_FULL)
        return false;
    t->dfa = to;
    return w->is_lenient || gram_dfa_fits(walk_table(w, n), to, t->count);
}

static bool walk_feed_code(struct gram_walk *w, const struct gram_node *n, struct gram_thread *t,
                           uint32_t code)
{
    char utf8[4];
    size_t len = str_utf8_encode(utf8, code);
    for (size_t i = 0; i < len; i++)
        if (!walk_feed(w, n, t, (uint8_t)utf8[i]))
            return false;
    return true;
}

/* A character begins. Without a greatest length the counter stops where it no longer matters. */
static bool walk_count(const struct gram_walk *w, const struct gram_node *n,
                       struct gram_thread *t)
{
    if (n->max != GRAM_ENDLESS && t->count >= n->max && !w->is_lenient)
        return false;
    if (n->max != GRAM_ENDLESS || t->count < n->min)
        t->count++;
    return true;
}

/* Whether one of the characters low .. high may come here, its count already taken. */
static bool walk_some(struct gram_walk *w, const struct gram_node *n, const struct gram_thread *t,
                      uint8_t low, uint8_t high)
{
    for (uint32_t b = low; b <= high; b++) {
        struct gram_thread try = *t;
        if (walk_feed(w, n, &try, (uint8_t)b))
            return true;
    }
    return false;
}

/* With a pattern an escape is begun only where one can be finished: the short forms, and control
 * characters by number. */
static bool walk_some_escape(struct gram_walk *w, const struct gram_node *n,
                             const struct gram_thread *t)
{
    return n->dfa == GRAM_NONE || walk_some(w, n, t, 0, 31) || walk_some(w, n, t, '"', '"') ||
           walk_some(w, n, t, '\\', '\\') || walk_some(w, n, t, '/', '/');
}

static int walk_digit(uint8_t byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    byte |= 32;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* A digit of \uXXXX. A low surrogate comes only behind a high one and must come there. */
static bool walk_hex(struct gram_walk *w, const struct gram_node *n, struct gram_thread *t,
                     uint8_t byte)
{
    bool is_low = GRAM_TEXT_MODE(t->pos) == GRAM_TEXT_LOW_HEX;
    uint32_t digits = t->pos >> 4 & 3, high = t->pos >> 6 & 0x3ff, value = t->pos >> 16;
    int digit = walk_digit(byte);
    if (digit < 0)
        return false;
    value = value << 4 | (uint32_t)digit;
    if (digits == 1 && (value >= 0xdc && value < 0xe0) != is_low)
        return false;
    if (digits == 0 && is_low && value != 0xd)
        return false;
    if (n->dfa != GRAM_NONE &&
        ((digits < 2 && value) || (digits == 2 && (value > 1 ||
         !walk_some(w, n, t, (uint8_t)(value * 16), (uint8_t)(value * 16 + 15))))))
        return false;
    if (digits < 3) {
        t->pos = walk_pos((enum gram_text)GRAM_TEXT_MODE(t->pos), digits + 1, high, value);
        return true;
    }
    t->pos = GRAM_TEXT_PLAIN;
    if (is_low)
        return walk_feed_code(w, n, t, 0x10000 + (high << 10) + (value - 0xdc00));
    if (value >= 0xd800 && value < 0xdc00) {
        t->pos = walk_pos(GRAM_TEXT_LOW_ESCAPE, 0, value - 0xd800, 0);
        return true;
    }
    return walk_feed_code(w, n, t, value);
}

static bool walk_escaped(struct gram_walk *w, const struct gram_node *n, struct gram_thread *t,
                         uint8_t byte)
{
    switch ((enum gram_text)GRAM_TEXT_MODE(t->pos)) {
    case GRAM_TEXT_ESCAPE:
        if (byte == 'u') {
            t->pos = walk_pos(GRAM_TEXT_HEX, 0, 0, 0);
            return n->dfa == GRAM_NONE || walk_some(w, n, t, 0, 31);
        }
        t->pos = GRAM_TEXT_PLAIN;
        return walk_escape(byte) >= 0 && walk_feed(w, n, t, (uint8_t)walk_escape(byte));
    case GRAM_TEXT_LOW_ESCAPE:
        t->pos = walk_pos(GRAM_TEXT_LOW_U, 0, t->pos >> 6 & 0x3ff, 0);
        return byte == '\\';
    case GRAM_TEXT_LOW_U:
        t->pos = walk_pos(GRAM_TEXT_LOW_HEX, 0, t->pos >> 6 & 0x3ff, 0);
        return byte == 'u';
    case GRAM_TEXT_HEX:
    case GRAM_TEXT_LOW_HEX:
        return walk_hex(w, n, t, byte);
    case GRAM_TEXT_BEFORE: case GRAM_TEXT_PLAIN: case GRAM_TEXT_CONT1: case GRAM_TEXT_CONT2:
    case GRAM_TEXT_CONT3: case GRAM_TEXT_E0: case GRAM_TEXT_ED: case GRAM_TEXT_F0:
    case GRAM_TEXT_F4:
        break;
    }
    return false;
}

/* The bytes that may follow inside a character (Unicode 15, table 3-7), and the mode behind. */
static bool walk_inner(struct gram_thread *t, uint8_t byte)
{
    static const struct { uint8_t low, high, next; } inner[] = {
        [GRAM_TEXT_CONT1] = {0x80, 0xbf, GRAM_TEXT_PLAIN},
        [GRAM_TEXT_CONT2] = {0x80, 0xbf, GRAM_TEXT_CONT1},
        [GRAM_TEXT_CONT3] = {0x80, 0xbf, GRAM_TEXT_CONT2},
        [GRAM_TEXT_E0] = {0xa0, 0xbf, GRAM_TEXT_CONT1},
        [GRAM_TEXT_ED] = {0x80, 0x9f, GRAM_TEXT_CONT1},
        [GRAM_TEXT_F0] = {0x90, 0xbf, GRAM_TEXT_CONT2},
        [GRAM_TEXT_F4] = {0x80, 0x8f, GRAM_TEXT_CONT2},
    };
    uint32_t mode = GRAM_TEXT_MODE(t->pos);
    t->pos = inner[mode].next;
    return inner[mode].low <= byte && byte <= inner[mode].high;
}

static bool walk_lead(struct gram_thread *t, uint8_t byte)
{
    if (byte < 0x80)
        t->pos = GRAM_TEXT_PLAIN;
    else if (byte < 0xc2 || byte > 0xf4)
        return false;
    else if (byte < 0xe0)
        t->pos = GRAM_TEXT_CONT1;
    else if (byte < 0xf0)
        t->pos = byte == 0xe0 ? GRAM_TEXT_E0 : byte == 0xed ? GRAM_TEXT_ED : GRAM_TEXT_CONT2;
    else
        t->pos = byte == 0xf0 ? GRAM_TEXT_F0 : byte == 0xf4 ? GRAM_TEXT_F4 : GRAM_TEXT_CONT3;
    return true;
}

static bool walk_may_close(const struct gram_walk *w, const struct gram_node *n,
                           const struct gram_thread *t)
{
    if (t->count < n->min)
        return false;
    if (n->dfa != GRAM_NONE)
        return gram_dfa_accepts(walk_table(w, n), t->dfa);
    return n->trie == GRAM_NONE || t->dfa == GRAM_NONE ||
           gram_leaf(w->g, t->dfa)->id == GRAM_NONE;
}

/* A name ends: its object has it from now on. Two names of one hash are taken for one, so that the
 * second has to go on; that costs a reply nothing. False: it is there already. */
static bool walk_name_ends(struct gram_walk *w, const struct gram_thread *t, uint32_t *parent)
{
    const struct gram_frame f = w->frames[t->parent];
    for (uint32_t i = f.keys; i != GRAM_NONE; i = w->keys[i].before)
        if (w->keys[i].hash == t->keys)
            return false;
    if (w->keys_count == w->keys_max) {
        w->is_unsure = true;
        return false;
    }
    w->keys[w->keys_count] = (struct gram_key){t->keys, f.keys};
    *parent = walk_push(w, f.node, f.count, f.parent, w->keys_count++);
    return *parent != GRAM_NONE;
}

static bool walk_before(struct gram_walk *w, const struct gram_node *n, struct gram_thread *t,
                        uint8_t byte)
{
    t->pos = GRAM_TEXT_PLAIN;
    t->dfa = n->trie;
    t->keys = n->is_name ? 2166136261u : GRAM_NONE;
    if (n->dfa != GRAM_NONE) {
        t->dfa = gram_dfa_start(walk_table(w, n));
        w->is_unsure = w->is_unsure || t->dfa == GRAM_DFA_FULL;
        if (t->dfa == GRAM_DFA_FULL)
            return false;
    }
    return byte == '"';
}

static void walk_text(struct gram_walk *w, const struct gram_node *n, const struct gram_thread *t,
                      uint8_t byte, struct gram_threads *out)
{
    struct gram_thread to = *t;
    bool ok;
    uint32_t mode = GRAM_TEXT_MODE(t->pos);
    if (mode == GRAM_TEXT_BEFORE) {
        ok = walk_before(w, n, &to, byte);
    } else if (mode == GRAM_TEXT_PLAIN && byte == '"') {
        if (walk_may_close(w, n, t) &&
            (!n->is_name || !w->keys || walk_name_ends(w, t, &to.parent)))
            walk_done(w, n, &to, out);
        return;
    } else if (mode == GRAM_TEXT_PLAIN && byte == '\\') {
        to.pos = GRAM_TEXT_ESCAPE;
        ok = walk_count(w, n, &to) && walk_some_escape(w, n, &to);
    } else if (mode == GRAM_TEXT_PLAIN) {
        ok = byte >= 0x20 && walk_lead(&to, byte) && walk_count(w, n, &to) &&
             walk_feed(w, n, &to, byte);
    } else if (mode <= GRAM_TEXT_F4) {
        ok = walk_inner(&to, byte) && walk_feed(w, n, &to, byte);
    } else {
        ok = walk_escaped(w, n, &to, byte);
    }
    if (ok)
        walk_put(out, &to);
}

/* --- objects ------------------------------------------------------------------------------- */

/* The last property that may be named next: the first required one from i on, or any. */
static uint32_t walk_last(const struct gram_walk *w, const struct gram_node *n, uint32_t i)
{
    return i < n->count ? gram_member(w->g, n->first + i)->required : n->count;
}

static bool walk_member_fits(const struct gram_walk *w, const struct gram_node *n, uint32_t i,
                             uint32_t depth)
{
    return walk_fits(depth, gram_node(w->g, gram_member(w->g, n->first + i)->rule)->height);
}

/* Whether a name below leaf is one of the properties from .. last with a value that fits. Most
 * questions end at the bounds of the leaf. */
static bool walk_has_name(const struct gram_walk *w, const struct gram_node *n, uint32_t leaf,
                          uint32_t from, uint32_t depth)
{
    uint32_t last = walk_last(w, n, from), at = leaf;
    bool all_fit = walk_fits(depth, n->tallest);
    for (;;) {
        const struct gram_leaf *l = gram_leaf(w->g, at);
        bool is_out = l->low == GRAM_NONE || l->high < from || l->low > last;
        if (!is_out && all_fit && (l->low >= from || l->high <= last))
            return true;
        if (!is_out && l->id != GRAM_NONE && l->id >= from && l->id <= last &&
            walk_member_fits(w, n, l->id, depth))
            return true;
        if (!is_out && l->child != GRAM_NONE) {
            at = l->child;
            continue;
        }
        while (at != leaf && gram_leaf(w->g, at)->next == GRAM_NONE)
            at = gram_leaf(w->g, at)->parent;
        if (at == leaf)
            return false;
        at = gram_leaf(w->g, at)->next;
    }
}

static bool walk_may_add(const struct gram_walk *w, const struct gram_node *n, uint32_t from,
                         uint32_t depth)
{
    return n->rule != GRAM_NONE && walk_last(w, n, from) == n->count &&
           w->keys_count < GRAM_KEYS_OPEN &&
           walk_fits(depth, gram_node(w->g, n->rule)->height);
}

static bool walk_has_member(const struct gram_walk *w, const struct gram_node *n, uint32_t from,
                            uint32_t depth)
{
    return (from < n->count && walk_has_name(w, n, n->trie, from, depth)) ||
           walk_may_add(w, n, from, depth);
}

static void walk_name(struct gram_walk *w, const struct gram_node *n, const struct gram_thread *t,
                      struct gram_threads *out)
{
    uint32_t depth = walk_depth(w, t->parent);
    if (t->count < n->count && walk_has_name(w, n, n->trie, t->count, depth)) {
        struct gram_thread to = *t;
        to.pos = WALK_NAME;
        to.dfa = n->trie;
        walk_put(out, &to);
    }
    if (walk_may_add(w, n, t->count, depth)) {
        uint32_t frame = walk_push(w, t->node, n->count, t->parent, t->keys);
        if (frame != GRAM_NONE)
            walk_into(w, n->rule, frame, '"', out);
    }
}

static void walk_name_byte(struct gram_walk *w, const struct gram_node *n,
                           const struct gram_thread *t, uint8_t byte, struct gram_threads *out)
{
    uint32_t leaf = gram_trie_step(w->g, t->dfa, byte);
    if (leaf == GRAM_NONE || !walk_has_name(w, n, leaf, t->count, walk_depth(w, t->parent)))
        return;
    struct gram_thread to = *t;
    to.dfa = leaf;
    if (gram_leaf(w->g, leaf)->id != GRAM_NONE) { /* the closing quote */
        to.pos = WALK_COLON;
        to.count = gram_leaf(w->g, leaf)->id;
        to.dfa = GRAM_NONE;
    }
    walk_put(out, &to);
}

static void walk_member_value(struct gram_walk *w, const struct gram_node *n,
                              const struct gram_thread *t, uint8_t byte, struct gram_threads *out)
{
    if (byte == ' ' && t->pos == WALK_VALUE) {
        walk_at(out, t, WALK_BLANK);
        return;
    }
    uint32_t frame = walk_push(w, t->node, t->count + 1, t->parent, GRAM_NONE);
    if (frame != GRAM_NONE)
        walk_into(w, gram_member(w->g, n->first + t->count)->rule, frame, byte, out);
}

static void walk_members(struct gram_walk *w, const struct gram_node *n,
                         const struct gram_thread *t, uint8_t byte, struct gram_threads *out)
{
    uint32_t depth = walk_depth(w, t->parent);
    switch ((enum walk_place)t->pos) {
    case WALK_BEFORE:
        if (byte == '{')
            walk_at(out, t, WALK_FIRST);
        return;
    case WALK_FIRST:
    case WALK_AFTER:
        if (byte == '}' && walk_last(w, n, t->count) == n->count)
            walk_done(w, n, t, out);
        else if (byte == '"' && t->pos == WALK_FIRST)
            walk_name(w, n, t, out);
        else if (byte == ',' && t->pos == WALK_AFTER && walk_has_member(w, n, t->count, depth))
            walk_at(out, t, WALK_COMMA);
        return;
    case WALK_COMMA:
    case WALK_SPACE:
        if (byte == '"')
            walk_name(w, n, t, out);
        else if (byte == ' ' && t->pos == WALK_COMMA)
            walk_at(out, t, WALK_SPACE);
        return;
    case WALK_NAME:
        walk_name_byte(w, n, t, byte, out);
        return;
    case WALK_COLON:
        if (byte == ':')
            walk_at(out, t, WALK_VALUE);
        return;
    case WALK_VALUE:
    case WALK_BLANK:
        walk_member_value(w, n, t, byte, out);
        return;
    }
}

/* --- arrays -------------------------------------------------------------------------------- */

/* The rule of the next item, if there may be one; else GRAM_NONE. */
static uint32_t walk_item(const struct gram_walk *w, const struct gram_node *n,
                          const struct gram_thread *t)
{
    if (n->max != GRAM_ENDLESS && t->count >= n->max)
        return GRAM_NONE;
    uint32_t rule = t->count < n->count ? *gram_list(w->g, n->first + t->count) : n->rule;
    if (rule == GRAM_NONE || !walk_fits(walk_depth(w, t->parent), gram_node(w->g, rule)->height))
        return GRAM_NONE;
    return rule;
}

static void walk_items(struct gram_walk *w, const struct gram_node *n, const struct gram_thread *t,
                       uint8_t byte, struct gram_threads *out)
{
    if (t->pos == WALK_BEFORE) {
        if (byte == '[')
            walk_at(out, t, WALK_FIRST);
        return;
    }
    if ((t->pos == WALK_FIRST || t->pos == WALK_AFTER) && byte == ']') {
        if (t->count >= n->min)
            walk_done(w, n, t, out);
        return;
    }
    uint32_t rule = walk_item(w, n, t);
    if (rule == GRAM_NONE)
        return;
    if (t->pos == WALK_AFTER) {
        if (byte == ',')
            walk_at(out, t, WALK_COMMA);
        return;
    }
    if (t->pos == WALK_COMMA && byte == ' ') {
        walk_at(out, t, WALK_SPACE);
        return;
    }
    /* Without a greatest number the counter stops where it no longer matters. */
    uint32_t enough = n->min > n->count ? n->min : n->count;
    uint32_t count = n->max == GRAM_ENDLESS && t->count >= enough ? t->count : t->count + 1;
    uint32_t frame = walk_push(w, t->node, count, t->parent, GRAM_NONE);
    if (frame != GRAM_NONE)
        walk_into(w, rule, frame, byte, out);
}

/* --- one byte ------------------------------------------------------------------------------ */

bool gram_walk_may_control(const struct gram_node *n)
{
    bool may_end = n->kind == GRAM_KIND_PATTERN || n->kind == GRAM_KIND_CHOICE;
    return n->kind == GRAM_KIND_BYTES ? n->is_marker
                                      : may_end || n->kind == GRAM_KIND_FORK ||
                                            n->kind == GRAM_KIND_CALL || n->kind == GRAM_KIND_OPEN;
}

void gram_walk_step(struct gram_walk *w, const struct gram_thread *t, uint8_t byte,
                    struct gram_threads *out)
{
    const struct gram_node *n = gram_node(w->g, t->node);
    if (w->is_control && !gram_walk_may_control(n))
        return;
    switch (n->kind) {
    case GRAM_KIND_END:
    case GRAM_KIND_RET:
    case GRAM_KIND_JUMP:
        return;
    case GRAM_KIND_BYTES:
        if ((uint8_t)w->g->bytes.p[n->first + t->pos] != byte)
            return;
        if (t->pos + 1 == n->count)
            walk_done(w, n, t, out);
        else
            walk_at(out, t, t->pos + 1);
        return;
    case GRAM_KIND_FORK:
        for (uint32_t i = 0; i < n->count; i++)
            walk_into(w, *gram_list(w->g, n->first + i), t->parent, byte, out);
        return;
    case GRAM_KIND_CALL: {
        uint32_t frame = walk_push(w, t->node, 0, t->parent, GRAM_NONE);
        if (frame != GRAM_NONE)
            walk_into(w, n->rule, frame, byte, out);
        return;
    }
    case GRAM_KIND_CHOICE:
        walk_choice(w, n, t, byte, out);
        return;
    case GRAM_KIND_PATTERN:
        walk_pattern(w, n, t, byte, out);
        return;
    case GRAM_KIND_TEXT:
        walk_text(w, n, t, byte, out);
        return;
    case GRAM_KIND_MEMBERS:
        walk_members(w, n, t, byte, out);
        return;
    case GRAM_KIND_ITEMS:
        walk_items(w, n, t, byte, out);
        return;
    case GRAM_KIND_OPEN:
        walk_open(w, n, t, byte, out);
        return;
    }
}

bool gram_walk_can_end(const struct gram_walk *w, const struct gram_thread *t)
{
    const struct gram_node *n = gram_node(w->g, t->node);
    struct gram_thread next;
    if (n->kind == GRAM_KIND_CHOICE && n->can_end)
        return true;
    bool is_at_end = (n->kind == GRAM_KIND_PATTERN && t->pos &&
                      gram_dfa_accepts(walk_table(w, n), t->dfa)) ||
                     (n->kind == GRAM_KIND_CHOICE && t->pos &&
                      gram_leaf(w->g, t->dfa)->id != GRAM_NONE);
    if (is_at_end) {
        uint32_t to = n->kind == GRAM_KIND_CHOICE ? walk_chosen(w, n, t->dfa) : n->next;
        gram_walk_enter(w, to, t->parent, &next);
        return gram_walk_can_end(w, &next);
    }
    for (uint32_t i = 0; n->kind == GRAM_KIND_FORK && i < n->count; i++) {
        gram_walk_enter(w, *gram_list(w->g, n->first + i), t->parent, &next);
        if (gram_walk_can_end(w, &next))
            return true;
    }
    return n->kind == GRAM_KIND_END || (n->kind == GRAM_KIND_OPEN && n->can_end);
}

bool gram_walk_is_free(const struct gram_walk *w, const struct gram_thread *t)
{
    const struct gram_node *n = gram_node(w->g, t->node);
    return n->kind == GRAM_KIND_OPEN && n->can_end;
}

bool gram_walk_is_done(const struct gram_walk *w, const struct gram_thread *t)
{
    return gram_node(w->g, t->node)->kind == GRAM_KIND_END;
}
