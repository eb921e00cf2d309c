#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MEM_PAGE ((size_t)4096)
#define MEM_HUGE ((size_t)2 << 20)
#define MEM_NAME_MAX 32
#define MEM_NAMES_SHOWN 4 /* the largest ones explain a refusal; an error holds 240 bytes */

struct mem_block {
    struct mem_block *next;
    void *p;
    size_t size;
    bool is_mapped;
    char name[MEM_NAME_MAX];
};

void mem_init(struct mem *m, size_t bytes_max) { *m = (struct mem){.bytes_max = bytes_max}; }

void mem_init_counting(struct mem *m, size_t bytes_max)
{
    *m = (struct mem){.bytes_max = bytes_max, .is_counting = true};
}

static void mem_release(struct mem_block *b)
{
    if (b->is_mapped)
        munmap(b->p, b->size);
    else
        free(b->p);
    free(b);
}

void mem_deinit(struct mem *m)
{
    for (struct mem_block *b = m->blocks, *next; b; b = next) {
        next = b->next;
        mem_release(b);
    }
    *m = (struct mem){0};
}

/* The kernel gives huge pages only to aligned stretches of 2 MiB: map one stretch too many and cut
 * both ends off. */
static void *mem_map_huge(size_t size)
{
    size_t wide;
    if (!base_add(&wide, size, MEM_HUGE))
        return NULL;
    char *p = mmap(NULL, wide, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    size_t head = base_align((size_t)(uintptr_t)p, MEM_HUGE) - (size_t)(uintptr_t)p;
    if (head)
        munmap(p, head);
    if (head < MEM_HUGE)
        munmap(p + head + size, MEM_HUGE - head);
    madvise(p + head, size, MADV_HUGEPAGE); /* a kernel without them serves small pages */
    return p + head;
}

/* What nobody can write is not committed, so a count may be larger than the machine. */
static void *mem_map_zeros(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static size_t mem_sum(const struct mem *m, const char *name)
{
    size_t sum = 0;
    for (const struct mem_block *b = m->blocks; b; b = b->next)
        if (!strcmp(b->name, name))
            sum += b->size;
    return sum;
}

/* The name with the largest sum below (sum, name) in the order of the list; a handful of names, so
 * looking through all blocks per name costs nothing. */
static const char *mem_next_name(const struct mem *m, size_t below, const char *after, size_t *sum)
{
    const char *best = NULL;
    *sum = 0;
    for (const struct mem_block *b = m->blocks; b; b = b->next) {
        size_t s = mem_sum(m, b->name);
        if (after && (s > below || (s == below && strcmp(b->name, after) <= 0)))
            continue;
        if (!best || s > *sum || (s == *sum && strcmp(b->name, best) < 0)) {
            best = b->name;
            *sum = s;
        }
    }
    return best;
}

/* "weights 5.0 GB, scratch 0.5 GB": one entry per name, largest first, at most names_max. */
static void mem_add_names(const struct mem *m, struct buf *out, size_t names_max)
{
    const char *name = NULL;
    size_t sum = SIZE_MAX;
    for (size_t i = 0; i < names_max; i++) {
        name = mem_next_name(m, sum, name, &sum);
        if (!name)
            return;
        buf_printf(out, "%s%s ", i ? ", " : "", name);
        buf_add_size(out, sum);
    }
}

static bool mem_refuse(const struct mem *m, const char *name, size_t size, bool by_system,
                       struct err *e)
{
    struct buf b;
    buf_init(&b, 4096);
    buf_printf(&b, "memory: %s needs ", name);
    buf_add_size(&b, size);
    buf_add_z(&b, ", but ");
    if (by_system) {
        buf_add_z(&b, "the system refused it");
    } else {
        buf_add_size(&b, m->bytes_used);
        buf_add_z(&b, " of ");
        buf_add_size(&b, m->bytes_max);
        buf_add_z(&b, " are taken");
    }
    if (m->bytes_used) {
        buf_add_z(&b, " (");
        mem_add_names(m, &b, MEM_NAMES_SHOWN);
        buf_add_z(&b, ")");
    }
    err_set(e, ERR_MEMORY, "%s", b.p ? b.p : "memory: the heap is full");
    buf_deinit(&b);
    return false;
}

static struct mem_block *mem_block_new(struct mem *m, const char *name, size_t size,
                                       struct err *e)
{
    if (size > m->bytes_max - m->bytes_used) {
        mem_refuse(m, name, size, false, e);
        return NULL;
    }
    struct mem_block *b = calloc(1, sizeof *b);
    if (!b) {
        mem_refuse(m, name, size, true, e);
        return NULL;
    }
    b->size = size;
    size_t len = base_min(strlen(name), MEM_NAME_MAX - 1);
    memcpy(b->name, name, len);
    return b;
}

static void mem_block_add(struct mem *m, struct mem_block *b)
{
    b->next = m->blocks;
    m->blocks = b;
    m->count++;
    m->bytes_used += b->size;
    m->bytes_peak = base_max(m->bytes_peak, m->bytes_used);
}

void *mem_new(struct mem *m, const char *name, size_t size, struct err *e)
{
    if (size > SIZE_MAX / 2) { /* so that rounding cannot wrap */
        mem_refuse(m, name, size, false, e);
        return NULL;
    }
    bool is_large = size >= MEM_HUGE;
    size = base_align(base_max(size, 1), is_large ? MEM_PAGE : MEM_ALIGN);
    struct mem_block *b = mem_block_new(m, name, size, e);
    if (!b)
        return NULL;
    b->is_mapped = is_large;
    if (is_large)
        b->p = m->is_counting ? mem_map_zeros(size) : mem_map_huge(size);
    else
        b->p = aligned_alloc(MEM_ALIGN, size);
    if (!b->p) {
        free(b);
        mem_refuse(m, name, size, true, e);
        return NULL;
    }
    if (!is_large)
        memset(b->p, 0, size);
    mem_block_add(m, b);
    return b->p;
}

void *mem_new_array(struct mem *m, const char *name, size_t count, size_t size, struct err *e)
{
    size_t bytes;
    return mem_new(m, name, base_mul(&bytes, count, size) ? bytes : SIZE_MAX, e);
}

void mem_free(struct mem *m, void *p)
{
    if (!p)
        return;
    struct mem_block **at = &m->blocks;
    while (*at && (*at)->p != p)
        at = &(*at)->next;
    must(*at);
    struct mem_block *b = *at;
    *at = b->next;
    m->count--;
    m->bytes_used -= b->size;
    mem_release(b);
}
