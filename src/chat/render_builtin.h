/* render_builtin - chat templates for models that bring none.
 *
 * Owns:      their source, and the control tokens by which a vocabulary shows its family.
 * Not:       when they apply (render).
 * Invariant: written by us, compiled by the same engine as every template; tests/golden/templates
 *            holds each as own_NAME.jinja beside what Jinja2 prints for it.
 * Thread:    constants.
 */
#ifndef SHOAL_CHAT_RENDER_BUILTIN_H
#define SHOAL_CHAT_RENDER_BUILTIN_H

#include "base/str.h"

#define RENDER_BUILTIN_TOKENS_MAX 3
struct render_builtin {
    const char *name;
    const char *tokens[RENDER_BUILTIN_TOKENS_MAX]; /* all of them mark the family */
    const char *source;
};
extern const struct render_builtin render_builtin_rows[];
extern const uint32_t render_builtin_count;

/* NULL: none of that name. */
const struct render_builtin *render_builtin_find(str name);

#endif
