/* hub_pick - which files of a repository are meant.
 *
 * Owns:      the rules of BEHAVIOUR 4.4: file, quant, Q4_K_M, sets, projectors, safetensors.
 * Not:       the list itself (hub), names in our store (hub_ref).
 * Invariant: all shards of a set come together or not at all. Pure.
 * Thread:    any.
 * Limits:    those of hub.
 */
#ifndef SHOAL_STORE_HUB_PICK_H
#define SHOAL_STORE_HUB_PICK_H

#include "store/hub.h"

/* One model of a repository: a file, or the shards of a set. */
struct hub_model {
    str name;       /* path without "-00001-of-00003" and ".gguf" */
    uint32_t first; /* index of its first shard in the picture's order */
    uint32_t shards, shards_total;
    uint64_t size;  /* HUB_SIZE_UNKNOWN when one is not told */
};

/* The GGUF models of a repository, by path. order[] lists indices of repo->files. */
struct hub_models {
    struct hub_model *models;
    uint32_t count;
    uint32_t *order;
};
bool hub_pick_models(struct hub_models *out, const struct hub_repo *repo, struct arena *a,
                     struct err *e) BASE_USE_RESULT;

struct hub_query {
    str repo;        /* for sentences */
    str quant, file; /* or empty */
    bool wants_projector;
    /* Can a safetensors model of this model_type be used? NULL: none can. */
    bool (*supports)(void *ctx, str model_type);
    void *ctx;
};
struct hub_pick {
    const struct hub_file **files; /* shards in order, then the projector */
    uint32_t count;
    bool is_directory;  /* safetensors: the files make one directory */
    bool has_projector; /* the last file is one */
};
/* ERR_NOT_FOUND lists what there is, ERR_REQUEST what is ambiguous, ERR_UNSUPPORTED. */
bool hub_pick(struct hub_pick *out, const struct hub_repo *repo, const struct hub_query *q,
              struct arena *a, struct err *e) BASE_USE_RESULT;

#endif
