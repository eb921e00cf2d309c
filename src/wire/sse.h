/* sse - events out of a stream of bytes, however it is cut: server-sent events, or JSON by lines.
 *
 * Owns:      the unfinished line and the data of the unfinished event.
 * Not:       where the bytes come from (http_client), what an event means (its reader).
 * Invariant: the same events for any cut of the same bytes. As the WHATWG HTML standard, 9.2.6,
 *            says: LF, CR and CRLF end a line, a byte order mark is skipped, lines of data are
 *            joined by LF, comments, id and retry are passed over, an event without data is none,
 *            and neither is one that the end of the stream cuts off.
 * Thread:    its owner's.
 * Limits:    size_max bytes of an event, or of a line: then ERR_LIMIT, for good.
 */
#ifndef SHOAL_WIRE_SSE_H
#define SHOAL_WIRE_SSE_H

#include "base/buf.h"
#include "base/err.h"

enum sse_form { SSE_FORM_EVENTS, SSE_FORM_LINES };

struct sse {
    struct buf line, name, data;
    enum sse_form form;
    bool is_after_cr, is_begun, has_data, is_broken;
    /* name: of the event, or empty; views that end with the call. */
    void (*on_event)(void *ctx, str name, str data);
    void (*on_comment)(void *ctx, str text); /* what follows the colon; NULL: passed over */
    void *ctx;
};

void sse_init(struct sse *s, enum sse_form form, size_t size_max);
void sse_deinit(struct sse *s); /* also after a zeroed struct; not from on_event */
BASE_USE_RESULT bool sse_feed(struct sse *s, str bytes, struct err *e);

#endif
