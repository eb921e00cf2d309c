/* sched_share - how much of the engine each key has had, and of a key's each agent, by weight.
 *
 * Owns:      an account per key and per agent of a key: weighted tokens, open jobs; the time that
 *            all keys share, and of each key the time that its agents share.
 * Not:       the order of the waiting line (sched_policy), when tokens are computed (sched).
 * Invariant: an account that opens starts no lower than the least open one beside it: who was away
 *            saves nothing up. What is admitted is charged at once, so a key that comes with no
 *            more than the others lets at most one request of each other key of its class pass,
 *            whatever they sent before and under however many names; likewise an agent, by those
 *            of its key. Two keys that always wait get tokens by their weights, but for one
 *            request of each per slot; and so do two agents of a key, of the key's share.
 *
 *     enter --> charge(prompt, at admission) --> charge(1, per token) --> leave
 *     time:  least service of the open accounts; it never goes back
 *
 * Thread:    engine thread.
 * Limits:    SCHED_SHARE_KEYS_MAX keys, SCHED_SHARE_MAX agents; what is unused for longest is
 *            forgotten. Where all are open, further agents of a key share one, further keys the
 *            last.
 */
#ifndef SHOAL_ENGINE_SCHED_SHARE_H
#define SHOAL_ENGINE_SCHED_SHARE_H

#include "base/str.h"

#define SCHED_SHARE_MAX 1024u
#define SCHED_SHARE_KEYS_MAX 512u /* twice what may be configured: a reload names others */

struct sched_share_account {
    uint64_t who;    /* fingerprint; 0: unused, or what a key's further agents share */
    double service;  /* tokens / weight */
    double time;     /* of a key: its agents' */
    uint32_t weight; /* of the newest request, >= 1 */
    uint32_t open;   /* jobs that wait or run */
    uint32_t key;    /* of an agent */
    uint64_t used;
};
struct sched_share {
    struct sched_share_account keys[SCHED_SHARE_KEYS_MAX];
    struct sched_share_account agents[SCHED_SHARE_MAX + SCHED_SHARE_KEYS_MAX]; /* last: by key */
    uint64_t clock;
    double time;
};

struct sched_share_who {
    str key, agent;                   /* "": no keys are configured, so all are of one */
    uint32_t key_weight, agent_weight; /* 0 counts as 1 */
};
/* A job of that agent came: its account, for the calls below. */
uint32_t sched_share_enter(struct sched_share *s, const struct sched_share_who *who);
void sched_share_leave(struct sched_share *s, uint32_t account);
void sched_share_charge(struct sched_share *s, uint32_t account, uint32_t tokens);
static inline double sched_share_service(const struct sched_share *s, uint32_t account)
{
    return s->agents[account].service;
}
static inline double sched_share_key_service(const struct sched_share *s, uint32_t account)
{
    return s->keys[s->agents[account].key].service;
}
/* The least service of the open agents of its key. */
static inline double sched_share_key_time(const struct sched_share *s, uint32_t account)
{
    return s->keys[s->agents[account].key].time;
}

#endif
