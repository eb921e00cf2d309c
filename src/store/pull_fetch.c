#include "store/pull_fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file.h"
#include "store/pull_disk.h"
#include "wire/loop.h"

#define PULL_FETCH_PROGRESS 65536u  /* so many bytes make a failed try a successful one */
#define PULL_FETCH_SAVE_MS 5000     /* so often unfinished pieces are written down */
#define PULL_FETCH_PASSES 2 /* over all pieces, when nothing tells why the sha256 is wrong */
#define PULL_FETCH_NOTE_MS 5000
/* Bytes of a connection that are written at once: libcurl hands over 16 KiB at most, and each write
 * costs a walk through the file system. */
#define PULL_FETCH_WRITE ((size_t)256 << 10)

enum pull_piece_state { PULL_PIECE_FREE, PULL_PIECE_BUSY, PULL_PIECE_WRITTEN, PULL_PIECE_DONE };

struct pull_piece {
    enum pull_piece_state state;
    uint64_t got;
    uint8_t tries, rounds, waits; /* waits: of HTTP 429 */
    bool differs; /* comparing found other bytes and wrote them */
    uint32_t endpoint;
    int64_t not_before_ms;
};

/* A hub, and where it sends us: signed addresses of a CDN serve many pieces, until they expire. */
struct pull_source {
    char url[HUB_NET_URL_MAX + 1]; /* empty: ask the hub */
};

struct pull_fetch_job;
struct pull_slot {
    struct pull_fetch_job *f;
    struct hub_net_call *call;
    bool is_used, has_ended;
    uint32_t piece, endpoint;
    bool by_address;      /* it went to the source's address, not to the hub */
    uint64_t from, until; /* of the file: first byte asked for, behind the last one to come */
    uint64_t at;          /* next byte; the last `held` ones before it are not written yet */
    char *hold;           /* [PULL_FETCH_WRITE] */
    size_t held;
    uint64_t window_at;
    int64_t window_ms;
    bool has_digest, is_compared, differs;
    struct hub_net_head head; /* numbers and digest only */
    struct digest_sha256 digest;
    struct err why; /* code NONE: it went well */
    enum { PULL_AGAIN, PULL_EXPIRED, PULL_WAIT, PULL_SOURCE, PULL_FATAL } how; /* with why */
    int64_t wait_ms;
};

struct pull_fetch_job {
    const struct pull_fetch_options *o;
    struct pull_state *s;
    struct pull_piece *pieces;
    struct pull_source *sources;
    const str *endpoints;
    uint32_t endpoints_count;
    struct pull_disk *disk;
    struct loop_watch watch;
    struct pull_slot slots[PULL_FETCH_SLOTS];
    char *block; /* for comparing */
    char *holds; /* of all slots */
    uint64_t received;
    uint32_t scan_from; /* no piece below is FREE */
    bool is_probed, wants_restart, is_hashed, is_good, is_saving, is_reread;
    bool is_resumed; /* bytes of an earlier run are there */
    bool has_answer; /* one of this run; unlike is_probed it stays */
    bool is_comparing;  /* the sha256 was wrong: every piece once more, over new connections */
    bool is_rehashing;
    uint32_t compared, replaced, pass;
    struct err fatal;
    int64_t saved_ms, noted_ms;
    struct buf url;
};

/* --- what an answer must be ------------------------------------------------------------------- */

static void pull_fetch_wrong(struct pull_slot *s, enum err_code code, const char *what)
{
    s->how = PULL_SOURCE;
    err_set(&s->why, code, "%.*s %s", STR_ARG(s->head.host), what);
}

static void pull_fetch_judge_status(struct pull_slot *s, const struct hub_net_head *h)
{
    const struct hub_net_query *q = s->f->o->query;
    bool is_hub = h->is_hub && !s->by_address;
    hub_net_refusal(h, q->repo, q->revision, &s->why);
    s->how = PULL_AGAIN;
    if (h->status == 429) {
        s->how = PULL_WAIT;
        s->wait_ms = h->retry_after_s < 0 ? 1000 : h->retry_after_s * 1000;
    } else if (h->status == 401 || h->status == 403 || h->status == 404 || h->status == 410) {
        s->how = is_hub ? PULL_FATAL : PULL_EXPIRED;
    } else if (h->status == 416) {
        pull_fetch_wrong(s, ERR_FORMAT, "has a file of another size (HTTP 416)");
    }
}

