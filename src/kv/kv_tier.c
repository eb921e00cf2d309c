#include "kv/kv_tier.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kv/tier_index.h"

/* Buffers are of a group. A page on its way: FILL -> WRITE -> KEPT or free; READ -> KEPT or free
 * once nobody has it. Tickets are the numbers of kv_tier_get. */

_Static_assert(KV_TIER_NONE == TIER_INDEX_NONE, "an entry's buffer and place");

#define TIER_FILE_BYTES ((uint64_t)64 << 20) /* a file; less where the limit is small */
#define TIER_FILES_OF_LIMIT 8u
#define TIER_TICKETS 256u
#define TIER_BUFFERS_MIN 8u     /* of a group: a step writes and reads some at once */
#define TIER_FULL_NS (30 * INT64_C(1000000000)) /* a full disk is asked again after so long */
#define TIER_READ_ERRORS_MAX 3u
#define TIER_INIT_BYTES ((size_t)TIER_FORMAT_SLOTS_MAX * TIER_FORMAT_RECORD_SIZE)

enum tier_state { TIER_STATE_FREE, TIER_STATE_FILL, TIER_STATE_WRITE, TIER_STATE_READ,
                  TIER_STATE_KEPT };

struct tier_buffer {
    uint8_t *bytes;
    uint32_t group, entry, lent; /* lent: tickets that have not ended */
    enum tier_state state;
    bool is_recent;
};

struct tier_ticket { /* buffer NONE: the page is lost */
    uint32_t buffer;
    bool is_used, is_told, is_lost;
};

struct tier_file { /* busy: orders under way */
    struct tier_header header;
    uint32_t busy;
    bool is_there, is_bad;
};

struct tier_places { /* of a group */
    uint32_t *free, *stale; /* [free_count]; [stale_count]: their records are still to be voided */
    uint32_t free_count, stale_count, places, places_max, file_slots;
    uint32_t buffer_first, buffer_count, hand, buffers_free;
};

struct kv_tier {
    struct kv_tier_options o;
    struct tier_index index;
    struct tier_buffer *buffers;
    uint32_t buffers_count, filling, busy, writes_busy;
    struct tier_file *files; /* [TIER_DISK_FILES_MAX] */
    struct tier_places groups[KV_GROUPS_MAX];
    struct tier_ticket tickets[TIER_TICKETS];
    uint32_t told; /* tickets whose answer waits to be taken */
    int64_t full_until_ns, floor_until_ns; /* no write, no further file before that */
    uint32_t read_errors;
    struct kv_tier_stats stats;
};

void kv_tier_key(struct kv_key *out, const struct kv_key *parent, str scope,
                 const int32_t tokens[KV_PAGE_TOKENS])
{
    struct digest_sha256 d;
    struct err ignored;
    uint64_t len = scope.len; /* so that no two sequences of fields are the same bytes */
    digest_sha256_init(&d);
    digest_sha256_add(&d, parent ? str_view(parent, sizeof *parent) : STR("shoal prefix"));
    digest_sha256_add(&d, str_view(&len, sizeof len));
    digest_sha256_add(&d, scope);
    digest_sha256_add(&d, str_view(tokens, KV_PAGE_TOKENS * sizeof *tokens));
    if (!digest_sha256_end(&d, out->bytes, &ignored))
        digest_random(out->bytes, sizeof out->bytes); /* a key that nothing has: no hit */
}

static bool kv_tier_uses_disk(const struct kv_tier *t) { return t->o.disk && !t->stats.is_off; }

static bool kv_tier_can_read(const struct kv_tier *t, const struct tier_entry *n)
{
    return !n->is_doomed &&
           (n->buffer != KV_TIER_NONE || (n->is_written && kv_tier_uses_disk(t)));
}

static void kv_tier_free_place(struct kv_tier *t, uint32_t group, uint32_t place)
{
    struct tier_places *g = &t->groups[group];
    if (t->files[place / TIER_FORMAT_SLOTS_MAX].is_bad)
        return;
    must(g->free_count < g->places_max);
    g->free[g->free_count++] = place;
}

/* No buffer, no order under way. */
static void kv_tier_remove(struct kv_tier *t, uint32_t i, bool is_place_good)
{
    struct tier_entry *n = &t->index.entries[i];
    must(n->buffer == KV_TIER_NONE);
    if (n->place != KV_TIER_NONE) {
        t->stats.disk_bytes -= t->o.layout->page_size[n->id.group];
        if (is_place_good)
            kv_tier_free_place(t, n->id.group, n->place);
    }
    tier_index_remove(&t->index, i);
}

