/* stub_upstream - an upstream that fails as it is told to, in all protocols: for tests and `drill`.
 *
 * Owns:      an HTTP server on a loop, the text it says, the faults, counts of what was asked.
 * Not:       protocols (dialect: the server direction writes every reply), what a fault must lead
 *            to (drill, tests).
 * Invariant: the text is a function of the seed alone: numbered words, so that each lost or
 *            repeated one shows; or it is given, so that an engine that would say the same can go
 *            on. A request that ends in an unfinished turn of the assistant gets the rest of the
 *            same text. A fault is chosen by the model's name behind its last '/', or for all
 *            requests (stub_upstream_set).
 *
 *     model "x/stall=12": twelve words, then silence      "x" or "x/ok": the whole text
 *
 * | fault | what |
 * |---|---|
 * | hang_header, hang_body | nothing at all; a header and nothing more |
 * | pings | a header, then signs of life without an end |
 * | prefill=K | a header, K pings 50 ms apart whose prompt moves on, then the whole text |
 * | roles | a header, an empty first piece, nothing more |
 * | stall=K, end=K, cut=K | K words, then silence, an end without marker, a broken connection |
 * | cut_byte=K | K bytes of the reply, then a broken connection |
 * | abort | the connection breaks before a header |
 * | garbage=K | K events that cannot be read, between words |
 * | wrong_finish | the end says tool calls, and there were none |
 * | status=N, retry=S | that status (400 to 599), with Retry-After: S |
 * | echo=N | status N, whose text repeats the request's key |
 * | flap=N | every other request gets status N |
 * | fail_late=K | K words, then the protocol's error in the stream |
 * | slow=MS | a word every MS ms |
 * | big, headers | an event of 10 MB; a header without end |
 * | html, other | a web page; the stream of another protocol |
 * | think, call | reasoning first; a call of the first tool |
 *
 * Thread:    the loop's.
 * Limits:    STUB_UPSTREAM_BODY_MAX of a request, STUB_UPSTREAM_TEXT_MAX of a given text; 4,096
 *            connections.
 */
#ifndef SHOAL_CLI_STUB_UPSTREAM_H
#define SHOAL_CLI_STUB_UPSTREAM_H

#include "base/buf.h"
#include "base/err.h"
#include "wire/loop.h"

#define STUB_UPSTREAM_BODY_MAX ((size_t)64 << 20)
#define STUB_UPSTREAM_TEXT_MAX ((size_t)64 << 10)

struct stub_upstream;
struct stub_upstream_options {
    struct loop *loop;
    str listen;      /* "127.0.0.1:0" */
    uint64_t seed;
    uint32_t words;  /* of a whole reply */
    str text;        /* instead of numbered words: it is said whole; the caller keeps it */
    uint32_t gap_ms; /* between two words; 0: as fast as they are taken */
};
BASE_USE_RESULT bool stub_upstream_open(struct stub_upstream **out,
                                        const struct stub_upstream_options *o, struct err *e);
void stub_upstream_close(struct stub_upstream *s); /* NULL is allowed */
uint16_t stub_upstream_port(const struct stub_upstream *s);
/* A fault for every request from now on, "" = what each asks for. False: no such fault. */
BASE_USE_RESULT bool stub_upstream_set(struct stub_upstream *s, str fault, struct err *e);
/* The whole text of a reply. */
void stub_upstream_text(const struct stub_upstream *s, struct buf *out);

struct stub_upstream_counts {
    uint32_t requests; /* all */
    uint32_t chats;    /* what an upstream would bill */
    uint32_t words;    /* said */
    uint32_t gone;     /* clients that went away */
    uint32_t running;
};
struct stub_upstream_counts stub_upstream_counts(const struct stub_upstream *s);
/* The last chat: its header lines "name: value", an empty line, its body. */
str stub_upstream_last(const struct stub_upstream *s);

#endif
