/* engine_submit - a SUBMIT on its way to a child.
 *
 * Owns:      what is not written yet of a long one: its fields, one frame.
 * Not:       the request, whose long texts are read while it is on its way; the pipe.
 * Invariant: what the holder points to is gone (NULL) when all is written or the pipe has ended.
 *            After engine_submit_leave the request is not looked at any more; a child that had a
 *            part of it forgets that, and knows no such request.
 * Thread:    the loop's.
 * Limits:    size_max bytes; one of less than ENGINE_SUBMIT_COPIED is written at once, copied.
 */
#ifndef SHOAL_SERVE_ENGINE_SUBMIT_H
#define SHOAL_SERVE_ENGINE_SUBMIT_H

#include "api/api_frame.h"
#include "wire/pipe.h"

#define ENGINE_SUBMIT_COPIED 32768u

struct engine_submit;
/* Queues it behind what waits; *holder: NULL, or the part that is not written, which stands there
 * until it is. False: the message is too long, or the pipe takes nothing. */
BASE_USE_RESULT bool engine_submit_send(struct engine_submit **holder, struct pipe *p,
                                        const struct api_frame *f, size_t size_max, struct err *e);
/* The request goes away; NULL is allowed. */
void engine_submit_leave(struct engine_submit *s);

#endif