void kv_tier_touch(struct kv_tier *t, const struct kv_key *key, uint32_t group)
{
    uint32_t i = tier_index_find(&t->index, key, group);
    if (i == KV_TIER_NONE)
        return;
    struct tier_entry *n = &t->index.entries[i];
    tier_index_use(&t->index, i);
    n->used_s = (uint64_t)(chrono_unix_ms(&t->o.clock) / 1000);
    n->is_touched = true;
    if (n->buffer != KV_TIER_NONE)
        t->buffers[n->buffer].is_recent = true;
}

bool kv_tier_has(const struct kv_tier *t, const struct kv_key *key, uint32_t group)
{
    uint32_t i = tier_index_find(&t->index, key, group);
    return i != KV_TIER_NONE && kv_tier_can_read(t, &t->index.entries[i]);
}

enum kv_tier_where kv_tier_where(const struct kv_tier *t, const struct kv_key *key, uint32_t group)
{
    uint32_t i = tier_index_find(&t->index, key, group);
    if (i == KV_TIER_NONE || !kv_tier_can_read(t, &t->index.entries[i]))
        return KV_TIER_NOWHERE;
    bool is_in_ram = t->o.keeps_ram && t->index.entries[i].buffer != KV_TIER_NONE;
    return is_in_ram ? KV_TIER_IN_RAM : KV_TIER_ON_DISK;
}

bool kv_tier_above(const struct kv_tier *t, const struct kv_key *key, uint32_t group,
                   struct kv_key *parent)
{
    uint32_t i = tier_index_find(&t->index, key, group);
    if (i != KV_TIER_NONE)
        *parent = t->index.entries[i].parent;
    return i != KV_TIER_NONE;
}

/* --- buffers ------------------------------------------------------------------------------- */

static void kv_tier_set_state(struct kv_tier *t, struct tier_buffer *b, enum tier_state state)
{
    struct tier_places *g = &t->groups[b->group];
    g->buffers_free -= b->state == TIER_STATE_FREE;
    t->stats.ram_bytes -= b->state == TIER_STATE_KEPT ? t->o.layout->page_size[b->group] : 0;
    b->state = state;
    g->buffers_free += state == TIER_STATE_FREE;
    t->stats.ram_bytes += state == TIER_STATE_KEPT ? t->o.layout->page_size[b->group] : 0;
}

/* The entry loses its buffer; without a place it has nothing left. */
static void kv_tier_drop_buffer(struct kv_tier *t, uint32_t buffer)
{
    struct tier_buffer *b = &t->buffers[buffer];
    struct tier_entry *n = &t->index.entries[b->entry];
    kv_tier_set_state(t, b, TIER_STATE_FREE);
    n->buffer = KV_TIER_NONE;
    if (n->place == KV_TIER_NONE)
        kv_tier_remove(t, b->entry, true);
    b->entry = KV_TIER_NONE;
}

/* A hand goes round: who was used since it came by last stays once more. */
static uint32_t kv_tier_take_buffer(struct kv_tier *t, uint32_t group)
{
    struct tier_places *g = &t->groups[group];
    for (uint32_t tries = 0; tries < 2 * g->buffer_count; tries++) {
        uint32_t i = g->buffer_first + g->hand;
        struct tier_buffer *b = &t->buffers[i];
        g->hand = (g->hand + 1) % g->buffer_count;
        if (b->state == TIER_STATE_FREE)
            return i;
        if (b->state != TIER_STATE_KEPT || b->lent || g->buffers_free)
            continue;
        if (b->is_recent) {
            b->is_recent = false;
            continue;
        }
        kv_tier_drop_buffer(t, i);
        t->stats.evictions++;
        return i;
    }
    return KV_TIER_NONE;
}

/* Its bytes are no page any more; the place is used again once its record says so, too. */
static void kv_tier_lose_place(struct kv_tier *t, struct tier_entry *n)
{
    struct tier_places *g = &t->groups[n->id.group];
    if (n->place == KV_TIER_NONE)
        return;
    t->stats.disk_bytes -= t->o.layout->page_size[n->id.group];
    must(g->stale_count < g->places_max);
    g->stale[g->stale_count++] = n->place;
    n->place = KV_TIER_NONE;
    n->is_written = false;
}

/* Nobody writes or reads it any more. */
static void kv_tier_settle(struct kv_tier *t, uint32_t buffer)
{
    struct tier_buffer *b = &t->buffers[buffer];
    bool is_doomed = t->index.entries[b->entry].is_doomed;
    if (b->lent)
        return;
    if (is_doomed)
        kv_tier_lose_place(t, &t->index.entries[b->entry]);
    if (is_doomed || !t->o.keeps_ram)
        kv_tier_drop_buffer(t, buffer);
}

uint32_t kv_tier_room(const struct kv_tier *t, uint32_t group)
{
    const struct tier_places *g = &t->groups[group];
    uint32_t room = g->buffers_free;
    for (uint32_t i = 0; t->o.keeps_ram && !room && i < g->buffer_count; i++) {
        const struct tier_buffer *b = &t->buffers[g->buffer_first + i];
        room += b->state == TIER_STATE_KEPT && !b->lent;
    }
    return room;
}

