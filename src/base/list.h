/* list - the one intrusive list: doubly linked, circular, with a head that is no item.
 *
 * Owns:      nothing; a struct list is a member of the items and of whoever holds the head.
 * Not:       hash map (map), fixed queue (ring).
 * Invariant: an item is in at most one list per link; list_remove leaves its link pointing to
 *            itself, so removing twice is harmless.
 *
 *     head <-> item.link <-> item.link <-> (head)
 *
 * Thread:    its owner's.
 * Limits:    none of its own: the items are counted where they are made.
 */
#ifndef SHOAL_BASE_LIST_H
#define SHOAL_BASE_LIST_H

#include "base/base.h"

struct list {
    struct list *next, *prev;
};

/* The item that holds this link: list_item(link, struct seq, by_age). */
#define list_item(link, type, member) ((type *)(void *)((char *)(link) - offsetof(type, member)))

/* The item at hand may be removed in the loop: the next link is read before the body runs. */
#define list_each(link, head)                                                                \
    for (struct list *link = (head)->next, *link##_next = link->next; link != (head);        \
         link = link##_next, link##_next = link->next)

static inline void list_init(struct list *l) { l->next = l->prev = l; }
static inline bool list_is_empty(const struct list *head) { return head->next == head; }

static inline void list_insert_after(struct list *at, struct list *item)
{
    item->prev = at;
    item->next = at->next;
    at->next->prev = item;
    at->next = item;
}

static inline void list_push_first(struct list *head, struct list *item)
{
    list_insert_after(head, item);
}

static inline void list_push_last(struct list *head, struct list *item)
{
    list_insert_after(head->prev, item);
}

static inline void list_remove(struct list *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    list_init(item);
}

/* First or last link without removing it, or NULL. */
static inline struct list *list_first(const struct list *head)
{
    return list_is_empty(head) ? NULL : head->next;
}

static inline struct list *list_last(const struct list *head)
{
    return list_is_empty(head) ? NULL : head->prev;
}

#endif
