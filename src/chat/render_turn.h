/* render_turn - the messages of a request as the values that a template sees.
 *
 * Owns:      turns (one per template message), their dicts in the order and with the keys that
 *            transformers' users give; tools; which origin each text has; merging of roles.
 * Not:       running a template, its abilities (render).
 * Invariant: every text of the request gets an origin of its table; roles, types of parts and the
 *            keys of the dicts are the template's own words (origin 0).
 * Thread:    one call of render_request.
 * Limits:    the heap's; RENDER_ORIGINS_MAX texts.
 */
#ifndef SHOAL_CHAT_RENDER_TURN_H
#define SHOAL_CHAT_RENDER_TURN_H

#include "chat/jinja_value.h"
#include "chat/output_tools.h"
#include "chat/render.h"

#define RENDER_ORIGINS_MAX 4000000u

struct render_mark {
    enum render_origin origin;
    uint32_t message, part;
};
/* One message of the template's list. */
struct render_turn {
    enum api_role role;
    struct jinja_value parts;     /* LIST of dicts {type, text} */
    struct jinja_value reasoning; /* STRING or UNDEFINED */
    struct jinja_value calls;     /* LIST of dicts */
    struct jinja_value name, id;  /* STRING or UNDEFINED; id: of the call that a result answers */
    uint32_t message;             /* number in the request */
};
struct render_turns {
    const struct api_request *rq;
    uint32_t caps;
    const struct jinja_template *t;
    struct jinja_heap *h;
    struct render_mark *marks; /* jinja's origin n is marks[n - 1] */
    uint32_t marks_count, marks_cap;
    struct render_turn *turns;
    uint32_t turns_count, turns_cap;
    bool has_images; /* and left them out */
};

/* The request's messages as turns. False: ERR_LIMIT. */
BASE_USE_RESULT bool render_turn_read(struct render_turns *r, struct err *e);
/* Turns of one role side by side become one, with a blank line between their texts; a system turn
 * that is not the first becomes user text in place; without a system role the first goes in front
 * of the first user text. True if anything changed. */
bool render_turn_merge(struct render_turns *r);
/* "messages" and "tools" as the template wants them. */
struct jinja_value render_turn_messages(struct render_turns *r);
/* False: a schema that is no JSON. */
BASE_USE_RESULT bool render_turn_tools(struct render_turns *r, struct jinja_value *out,
                                       struct err *e);

/* An empty turn in front of all others, of no message. False: no memory, h->stop says it. */
bool render_turn_lead(struct render_turns *r, enum api_role role);
/* Text behind what the turn says already, without a blank between them. */
void render_turn_add(struct render_turns *r, struct render_turn *t, struct jinja_str text);
/* A new origin; 0 when there are too many (h->stop is set). */
uint32_t render_turn_mark(struct render_turns *r, enum render_origin origin, uint32_t message,
                          uint32_t part);
/* NAMESPACE__name, as tools of a namespace are called. */
str render_turn_tool_name(struct arena *a, str name_space, str name);

#endif