/* --- places in files ----------------------------------------------------------------------- */

static bool kv_tier_start(struct kv_tier *t, const struct tier_order *o)
{
    if (!t->o.disk->start(t->o.disk->self, o))
        return false;
    t->busy++;
    t->files[o->file].busy++;
    t->writes_busy += o->kind != TIER_ORDER_READ && o->kind != TIER_ORDER_MAKE;
    return true;
}

static void kv_tier_add_places(struct kv_tier *t, uint32_t group, uint32_t file, uint32_t slots)
{
    struct tier_places *g = &t->groups[group];
    for (uint32_t i = slots; i-- > 0;)
        g->free[g->free_count++] = file * TIER_FORMAT_SLOTS_MAX + i;
    g->places += slots;
}

static bool kv_tier_is_before(const struct kv_tier *t, int64_t until_ns)
{
    return until_ns && chrono_ns(&t->o.clock) < until_ns;
}

static bool kv_tier_make_file(struct kv_tier *t, uint32_t group)
{
    struct tier_places *g = &t->groups[group];
    uint32_t file = 0;
    while (file < TIER_DISK_FILES_MAX && (t->files[file].is_there || t->files[file].busy))
        file++;
    if (file == TIER_DISK_FILES_MAX || g->places + g->file_slots > g->places_max ||
        kv_tier_is_before(t, t->floor_until_ns))
        return false;
    struct tier_order o = {.kind = TIER_ORDER_MAKE, .file = file,
                           .floor_bytes = t->o.floor_bytes};
    o.header = (struct tier_header){.owner = t->o.owner, .group = group, .slots = g->file_slots,
                                    .page_size = t->o.layout->page_size[group]};
    memcpy(o.header.build, t->o.build, base_min(strlen(t->o.build), sizeof o.header.build - 1));
    memcpy(o.header.model, t->o.model, base_min(strlen(t->o.model), sizeof o.header.model - 1));
    if (!kv_tier_start(t, &o))
        return false;
    t->files[file].header = o.header;
    t->files[file].is_there = true;
    t->files[file].is_bad = false;
    t->stats.files++;
    kv_tier_add_places(t, group, file, g->file_slots);
    return true;
}

/* Where no file may be added the worst page makes way. */
static uint32_t kv_tier_take_place(struct kv_tier *t, uint32_t group)
{
    struct tier_places *g = &t->groups[group];
    if (kv_tier_is_before(t, t->full_until_ns))
        return KV_TIER_NONE;
    if (!g->free_count && !kv_tier_make_file(t, group)) {
        uint32_t worst = tier_index_worst(&t->index, group);
        if (worst == KV_TIER_NONE)
            return KV_TIER_NONE;
        kv_tier_remove(t, worst, true);
        t->stats.evictions++;
    }
    return g->free_count ? g->free[--g->free_count] : KV_TIER_NONE;
}

/* A file that could not be made: its places are none. Its number is used again, once the pages
 * that were on their way there have come back, unless somebody else's file has it. */
static void kv_tier_lose_file(struct kv_tier *t, const struct tier_order *o)
{
    uint32_t file = o->file, kept = 0;
    struct tier_places *g = &t->groups[o->header.group];
    t->files[file].is_bad = true;
    t->files[file].is_there = o->error == EEXIST;
    for (uint32_t i = 0; i < g->free_count; i++)
        if (g->free[i] / TIER_FORMAT_SLOTS_MAX != file)
            g->free[kept++] = g->free[i];
    g->free_count = kept;
    g->places -= t->files[file].header.slots;
    t->stats.files--;
}

/* --- orders -------------------------------------------------------------------------------- */

static struct tier_order kv_tier_order(const struct kv_tier *t, enum tier_order_kind kind,
                                       uint32_t entry)
{
    const struct tier_entry *n = &t->index.entries[entry];
    uint32_t file = n->place / TIER_FORMAT_SLOTS_MAX;
    return (struct tier_order){
        .kind = kind, .file = file, .slot = n->place % TIER_FORMAT_SLOTS_MAX, .tag = entry,
        .header = t->files[file].header,
        .record = {.key = n->id.key, .parent = n->parent, .depth = n->depth,
                   .used_s = n->used_s, .sum = n->sum},
        .bytes = n->buffer == KV_TIER_NONE ? NULL : t->buffers[n->buffer].bytes};
}

