#include "engine/sched_share.h"

#include "base/digest.h"

/* Start-time fair queueing (Goyal, Vin, Cheng 1996): tags of the agents instead of packets. Its
 * virtual time is the least tag of those that are open. */

static void sched_share_turn(struct sched_share *s)
{
    const struct sched_share_account *least = NULL;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->accounts[i].open && (!least || s->accounts[i].service < least->service))
            least = &s->accounts[i];
    if (least && least->service > s->time)
        s->time = least->service;
}

/* Owner and agent are apart: "a" of key "bc" is not "ab" of key "c". */
static uint64_t sched_share_who(str owner, str agent)
{
    uint64_t who = digest_xxh3(agent, digest_xxh3(owner, owner.len));
    return who ? who : 1;
}

/* The place for an account that is not there yet. */
static uint32_t sched_share_place(struct sched_share *s)
{
    if (s->count < SCHED_SHARE_MAX)
        return s->count++;
    uint32_t oldest = SCHED_SHARE_MAX;
    for (uint32_t i = 0; i < s->count; i++)
        if (!s->accounts[i].open &&
            (oldest == SCHED_SHARE_MAX || s->accounts[i].used < s->accounts[oldest].used))
            oldest = i;
    return oldest;
}

uint32_t sched_share_enter(struct sched_share *s, str owner, str agent, uint32_t weight)
{
    uint64_t who = sched_share_who(owner, agent);
    uint32_t at = 0;
    sched_share_turn(s);
    while (at < s->count && s->accounts[at].who != who)
        at++;
    if (at == s->count) {
        at = sched_share_place(s);
        if (at == SCHED_SHARE_MAX)
            at = SCHED_SHARE_MAX - 1; /* all are open: this one is shared */
        else
            s->accounts[at] = (struct sched_share_account){.who = who};
    }
    struct sched_share_account *a = &s->accounts[at];
    if (!a->open && a->service < s->time)
        a->service = s->time;
    a->weight = weight ? weight : 1;
    a->open++;
    a->used = ++s->clock;
    return at;
}

void sched_share_leave(struct sched_share *s, uint32_t account)
{
    must(account < s->count && s->accounts[account].open > 0);
    sched_share_turn(s);
    s->accounts[account].open--;
}

void sched_share_charge(struct sched_share *s, uint32_t account, uint32_t tokens)
{
    must(account < s->count);
    s->accounts[account].service += (double)tokens / s->accounts[account].weight;
}