/* Content types that a model file never has. */
static bool pull_fetch_is_other(const struct pull_fetch_options *o, const struct hub_net_head *h)
{
    return o->is_gguf && (str_starts(h->content_type, STR("application/json")) ||
                          str_starts(h->content_type, STR("text/")));
}

static void pull_fetch_judge(struct pull_slot *s, const struct hub_net_head *h)
{
    const struct pull_state *st = s->f->s;
    bool is_whole = s->from == 0 && s->until == st->size;
    s->how = PULL_SOURCE;
    if (h->status / 100 != 2) {
        pull_fetch_judge_status(s, h);
        return;
    }
    if (!hub_net_is_file(h, &s->why))
        return;
    if (pull_fetch_is_other(s->f->o, h)) {
        err_set(&s->why, ERR_FORMAT, "%.*s answers with %.*s instead of the file",
                STR_ARG(h->host), STR_ARG(str_sub(h->content_type, 0, 40)));
    } else if (h->status == 206) {
        if (!h->has_range || h->range_first != s->from || h->range_last >= s->until)
            pull_fetch_wrong(s, ERR_FORMAT, "answers with another range than was asked for");
        else if (h->range_size != HUB_SIZE_UNKNOWN && h->range_size != st->size)
            err_set(&s->why, ERR_FORMAT, "%.*s has a file of %llu bytes, the hub lists %llu",
                    STR_ARG(h->host), (unsigned long long)h->range_size,
                    (unsigned long long)st->size);
        else
            s->until = h->range_last + 1;
    } else if (!is_whole) {
        pull_fetch_wrong(s, ERR_FORMAT, "ignores the range that was asked for");
    } else if (h->length != HUB_SIZE_UNKNOWN && h->length != st->size) {
        err_set(&s->why, ERR_FORMAT, "%.*s has a file of %llu bytes, the hub lists %llu",
                STR_ARG(h->host), (unsigned long long)h->length, (unsigned long long)st->size);
    }
}

/* Without a sha256 the answers themselves say whether it is still the same file. Where they say
 * nothing, the pieces of one run have to go together: all are asked for by the same commit. */
static void pull_fetch_validate(struct pull_slot *s, const struct hub_net_head *h)
{
    struct pull_fetch_job *f = s->f;
    struct pull_state *st = f->s;
    bool has_any = h->etag.len || h->modified.len;
    if (st->has_sha256)
        return;
    bool is_same = st->etag.len && h->etag.len ? str_eq(st->etag, h->etag)
                                               : str_eq(st->modified, h->modified) && has_any;
    bool is_first = !f->has_answer;
    f->has_answer = true;
    if ((st->etag.len || st->modified.len) ? !is_same : is_first && f->is_resumed) {
        hub_net_note(f->o->net, "%.*s: starting over: %s", STR_ARG(st->path),
                     has_any ? "the hub has another version of it now"
                             : "nothing tells whether it is still the same file");
        f->wants_restart = true;
        return;
    }
    if (!is_first || st->etag.len || st->modified.len)
        return;
    st->etag = arena_copy(f->o->arena, h->etag);
    st->modified = arena_copy(f->o->arena, h->modified);
    struct buf head;
    buf_init(&head, 1u << 16);
    pull_state_add_head(&head, st);
    /* Nothing has been written down yet: the head is replaced by one that knows the validator. */
    if (head.full || ftruncate(f->o->state_fd, 0) != 0 ||
        !file_write_all(f->o->state_fd, buf_view(&head), &f->fatal))
        err_set_errno(&f->fatal, errno, "writing the journal");
    buf_deinit(&head);
}

static void pull_fetch_on_head(void *ctx, const struct hub_net_head *h)
{
    struct pull_slot *s = ctx;
    s->head = *h;
    pull_fetch_judge(s, h);
    if (s->why.code != ERR_NONE) {
        s->has_ended = true;
        hub_net_cancel(s->call);
        s->call = NULL;
        return;
    }
    pull_fetch_validate(s, h);
    if (!h->is_hub && h->url.len < sizeof s->f->sources->url)
        memcpy(s->f->sources[s->endpoint].url, h->url.p, h->url.len + 1);
    s->f->is_probed = true;
    s->has_digest = h->digest_size > 0;
    if (h->digest_size == 16)
        digest_md5_init(&s->digest);
    else if (h->digest_size == 32)
        digest_sha256_init(&s->digest);
}