/* Puts the filled buffer on its way to a file, where there is one. */
static void kv_tier_write(struct kv_tier *t, uint32_t buffer)
{
    struct tier_buffer *b = &t->buffers[buffer];
    struct tier_entry *n = &t->index.entries[b->entry];
    kv_tier_set_state(t, b, TIER_STATE_KEPT);
    uint32_t place = kv_tier_uses_disk(t) ? kv_tier_take_place(t, b->group) : KV_TIER_NONE;
    if (place != KV_TIER_NONE) {
        n->place = place;
        struct tier_order o = kv_tier_order(t, TIER_ORDER_WRITE, b->entry);
        if (kv_tier_start(t, &o)) {
            t->stats.disk_bytes += t->o.layout->page_size[b->group];
            kv_tier_set_state(t, b, TIER_STATE_WRITE);
            return;
        }
        n->place = KV_TIER_NONE;
        kv_tier_free_place(t, b->group, place);
    }
    if (!t->o.keeps_ram) {
        t->stats.refused++;
        kv_tier_drop_buffer(t, buffer);
    }
}

void *kv_tier_put(struct kv_tier *t, const struct kv_tier_page *p)
{
    must(t->filling == KV_TIER_NONE && p->group < t->o.layout->groups_count);
    if (!kv_tier_uses_disk(t) && !t->o.keeps_ram)
        return NULL;
    uint32_t old = tier_index_find(&t->index, &p->key, p->group);
    bool is_busy = old != KV_TIER_NONE && t->index.entries[old].is_doomed;
    if (is_busy || (old != KV_TIER_NONE && kv_tier_can_read(t, &t->index.entries[old])))
        return NULL;
    if (old != KV_TIER_NONE) /* only the disk has it, and that is switched off */
        kv_tier_remove(t, old, true);
    uint32_t buffer = kv_tier_take_buffer(t, p->group);
    uint32_t i = KV_TIER_NONE;
    if (buffer != KV_TIER_NONE)
        i = tier_index_add(&t->index, &(struct tier_id){p->key, p->group}, &p->parent, p->depth);
    if (i == KV_TIER_NONE) {
        t->stats.refused++;
        return NULL;
    }
    struct tier_buffer *b = &t->buffers[buffer];
    b->entry = i;
    b->lent = 0;
    b->is_recent = false;
    struct tier_entry *n = &t->index.entries[i];
    n->buffer = buffer;
    n->used_s = (uint64_t)(chrono_unix_ms(&t->o.clock) / 1000);
    kv_tier_set_state(t, b, TIER_STATE_FILL);
    t->filling = buffer;
    return b->bytes;
}

void kv_tier_put_end(struct kv_tier *t, bool is_filled)
{
    uint32_t buffer = t->filling;
    must(buffer != KV_TIER_NONE);
    t->filling = KV_TIER_NONE;
    if (!is_filled) {
        kv_tier_drop_buffer(t, buffer);
        return;
    }
    kv_tier_write(t, buffer);
}

uint32_t kv_tier_get(struct kv_tier *t, const struct kv_key *key, uint32_t group)
{
    uint32_t i = tier_index_find(&t->index, key, group), number = 0;
    while (number < TIER_TICKETS && t->tickets[number].is_used)
        number++;
    if (i == KV_TIER_NONE || number == TIER_TICKETS || !kv_tier_can_read(t, &t->index.entries[i]))
        return KV_TIER_NONE;
    struct tier_entry *n = &t->index.entries[i];
    if (n->buffer == KV_TIER_NONE) {
        uint32_t buffer = kv_tier_take_buffer(t, group);
        if (buffer == KV_TIER_NONE)
            return KV_TIER_NONE;
        n->buffer = buffer;
        struct tier_order o = kv_tier_order(t, TIER_ORDER_READ, i);
        if (!kv_tier_start(t, &o)) {
            n->buffer = KV_TIER_NONE;
            return KV_TIER_NONE;
        }
        t->buffers[buffer].entry = i;
        t->buffers[buffer].lent = 0;
        kv_tier_set_state(t, &t->buffers[buffer], TIER_STATE_READ);
    }
    struct tier_buffer *b = &t->buffers[n->buffer];
    b->lent++;
    b->is_recent = true;
    t->tickets[number] = (struct tier_ticket){.buffer = n->buffer, .is_used = true};
    t->tickets[number].is_told = b->state != TIER_STATE_READ;
    t->told += t->tickets[number].is_told;
    return number;
}

void kv_tier_got_end(struct kv_tier *t, uint32_t number)
{
    struct tier_ticket *k = &t->tickets[number];
    must(number < TIER_TICKETS && k->is_used && !k->is_told);
    k->is_used = false;
    if (k->is_lost)
        return;
    struct tier_buffer *b = &t->buffers[k->buffer];
    must(b->lent > 0);
    b->lent--;
    if (b->state == TIER_STATE_KEPT)
        kv_tier_settle(t, k->buffer);
}

/* --- forgetting ---------------------------------------------------------------------------- */

