#include "engine/sched_share.h"

#include "base/digest.h"

/* Start-time fair queueing (Goyal, Vin, Cheng 1996) in two levels: tags of keys, and of a key's
 * agents, instead of packets. The virtual time of a level is the least tag of those open there. */

static void sched_share_turn(const struct sched_share_account *a, uint32_t count, uint32_t key,
                             double *time)
{
    const struct sched_share_account *least = NULL;
    for (uint32_t i = 0; i < count; i++)
        if (a[i].open && a[i].key == key && (!least || a[i].service < least->service))
            least = &a[i];
    if (least && least->service > *time)
        *time = least->service;
}

static void sched_share_turn_both(struct sched_share *s, uint32_t key)
{
    sched_share_turn(s->keys, countof(s->keys), 0, &s->time); /* keys are of nothing: all 0 */
    sched_share_turn(s->agents, countof(s->agents), key, &s->keys[key].time);
}

/* The account of who, or the place for it: unused, or else the idle one unused for longest. count:
 * all are open. */
static uint32_t sched_share_find(const struct sched_share_account *a, uint32_t count, uint64_t who)
{
    uint32_t oldest = count;
    for (uint32_t i = 0; i < count; i++) {
        if (a[i].who == who)
            return i;
        if (!a[i].open && (oldest == count || a[i].used < a[oldest].used))
            oldest = i;
    }
    return oldest;
}

static uint64_t sched_share_hash(str name, uint64_t seed)
{
    uint64_t who = digest_xxh3(name, seed);
    return who ? who : 1;
}

static uint32_t sched_share_key(struct sched_share *s, str name)
{
    uint64_t who = sched_share_hash(name, 0);
    uint32_t at = sched_share_find(s->keys, countof(s->keys), who);
    if (at == countof(s->keys))
        return at - 1;
    if (s->keys[at].who == who)
        return at;
    for (uint32_t i = 0; i < countof(s->agents); i++) /* idle as the key that goes */
        if (s->agents[i].key == at && !s->agents[i].open)
            s->agents[i] = (struct sched_share_account){0};
    s->keys[at] = (struct sched_share_account){.who = who};
    return at;
}

static uint32_t sched_share_agent(struct sched_share *s, uint32_t key, str name)
{
    uint64_t who = sched_share_hash(name, s->keys[key].who); /* so its account is of that key */
    uint32_t at = sched_share_find(s->agents, SCHED_SHARE_MAX, who);
    if (at == SCHED_SHARE_MAX)
        at += key;
    else if (s->agents[at].who != who)
        s->agents[at] = (struct sched_share_account){.who = who};
    s->agents[at].key = key;
    return at;
}

static void sched_share_open(struct sched_share *s, struct sched_share_account *a, double time,
                             uint32_t weight)
{
    if (!a->open && a->service < time)
        a->service = time;
    a->weight = weight ? weight : 1;
    a->open++;
    a->used = ++s->clock;
}

uint32_t sched_share_enter(struct sched_share *s, const struct sched_share_who *who)
{
    uint32_t key = sched_share_key(s, who->key);
    uint32_t at = sched_share_agent(s, key, who->agent);
    sched_share_turn_both(s, key);
    sched_share_open(s, &s->keys[key], s->time, who->key_weight);
    sched_share_open(s, &s->agents[at], s->keys[key].time, who->agent_weight);
    return at;
}

void sched_share_leave(struct sched_share *s, uint32_t account)
{
    must(account < countof(s->agents) && s->agents[account].open > 0);
    uint32_t key = s->agents[account].key;
    sched_share_turn_both(s, key);
    s->agents[account].open--;
    s->keys[key].open--;
}

void sched_share_charge(struct sched_share *s, uint32_t account, uint32_t tokens)
{
    must(account < countof(s->agents));
    struct sched_share_account *a = &s->agents[account], *k = &s->keys[a->key];
    a->service += (double)tokens / a->weight;
    k->service += (double)tokens / k->weight;
}