/* --- bytes ------------------------------------------------------------------------------------ */

static bool pull_fetch_is_magic(const struct pull_slot *s, str bytes)
{
    static const char magic[4] = {'G', 'G', 'U', 'F'};
    for (size_t i = 0; i < bytes.len && s->at + i < sizeof magic; i++)
        if (bytes.p[i] != magic[s->at + i])
            return false;
    return true;
}

static bool pull_fetch_write(struct pull_fetch_job *f, uint64_t at, str bytes)
{
    while (bytes.len) {
        ssize_t n = pwrite(f->o->part_fd, bytes.p, bytes.len, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set_errno(&f->fatal, n < 0 ? errno : EIO, "%.*s: %llu bytes are missing, "
                                 "what came is kept", STR_ARG(f->s->path),
                                 (unsigned long long)(f->s->size - f->received));
        bytes = str_from(bytes, (size_t)n);
        at += (uint64_t)n;
    }
    return true;
}

/* On a second look only what differs is written. */
static bool pull_fetch_compare(struct pull_slot *s, str bytes)
{
    struct pull_fetch_job *f = s->f;
    ssize_t n = pread(f->o->part_fd, f->block, bytes.len, (off_t)s->at);
    uint64_t at = s->at;
    s->at += bytes.len;
    if (n == (ssize_t)bytes.len && !memcmp(f->block, bytes.p, bytes.len))
        return true;
    s->differs = true;
    return pull_fetch_write(f, at, bytes);
}

/* What was received goes to the file. False: the disk's failure is fatal, and s->at is back where
 * the file ends for sure. */
static bool pull_fetch_flush(struct pull_slot *s)
{
    size_t len = s->held;
    s->held = 0;
    s->f->received -= len; /* a failure tells how much is missing */
    s->at -= len;
    if (!pull_fetch_write(s->f, s->at, str_view(s->hold, len)))
        return false;
    s->f->received += len;
    s->at += len;
    return true;
}

static bool pull_fetch_hold(struct pull_slot *s, str bytes)
{
    while (bytes.len) {
        if (s->held == PULL_FETCH_WRITE && !pull_fetch_flush(s))
            return false;
        size_t n = base_min(bytes.len, PULL_FETCH_WRITE - s->held);
        memcpy(s->hold + s->held, bytes.p, n);
        s->held += n;
        s->at += n;
        s->f->received += n;
        bytes = str_from(bytes, n);
    }
    return true;
}

static void pull_fetch_stop_slot(struct pull_slot *s)
{
    s->has_ended = true;
    hub_net_cancel(s->call);
    s->call = NULL;
}

static void pull_fetch_on_bytes(void *ctx, str bytes)
{
    struct pull_slot *s = ctx;
    struct pull_fetch_job *f = s->f;
    if (bytes.len > s->until - s->at) {
        pull_fetch_wrong(s, ERR_FORMAT, "sends more bytes than it announced");
        pull_fetch_stop_slot(s);
        return;
    }
    if (f->o->is_gguf && s->at < 4 && !pull_fetch_is_magic(s, bytes)) {
        pull_fetch_wrong(s, ERR_FORMAT, "sends something that is no GGUF file");
        pull_fetch_stop_slot(s);
        return;
    }
    if (s->has_digest)
        digest_sha256_add(&s->digest, bytes);
    if (!(s->is_compared ? pull_fetch_compare(s, bytes) : pull_fetch_hold(s, bytes)))
        pull_fetch_stop_slot(s);
}

static void pull_fetch_on_end(void *ctx, const struct err *why)
{
    struct pull_slot *s = ctx;
    s->call = NULL;
    s->has_ended = true;
    s->how = PULL_AGAIN;
    if (why)
        s->why = *why;
    else if (s->at < s->until)
        err_set(&s->why, ERR_UPSTREAM, "the answer ended %llu bytes early",
                (unsigned long long)(s->until - s->at));
}

/* --- slots ------------------------------------------------------------------------------------ */

static void pull_fetch_free(struct pull_fetch_job *f, uint32_t i)
{
    f->pieces[i].state = PULL_PIECE_FREE;
    if (i < f->scan_from)
        f->scan_from = i;
}

/* While nobody answers well, one piece at a time asks, and waits as long as it must. */
static uint32_t pull_fetch_next(struct pull_fetch_job *f, int64_t now)
{
    uint32_t i = f->scan_from;
    while (i < f->s->pieces && f->pieces[i].state != PULL_PIECE_FREE)
        i++;
    f->scan_from = i;
    for (; i < f->s->pieces; i++) {
        if (f->pieces[i].state != PULL_PIECE_FREE)
            continue;
        if (f->pieces[i].not_before_ms <= now)
            return i;
        if (!f->is_probed)
            break;
    }
    return UINT32_MAX;
}

static bool pull_fetch_start(struct pull_fetch_job *f, struct pull_slot *s, uint32_t i)
{
    struct pull_piece *p = &f->pieces[i];
    uint64_t first = (uint64_t)i * f->s->piece_size;
    *s = (struct pull_slot){.f = f, .hold = s->hold, .is_used = true, .piece = i,
                            .endpoint = p->endpoint,
                            .from = first + p->got, .at = first + p->got,
                            .until = first + pull_state_piece_bytes(f->s, i),
                            .window_ms = loop_ms(), .is_compared = f->is_comparing};
    s->window_at = s->at;
    const char *address = f->sources[s->endpoint].url;
    s->by_address = address[0] != 0;
    str url = str_of(address);
    if (!s->by_address) {
        buf_clear(&f->url);
        if (!hub_net_file_url(f->o->net, &f->url, f->endpoints[s->endpoint], f->o->query))
            return err_set(&f->fatal, ERR_LIMIT, "hub: an address longer than %u bytes",
                           HUB_NET_URL_MAX);
        url = buf_view(&f->url);
    }
    struct hub_net_request r = {
        .url = url,
        .has_range = s->from != 0 || s->until != f->s->size,
        .first = s->from,
        .last = s->until - 1,
        .has_own_connection = f->is_comparing,
        .ctx = s,
        .on_head = pull_fetch_on_head,
        .on_bytes = pull_fetch_on_bytes,
        .on_end = pull_fetch_on_end,
    };
    p->state = PULL_PIECE_BUSY;
    return hub_net_start(f->o->net, &s->call, &r, &f->fatal);
}

/* Until one answer has shown what we deal with, nobody else asks. */
static bool pull_fetch_fill(struct pull_fetch_job *f)
{
    int64_t now = loop_ms();
    uint32_t used = 0;
    for (uint32_t i = 0; i < f->o->connections; i++)
        used += f->slots[i].is_used;
    for (uint32_t i = 0; i < f->o->connections; i++) {
        if (f->slots[i].is_used || (!f->is_probed && used > 0))
            continue;
        uint32_t piece = pull_fetch_next(f, now);
        if (piece == UINT32_MAX)
            return true;
        if (!pull_fetch_start(f, &f->slots[i], piece))
            return false;
        used++;
    }
    return true;
}

static void pull_fetch_retry(struct pull_fetch_job *f, struct pull_slot *s)
{
    struct pull_piece *p = &f->pieces[s->piece];
    int64_t now = loop_ms(), wait = f->o->retry_ms << p->tries;
    bool has_other = f->endpoints_count > 1;
    pull_fetch_free(f, s->piece);
    if (s->at - s->from >= PULL_FETCH_PROGRESS)
        p->tries = p->rounds = p->waits = 0;
    else if (s->how != PULL_EXPIRED)
        f->is_probed = false;
    if (s->how == PULL_FATAL || (s->how == PULL_SOURCE && !has_other)) {
        f->fatal = s->why;
        return;
    }
    if (s->how == PULL_EXPIRED || s->how == PULL_SOURCE || s->how == PULL_AGAIN)
        f->sources[s->endpoint].url[0] = 0;
    if (s->how == PULL_EXPIRED && p->tries == 0)
        wait = 0; /* a signed address has a life span: nothing is wrong */
    if (s->how == PULL_WAIT) {
        if (p->waits++ >= HUB_NET_WAITS_MAX || s->wait_ms > HUB_NET_WAIT_MAX_S * 1000) {
            f->fatal = s->why;
            return;
        }
        wait = s->wait_ms;
    } else if (s->how == PULL_SOURCE || p->tries++ == HUB_NET_RETRIES) {
        p->tries = 0;
        p->endpoint = (p->endpoint + 1) % f->endpoints_count;
        if (++p->rounds == PULL_FETCH_ROUNDS) {
            f->fatal = s->why;
            err_wrap(&f->fatal, "%.*s: given up after %d rounds of retries", STR_ARG(f->s->path),
                     PULL_FETCH_ROUNDS);
            return;
        }
    }
    p->not_before_ms = now + wait;
    if (wait && now - f->noted_ms >= PULL_FETCH_NOTE_MS) {
        f->noted_ms = now;
        hub_net_note(f->o->net, "%s; trying again in %.1f s", s->why.text, (double)wait / 1000);
    }
}

/* The answer's own checksum, where a server sends one: a damaged piece is known at once. */
static bool pull_fetch_check_digest(struct pull_slot *s)
{
    uint8_t sum[32];
    struct err e;
    s->has_digest = false;
    if (digest_sha256_end(&s->digest, sum, &e) &&
        !memcmp(sum, s->head.digest, s->head.digest_size))
        return true;
    s->how = PULL_AGAIN;
    err_set(&s->why, ERR_FORMAT, "piece %u does not have the checksum that came with it",
            s->piece);
    if (!s->is_compared)
        s->f->received -= s->at - s->from;
    s->at = s->from;
    return false;
}

static void pull_fetch_settle(struct pull_fetch_job *f, struct pull_slot *s)
{
    struct pull_piece *p = &f->pieces[s->piece];
    uint64_t first = (uint64_t)s->piece * f->s->piece_size;
    struct pull_disk_job job = {.kind = PULL_DISK_PIECE, .piece = s->piece};
    bool is_good = s->why.code == ERR_NONE;
    if (!pull_fetch_flush(s))
        return;
    if (s->has_digest && is_good)
        is_good = pull_fetch_check_digest(s);
    if (s->has_digest) {
        digest_sha256_drop(&s->digest);
        s->has_digest = false;
    }
    s->is_used = false;
    p->got = s->at - first;
    p->differs = p->differs || s->differs;
    if (!is_good) {
        pull_fetch_retry(f, s);
    } else if (p->got < pull_state_piece_bytes(f->s, s->piece)) {
        pull_fetch_free(f, s->piece); /* a server may send less than the range */
    } else if (s->is_compared && !p->differs) {
        p->state = PULL_PIECE_DONE;
        f->compared++;
    } else {
        f->compared += s->is_compared;
        f->replaced += s->is_compared;
        p->state = PULL_PIECE_WRITTEN;
        if (!pull_disk_push(f->disk, &job)) /* at most one a slot is under way */
            err_set(&f->fatal, ERR_INTERNAL, "pull: the disk's queue is full");
    }
}

/* Bytes that trickle are a stall too. */
static void pull_fetch_watch(struct pull_fetch_job *f, struct pull_slot *s, int64_t now)
{
    int64_t span = f->o->idle_ms;
    if (!s->is_used || s->has_ended || now - s->window_ms < span)
        return;
    if ((int64_t)(s->at - s->window_at) * 1000 < HUB_NET_RATE_MIN * span) {
        s->how = PULL_AGAIN;
        err_set(&s->why, ERR_DEADLINE, "%.*s: hardly anything came for %lld s",
                STR_ARG(f->s->path), (long long)(span / 1000));
        pull_fetch_stop_slot(s);
    }
    s->window_ms = now;
    s->window_at = s->at;
}

/* --- what the disk says ----------------------------------------------------------------------- */

static void pull_fetch_push(struct pull_fetch_job *f, enum pull_disk_job_kind kind)
{
    struct pull_disk_job job = {.kind = kind};
    if (!pull_disk_push(f->disk, &job))
        err_set(&f->fatal, ERR_INTERNAL, "pull: the disk's queue is full");
}

static bool pull_fetch_begin_comparing(struct pull_fetch_job *f)
{
    if (f->pass++ == PULL_FETCH_PASSES)
        return false;
    hub_net_note(f->o->net, "%.*s: the sha256 is not the published one; fetching every piece again "
                 "and replacing what differs", STR_ARG(f->s->path));
    f->is_comparing = true;
    f->is_rehashing = false;
    f->compared = f->replaced = f->scan_from = 0;
    for (uint32_t i = 0; i < f->s->pieces; i++) {
        f->pieces[i] = (struct pull_piece){.endpoint = f->pass % f->endpoints_count};
        f->s->marks[i].is_done = true;
    }
    for (uint32_t i = 0; i < f->endpoints_count; i++)
        f->sources[i].url[0] = 0;
    return true;
}

/* Wrong: first the disk is asked, then the network. */
static void pull_fetch_on_wrong(struct pull_fetch_job *f)
{
    bool is_steady = f->is_comparing && !f->replaced && f->endpoints_count == 1;
    if (!f->is_reread) {
        f->is_reread = true;
        pull_fetch_push(f, PULL_DISK_REREAD);
    } else if (is_steady || !pull_fetch_begin_comparing(f)) {
        err_set(&f->fatal, ERR_FORMAT, "%.*s: the bytes that come do not have the sha256 that the "
                "hub publishes; nothing is kept under the model's name", STR_ARG(f->s->path));
    }
}

static void pull_fetch_on_marked(struct pull_fetch_job *f, uint32_t i)
{
    f->pieces[i].state = PULL_PIECE_DONE;
    f->s->marks[i].is_done = true;
}

/* All were looked at once more: did it help? */
static void pull_fetch_end_comparing(struct pull_fetch_job *f)
{
    if (!f->is_comparing || f->is_rehashing || f->compared < f->s->pieces)
        return;
    f->is_rehashing = true;
    if (f->replaced)
        pull_fetch_push(f, PULL_DISK_REHASH); /* behind the jobs of the replaced pieces */
    else
        pull_fetch_on_wrong(f);
}

static void pull_fetch_on_bad(struct pull_fetch_job *f, uint32_t i)
{
    if (f->pieces[i].state == PULL_PIECE_DONE)
        f->received -= pull_state_piece_bytes(f->s, i);
    f->pieces[i] = (struct pull_piece){0};
    pull_fetch_free(f, i);
    f->s->marks[i] = (struct pull_mark){0};
    hub_net_note(f->o->net, "%.*s: piece %u on the disk is damaged; fetching it again",
                 STR_ARG(f->s->path), i);
}

static void pull_fetch_drain(struct pull_fetch_job *f)
{
    struct pull_disk_note n;
    while (pull_disk_pop(f->disk, &n)) {
        switch (n.kind) {
        case PULL_DISK_MARKED:
            pull_fetch_on_marked(f, n.piece);
            break;
        case PULL_DISK_BAD:
            pull_fetch_on_bad(f, n.piece);
            break;
        case PULL_DISK_HASHED:
            f->is_hashed = f->is_good = n.is_good;
            if (!n.is_good)
                pull_fetch_on_wrong(f);
            break;
        case PULL_DISK_REREAD_END:
            if (n.piece == 0)
                pull_fetch_on_wrong(f);
            break;
        case PULL_DISK_SAVED:
            f->is_saving = false;
            break;
        case PULL_DISK_FAILED:
            f->fatal = n.err;
            break;
        }
    }
}

/* --- the run ---------------------------------------------------------------------------------- */

/* Of pieces that wait for another try. */
static void pull_fetch_add_waiting(const struct pull_fetch_job *f, struct pull_disk_job *job)
{
    for (uint32_t i = 0; i < f->s->pieces && job->parts_count < PULL_DISK_PARTS; i++) {
        const struct pull_piece *p = &f->pieces[i];
        if (p->state != PULL_PIECE_FREE || !p->got)
            continue;
        job->parts[job->parts_count].piece = i;
        job->parts[job->parts_count++].bytes = p->got;
    }
}

/* Unfinished pieces are written down now and then, so that a crash costs seconds. */
static void pull_fetch_save(struct pull_fetch_job *f, bool is_last)
{
    struct pull_disk_job job = {.kind = PULL_DISK_PARTS_NOW};
    int64_t now = loop_ms();
    if ((f->is_saving || now - f->saved_ms < PULL_FETCH_SAVE_MS || f->is_comparing) && !is_last)
        return;
    for (uint32_t i = 0; i < f->o->connections && job.parts_count < PULL_DISK_PARTS; i++) {
        struct pull_slot *s = &f->slots[i];
        uint64_t first = (uint64_t)s->piece * f->s->piece_size;
        if (!s->is_used || s->is_compared || s->at == first || !pull_fetch_flush(s))
            continue;
        job.parts[job.parts_count].piece = s->piece;
        job.parts[job.parts_count++].bytes = s->at - first;
    }
    if (!f->is_comparing)
        pull_fetch_add_waiting(f, &job);
    f->saved_ms = now;
    if (job.parts_count)
        f->is_saving = pull_disk_push(f->disk, &job);
}

static void pull_fetch_on_disk(void *ctx, enum loop_ready ready) { (void)ctx, (void)ready; }

static bool pull_fetch_step(struct pull_fetch_job *f)
{
    struct err stopped = {0};
    if (!pull_fetch_fill(f))
        return false;
    if (!hub_net_turn(f->o->net, 100, &stopped)) {
        f->fatal = stopped;
        return false;
    }
    int64_t now = loop_ms();
    for (uint32_t i = 0; i < f->o->connections; i++) {
        struct pull_slot *s = &f->slots[i];
        pull_fetch_watch(f, s, now);
        if (s->is_used && s->has_ended && f->fatal.code == ERR_NONE)
            pull_fetch_settle(f, s);
    }
    pull_fetch_drain(f);
    pull_fetch_end_comparing(f);
    pull_fetch_save(f, false);
    f->o->on_progress(f->o->ctx, f->received, pull_disk_hashed(f->disk));
    return f->fatal.code == ERR_NONE && !f->wants_restart;
}

static void pull_fetch_wind_up(struct pull_fetch_job *f)
{
    pull_fetch_save(f, true);
    for (uint32_t i = 0; i < PULL_FETCH_SLOTS; i++) {
        hub_net_cancel(f->slots[i].call);
        if (f->slots[i].has_digest)
            digest_sha256_drop(&f->slots[i].digest);
    }
}

static bool pull_fetch_init(struct pull_fetch_job *f, const struct pull_fetch_options *o,
                            struct err *e)
{
    f->o = o;
    f->s = o->state;
    f->endpoints_count = hub_net_endpoints(o->net, o->query, &f->endpoints);
    f->pieces = calloc((size_t)f->s->pieces + 1, sizeof *f->pieces);
    f->sources = calloc(f->endpoints_count, sizeof *f->sources);
    f->block = malloc(1u << 20);
    f->holds = malloc(PULL_FETCH_WRITE * o->connections);
    for (uint32_t i = 0; f->holds && i < o->connections; i++)
        f->slots[i].hold = f->holds + PULL_FETCH_WRITE * i;
    f->saved_ms = loop_ms();
    buf_init(&f->url, HUB_NET_URL_MAX);
    if (!f->pieces || !f->sources || !f->block || !f->holds)
        return err_set(e, ERR_MEMORY, "pull: no memory for %u pieces", f->s->pieces);
    for (uint32_t i = 0; i < f->s->pieces; i++) {
        f->pieces[i].got = f->s->marks[i].got;
        if (f->s->marks[i].is_done)
            f->pieces[i].state = PULL_PIECE_DONE;
    }
    f->received = pull_state_received(f->s);
    f->is_resumed = f->received > 0;
    return pull_disk_open(&f->disk, f->s, o->part_fd, o->state_fd, e) &&
           loop_watch_open(&f->watch, hub_net_loop(o->net), pull_disk_fd(f->disk),
                           pull_fetch_on_disk, f, e);
}

enum pull_fetch_end pull_fetch(const struct pull_fetch_options *o, struct err *e)
{
    enum pull_fetch_end end = PULL_FETCH_FAILED;
    struct pull_fetch_job *f = calloc(1, sizeof *f);
    must(o->connections >= 1 && o->connections <= PULL_FETCH_SLOTS);
    if (!f) {
        err_set(e, ERR_MEMORY, "pull: no memory");
        return end;
    }
    if (!pull_fetch_init(f, o, e))
        goto done;
    loop_watch_set(&f->watch, LOOP_READY_READ, true);
    pull_fetch_drain(f);
    while (!f->is_hashed && pull_fetch_step(f))
        continue;
    pull_fetch_wind_up(f);
    if (f->fatal.code != ERR_NONE)
        *e = f->fatal;
    else
        end = f->wants_restart ? PULL_FETCH_RESTART : PULL_FETCH_DONE;
done:
    loop_watch_close(&f->watch);
    pull_disk_close(f->disk);
    buf_deinit(&f->url);
    free(f->holds);
    free(f->block);
    free(f->sources);
    free(f->pieces);
    free(f);
    return end;
}