/* Without a page in a file or a buffer there is no entry. Order under way: later. */
static uint64_t kv_tier_forget_entry(struct kv_tier *t, uint32_t i, bool from_ram, bool from_disk)
{
    struct tier_entry *n = &t->index.entries[i];
    struct tier_buffer *b = n->buffer == KV_TIER_NONE ? NULL : &t->buffers[n->buffer];
    bool is_all = from_disk && (from_ram || !t->o.keeps_ram || !b);
    bool is_busy = b && (b->state != TIER_STATE_KEPT || b->lent);
    uint64_t size = t->o.layout->page_size[n->id.group];
    if (n->is_doomed || (is_busy && !is_all))
        return 0;
    if (is_busy) {
        n->is_doomed = true;
        return size;
    }
    if (is_all) {
        kv_tier_lose_place(t, n);
        if (b)
            kv_tier_drop_buffer(t, n->buffer);
        else
            kv_tier_remove(t, i, true);
        return size;
    }
    if (from_disk && n->place != KV_TIER_NONE) {
        kv_tier_lose_place(t, n);
        return size;
    }
    if (!from_ram || !b)
        return 0;
    kv_tier_drop_buffer(t, n->buffer);
    return size;
}

uint64_t kv_tier_forget(struct kv_tier *t, const struct kv_key *key, uint32_t group,
                        bool from_ram, bool from_disk)
{
    uint32_t i = tier_index_find(&t->index, key, group);
    return i == KV_TIER_NONE ? 0 : kv_tier_forget_entry(t, i, from_ram, from_disk);
}

void kv_tier_spare(struct kv_tier *t, const struct kv_key *key, uint32_t group)
{
    uint32_t i = tier_index_find(&t->index, key, group);
    if (i != KV_TIER_NONE)
        t->index.entries[i].is_spared = true;
}

uint64_t kv_tier_forget_all(struct kv_tier *t, bool from_ram, bool from_disk, uint64_t *pages)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->index.entries_used; i++) {
        const struct tier_id *id = &t->index.entries[i].id;
        if (tier_index_find(&t->index, &id->key, id->group) != i)
            continue; /* not in use */
        bool is_spared = t->index.entries[i].is_spared;
        t->index.entries[i].is_spared = false;
        if (is_spared)
            continue;
        uint64_t size = kv_tier_forget_entry(t, i, from_ram, from_disk);
        bytes += size;
        *pages += size > 0;
    }
    return bytes;
}

static struct tier_order kv_tier_void_order(const struct kv_tier *t, uint32_t place)
{
    uint32_t file = place / TIER_FORMAT_SLOTS_MAX;
    return (struct tier_order){.kind = TIER_ORDER_VOID, .file = file, .tag = place,
                               .slot = place % TIER_FORMAT_SLOTS_MAX,
                               .header = t->files[file].header};
}

/* As many as the disk takes. */
static void kv_tier_void(struct kv_tier *t)
{
    for (uint32_t g = 0; g < t->o.layout->groups_count && kv_tier_uses_disk(t); g++) {
        struct tier_places *p = &t->groups[g];
        while (p->stale_count) {
            struct tier_order o = kv_tier_void_order(t, p->stale[p->stale_count - 1]);
            if (!kv_tier_start(t, &o))
                return;
            p->stale_count--;
        }
    }
}

/* --- what comes back ----------------------------------------------------------------------- */

static void kv_tier_switch_off(struct kv_tier *t, const struct tier_order *o)
{
    struct err e;
    t->stats.errors++;
    if (t->stats.is_off)
        return;
    err_set_errno(&e, o->error, "tier: %s file %u",
                  o->kind == TIER_ORDER_READ ? "reading" : "writing", o->file);
    t->stats.is_off = true;
    memcpy(t->stats.why, e.text, sizeof t->stats.why);
}

static void kv_tier_rate(double *rate, const struct tier_order *o)
{
    double now = (double)o->header.page_size * 1e9 / (double)(o->ns + 1);
    *rate = *rate > 0 ? *rate * 0.75 + now * 0.25 : now;
}

static void kv_tier_on_write(struct kv_tier *t, const struct tier_order *o)
{
    struct tier_entry *n = &t->index.entries[o->tag];
    uint32_t buffer = n->buffer;
    kv_tier_set_state(t, &t->buffers[buffer], TIER_STATE_KEPT);
    if (o->error == 0) {
        n->sum = o->record.sum;
        n->is_written = true;
        t->stats.writes++;
        t->stats.bytes_written += o->header.page_size;
    } else {
        t->stats.disk_bytes -= o->header.page_size;
        kv_tier_free_place(t, n->id.group, n->place);
        n->place = KV_TIER_NONE;
        if (o->error == ENOSPC || o->error == EDQUOT)
            t->full_until_ns = chrono_ns(&t->o.clock) + TIER_FULL_NS;
        else if (!t->files[o->file].is_bad)
            kv_tier_switch_off(t, o);
    }
    kv_tier_settle(t, buffer);
}

