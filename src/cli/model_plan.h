/* model_plan - a model as far as it is known before its weights are read.
 *
 * Owns:      the open file, hparams, the finished plan for the best backend, bound weights, KV
 *            layout.
 * Not:       the device, loading (tensor/weights), vocabulary and template (engine).
 * Invariant: the steps and their order are those of a load by the engine.
 * Thread:    main.
 * Limits:    the caller's arena.
 */
#ifndef SHOAL_CLI_MODEL_PLAN_H
#define SHOAL_CLI_MODEL_PLAN_H

#include "arch/arch.h"
#include "cli/config.h"
#include "tensor/backend.h"
#include "tensor/weights.h"

struct model_plan {
    struct model_file *file;
    struct hparams hp;
    const struct backend *backend;
    struct plan plan;
    struct weights weights;
    struct kv_layout layout;
};

/* For engine.backend with pages of engine.kv. Everything but the file lies in a. ERR_FORMAT,
 * ERR_UNSUPPORTED, ... as the steps say. */
bool model_plan_open(struct model_plan **out, const char *path, const struct config *config,
                     struct arena *a, struct err *e) BASE_USE_RESULT;
void model_plan_close(struct model_plan *m); /* NULL is allowed */

#endif
