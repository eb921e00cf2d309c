/* sched_share - how much of the engine each agent has had, by weight.
 *
 * Owns:      an account per (key's owner, agent): weighted tokens, its open jobs; the time that all
 *            of them share.
 * Not:       the order of the waiting line (sched_policy), when tokens are computed (sched).
 * Invariant: an account that opens starts no lower than the least of the open ones: who was away
 *            saves nothing up. What is admitted is charged at once, so an agent that comes with no
 *            more than the others lets at most one request of each other agent of its class pass,
 *            whatever they sent before; and two agents that always wait get tokens by their
 *            weights, but for one request of each per slot.
 *
 *     enter --> charge(prompt, at admission) --> charge(1, per token) --> leave
 *     time:  least service of the open accounts; it never goes back
 *
 * Thread:    engine thread.
 * Limits:    SCHED_SHARE_MAX accounts; the one unused for longest is forgotten. Where all of them
 *            are open, further agents share one.
 */
#ifndef SHOAL_ENGINE_SCHED_SHARE_H
#define SHOAL_ENGINE_SCHED_SHARE_H

#include "base/str.h"

#define SCHED_SHARE_MAX 1024u

struct sched_share_account {
    uint64_t who;    /* fingerprint; 0: unused */
    double service;  /* tokens / weight */
    uint32_t weight; /* of the newest request, >= 1 */
    uint32_t open;   /* jobs that wait or run */
    uint64_t used;
};
struct sched_share {
    struct sched_share_account accounts[SCHED_SHARE_MAX];
    uint32_t count;
    uint64_t clock;
    double time;
};

/* A job of that agent came: its account, for the calls below. weight 0 counts as 1. */
uint32_t sched_share_enter(struct sched_share *s, str owner, str agent, uint32_t weight);
void sched_share_leave(struct sched_share *s, uint32_t account);
void sched_share_charge(struct sched_share *s, uint32_t account, uint32_t tokens);
static inline double sched_share_service(const struct sched_share *s, uint32_t account)
{
    return s->accounts[account].service;
}

#endif