static void kv_tier_on_read(struct kv_tier *t, const struct tier_order *o)
{
    struct tier_entry *n = &t->index.entries[o->tag];
    uint32_t buffer = n->buffer;
    struct tier_buffer *b = &t->buffers[buffer];
    for (uint32_t i = 0; i < TIER_TICKETS; i++) {
        struct tier_ticket *k = &t->tickets[i];
        if (!k->is_used || k->is_lost || k->buffer != buffer)
            continue;
        k->is_told = true;
        k->is_lost = o->error != 0;
        t->told++;
        b->lent -= k->is_lost;
    }
    if (o->error == 0) {
        t->stats.reads++;
        t->stats.bytes_read += o->header.page_size;
        kv_tier_rate(&t->stats.read_bytes_per_s, o);
        kv_tier_set_state(t, b, TIER_STATE_KEPT);
        kv_tier_settle(t, buffer);
        return;
    }
    bool is_sum = o->error == EBADMSG || o->error == ENODATA;
    t->stats.bad_sums += is_sum;
    if (!is_sum && ++t->read_errors >= TIER_READ_ERRORS_MAX)
        kv_tier_switch_off(t, o);
    else
        t->stats.errors += !is_sum;
    kv_tier_set_state(t, b, TIER_STATE_FREE);
    b->entry = KV_TIER_NONE;
    n->buffer = KV_TIER_NONE;
    kv_tier_remove(t, o->tag, is_sum);
}

static void kv_tier_on_order(struct kv_tier *t, const struct tier_order *o)
{
    t->busy--;
    t->files[o->file].busy--;
    switch (o->kind) {
    case TIER_ORDER_WRITE:
        t->writes_busy--;
        kv_tier_on_write(t, o);
        return;
    case TIER_ORDER_READ:
        kv_tier_on_read(t, o);
        return;
    case TIER_ORDER_TOUCH:
        t->writes_busy--;
        return; /* the time of its use is all that is lost */
    case TIER_ORDER_VOID:
        t->writes_busy--;
        kv_tier_free_place(t, o->header.group, o->tag);
        if (o->error)
            kv_tier_switch_off(t, o);
        return;
    case TIER_ORDER_MAKE:
        if (o->error == 0)
            return;
        kv_tier_lose_file(t, o);
        if (o->error == ENOSPC || o->error == EDQUOT)
            t->floor_until_ns = chrono_ns(&t->o.clock) + TIER_FULL_NS;
        else if (o->error != EEXIST)
            kv_tier_switch_off(t, o);
        return;
    }
}

bool kv_tier_next(struct kv_tier *t, struct kv_tier_got *out)
{
    struct tier_order o;
    while (t->busy && t->o.disk->next(t->o.disk->self, &o))
        kv_tier_on_order(t, &o);
    kv_tier_void(t);
    for (uint32_t i = 0; t->told && i < TIER_TICKETS; i++) {
        struct tier_ticket *k = &t->tickets[i];
        if (!k->is_told)
            continue;
        k->is_told = false;
        t->told--;
        *out = (struct kv_tier_got){i, k->is_lost ? NULL : t->buffers[k->buffer].bytes};
        return true;
    }
    return false;
}

/* --- the end ------------------------------------------------------------------------------- */

/* Takes what comes back next. False: it is too late. */
static bool kv_tier_await(struct kv_tier *t, int64_t until_ns)
{
    struct tier_order o;
    int64_t left_ns = until_ns - chrono_ns(&t->o.clock);
    if (left_ns <= 0)
        return false;
    t->o.disk->wait(t->o.disk->self, left_ns / 1000000 + 1);
    while (t->busy && t->o.disk->next(t->o.disk->self, &o))
        kv_tier_on_order(t, &o);
    return true;
}

static void kv_tier_drain(struct kv_tier *t, int64_t until_ns, uint32_t writes_max)
{
    while (t->writes_busy > writes_max && kv_tier_await(t, until_ns))
        continue;
}

/* A full queue is waited for until half of it is done. */
static bool kv_tier_start_late(struct kv_tier *t, const struct tier_order *o, int64_t until_ns)
{
    while (kv_tier_uses_disk(t) && !kv_tier_start(t, o)) {
        if (!t->writes_busy || chrono_ns(&t->o.clock) >= until_ns)
            return false;
        kv_tier_drain(t, until_ns, t->writes_busy / 2);
    }
    return kv_tier_uses_disk(t);
}

static bool kv_tier_is_stale(const struct kv_tier *t)
{
    uint32_t count = 0;
    for (uint32_t g = 0; g < t->o.layout->groups_count; g++)
        count += t->groups[g].stale_count;
    return count > 0;
}

