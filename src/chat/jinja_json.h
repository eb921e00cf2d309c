/* jinja_json - JSON to values and back, as Python's json module and transformers' tojson do it.
 *
 * Owns:      building values from JSON text of the request; the filters tojson and from_json.
 * Not:       reading JSON (base/json).
 * Invariant: keys keep their order, integers their digits. Every string, number and container made
 *            from a text has its origin; so has the punctuation that tojson writes for it.
 * Thread:    the run's.
 * Limits:    JINJA_VALUE_DEPTH_MAX levels, the heap.
 */
#ifndef SHOAL_CHAT_JINJA_JSON_H
#define SHOAL_CHAT_JINJA_JSON_H

#include "base/json.h"
#include "chat/jinja_value.h"

/* The value of text, which must outlive the run. False: ERR_FORMAT (no JSON), ERR_LIMIT. */
BASE_USE_RESULT bool jinja_json_value(struct jinja_heap *h, str text, uint32_t origin,
                                      struct jinja_value *out, struct err *e);

#endif