void kv_tier_flush(struct kv_tier *t, int64_t timeout_ms)
{
    int64_t until_ns = chrono_ns(&t->o.clock) + timeout_ms * 1000000;
    if (!kv_tier_uses_disk(t))
        return;
    kv_tier_drain(t, until_ns, 0);
    while (kv_tier_is_stale(t) && kv_tier_uses_disk(t)) {
        kv_tier_void(t);
        if (!t->busy || !kv_tier_await(t, until_ns))
            break;
    }
    for (uint32_t i = 0; i < t->index.entries_used && kv_tier_uses_disk(t); i++) {
        struct tier_entry *n = &t->index.entries[i];
        if (!n->is_touched || !n->is_written || n->place == KV_TIER_NONE)
            continue;
        struct tier_order o = kv_tier_order(t, TIER_ORDER_TOUCH, i);
        if (!kv_tier_start_late(t, &o, until_ns))
            break;
        n->is_touched = false;
    }
    kv_tier_drain(t, until_ns, 0);
}

void kv_tier_stats(const struct kv_tier *t, struct kv_tier_stats *out)
{
    *out = t->stats;
    out->entries = t->index.count;
}

/* --- a load -------------------------------------------------------------------------------- */

static void kv_tier_read_table(struct kv_tier *t, uint32_t file, const struct tier_header *h,
                               str table, uint64_t size)
{
    struct tier_places *g = &t->groups[h->group];
    for (uint32_t slot = h->slots; slot-- > 0;) {
        struct tier_record r;
        uint32_t place = file * TIER_FORMAT_SLOTS_MAX + slot, i = KV_TIER_NONE;
        bool is_whole = tier_format_slot_offset(h, slot) + h->page_size <= size;
        if (is_whole && tier_format_read_record(&r, h, slot, table) &&
            tier_index_find(&t->index, &r.key, h->group) == KV_TIER_NONE)
            i = tier_index_add(&t->index, &(struct tier_id){r.key, h->group}, &r.parent, r.depth);
        if (i == KV_TIER_NONE) {
            g->free[g->free_count++] = place;
            continue;
        }
        struct tier_entry *n = &t->index.entries[i];
        n->place = place;
        n->used_s = r.used_s;
        n->sum = r.sum;
        n->is_written = true;
        t->stats.disk_bytes += h->page_size;
    }
    g->places += h->slots;
    t->files[file].header = *h;
    t->files[file].is_there = true;
    t->stats.files++;
}

/* False: what it is we cannot tell, or not use; it goes. */
static bool kv_tier_read_file(struct kv_tier *t, uint32_t file, char *head, char *table,
                              struct err *e)
{
    const struct tier_io *io = &t->o.disk->io;
    struct tier_header h;
    uint64_t size = 0;
    int error = io->size(io->self, file, &size);
    if (!error)
        error = io->read(io->self, file, head, base_min(size, TIER_FORMAT_BLOCK), 0);
    if (error)
        return err_set_errno(e, error, "tier: file %u", file);
    str bytes = str_view(head, base_min(size, TIER_FORMAT_BLOCK));
    if (!tier_format_read_header(&h, bytes, e))
        return false;
    if (h.owner.id.low != t->o.owner.id.low || h.owner.id.high != t->o.owner.id.high ||
        h.group >= t->o.layout->groups_count || h.page_size != t->o.layout->page_size[h.group])
        return err_set(e, ERR_FORMAT, "tier: file %u is of another model", file);
    struct tier_places *g = &t->groups[h.group];
    if (g->places + h.slots > g->places_max)
        return err_set(e, ERR_LIMIT, "tier: file %u is past the limit", file);
    size_t have = size > TIER_FORMAT_BLOCK ? (size_t)(size - TIER_FORMAT_BLOCK) : 0;
    have = base_min(have, h.slots * TIER_FORMAT_RECORD_SIZE);
    error = io->read(io->self, file, table, have, TIER_FORMAT_BLOCK);
    if (error)
        return err_set_errno(e, error, "tier: file %u", file);
    kv_tier_read_table(t, file, &h, str_view(table, have), size);
    return true;
}

static bool kv_tier_read_index(struct kv_tier *t, struct err *e)
{
    const struct tier_disk *d = t->o.disk;
    char *head = malloc(TIER_FORMAT_BLOCK), *table = malloc(TIER_INIT_BYTES);
    bool ok = head && table;
    for (uint32_t i = 0; ok && i < d->files_count; i++) {
        uint32_t file = d->files[i];
        struct err why;
        if (kv_tier_read_file(t, file, head, table, &why))
            continue;
        t->stats.bad_files++;
        /* A newer program's file is not ours to delete. */
        bool is_kept = why.code == ERR_UNSUPPORTED || d->io.remove(d->io.self, file) != 0;
        t->files[file].is_there = is_kept;
        t->files[file].is_bad = true;
    }
    free(head);
    free(table);
    if (!ok)
        return err_set(e, ERR_MEMORY, "tier: no memory for the index");
    return tier_index_sort(&t->index, e);
}

/* Files of a share of the limit, with their heads. */
static void kv_tier_size_files(struct tier_places *p, uint64_t page_size, uint64_t share)
{
    struct tier_header h = {.page_size = page_size};
    uint64_t file_max = base_min(TIER_FILE_BYTES, share / TIER_FILES_OF_LIMIT);
    h.slots = tier_format_slots(page_size, file_max);
    uint64_t files = share / tier_format_slot_offset(&h, h.slots);
    p->file_slots = h.slots;
    p->places_max = (uint32_t)base_min(files * h.slots, KV_TIER_ENTRIES_MAX / KV_GROUPS_MAX);
}

/* Each group gets about the same number of pages, in RAM and in files. */
static bool kv_tier_size(struct kv_tier *t, uint32_t *entries_max, struct err *e)
{
    const struct kv_layout *l = t->o.layout;
    uint64_t sum = 0, entries = 0;
    for (uint32_t g = 0; g < l->groups_count; g++)
        sum += base_align(l->page_size[g], TIER_FORMAT_BLOCK);
    for (uint32_t g = 0; g < l->groups_count; g++) {
        struct tier_places *p = &t->groups[g];
        uint64_t size = base_align(l->page_size[g], TIER_FORMAT_BLOCK);
        uint64_t share = t->o.disk_bytes / sum * size;
        uint64_t buffers = base_max(t->o.ram_bytes / sum, TIER_BUFFERS_MIN);
        if (t->o.disk)
            kv_tier_size_files(p, l->page_size[g], share);
        p->buffer_first = t->buffers_count;
        p->buffer_count = (uint32_t)base_min(buffers, KV_TIER_ENTRIES_MAX / KV_GROUPS_MAX);
        p->buffers_free = p->buffer_count;
        t->buffers_count += p->buffer_count;
        t->stats.ram_limit += p->buffer_count * l->page_size[g];
        t->stats.disk_limit += p->places_max * l->page_size[g];
        entries += p->places_max + p->buffer_count;
        if (t->o.disk && p->places_max == 0)
            return err_set(e, ERR_CONFIG, "spill_size: %llu bytes hold no file of pages of %zu",
                           (unsigned long long)t->o.disk_bytes, l->page_size[g]);
        p->free = mem_new_array(t->o.mem, "tier", p->places_max + 1, sizeof *p->free, e);
        p->stale = mem_new_array(t->o.mem, "tier", p->places_max + 1, sizeof *p->stale, e);
        if (!p->free || !p->stale)
            return false;
    }
    *entries_max = (uint32_t)entries;
    return true;
}

static bool kv_tier_make_buffers(struct kv_tier *t, struct err *e)
{
    t->buffers = mem_new_array(t->o.mem, "tier", t->buffers_count, sizeof *t->buffers, e);
    for (uint32_t g = 0; t->buffers && g < t->o.layout->groups_count; g++) {
        const struct tier_places *p = &t->groups[g];
        size_t size = base_align(t->o.layout->page_size[g], TIER_FORMAT_BLOCK);
        uint8_t *bytes = mem_new_array(t->o.mem, "tier", p->buffer_count, size, e);
        if (!bytes)
            return false;
        for (uint32_t i = 0; i < p->buffer_count; i++)
            t->buffers[p->buffer_first + i] = (struct tier_buffer){
                .bytes = bytes + i * size, .group = g, .entry = KV_TIER_NONE};
    }
    return t->buffers != NULL;
}

bool kv_tier_init(struct kv_tier **out, const struct kv_tier_options *o, struct err *e)
{
    struct kv_tier *t = mem_new(o->mem, "tier", sizeof *t, e);
    if (!t)
        return false;
    uint32_t entries_max = 0;
    *t = (struct kv_tier){.o = *o, .filling = KV_TIER_NONE};
    if (!kv_tier_size(t, &entries_max, e) || !kv_tier_make_buffers(t, e))
        return false;
    t->files = mem_new_array(o->mem, "tier", TIER_DISK_FILES_MAX, sizeof *t->files, e);
    if (!t->files || !tier_index_init(&t->index, entries_max, o->mem, e))
        return false;
    if (o->disk && !kv_tier_read_index(t, e)) {
        kv_tier_free(t);
        return false;
    }
    *out = t;
    return true;
}

void kv_tier_free(struct kv_tier *t)
{
    if (t)
        tier_index_deinit(&t->index); /* the rest is the model's memory */
}
