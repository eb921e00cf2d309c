/* api_frame_writer - a long message as frames that are made when there is room for them.
 *
 * Owns:      the message's fields, one frame's bytes, how far it is.
 * Not:       long texts of the message: they are lent, and looked at until the message is over or
 *            taken back. Short messages (api_frame_write).
 * Invariant: the frames are those of api_frame_write, byte by byte. A message that is taken back
 *            after its first frame ends with an empty MORE: the reader forgets it.
 *
 *     fields: [.. len][len ..] ...      lent: text before byte 40, text before byte 52, ...
 *
 * Thread:    its owner's.
 * Limits:    size_max bytes; a text of at least API_FRAME_LENT_MIN bytes is lent, so that a body of
 *            100 MB is not written a second time in one piece.
 */
#ifndef SHOAL_API_API_FRAME_WRITER_H
#define SHOAL_API_API_FRAME_WRITER_H

#include "api/api_frame.h"
#include "base/buf.h"

struct api_frame_writer {
    enum api_frame_kind kind;
    uint64_t id;
    struct buf fields, lent;
    size_t total, done;                   /* bytes of the body; of them framed */
    size_t fields_at, lent_at, text_at;   /* lent_at: a count; text_at: inside that text */
    bool is_begun, is_over, is_taken_back;
    char frame[API_FRAME_SIZE_MAX];
};

/* f: of a long kind; what it points to stays as it is, save what is shorter than
 * API_FRAME_LENT_MIN. False: ERR_LIMIT, nothing to deinit. */
BASE_USE_RESULT bool api_frame_writer_init(struct api_frame_writer *w, const struct api_frame *f,
                                           size_t size_max, struct err *e);
void api_frame_writer_deinit(struct api_frame_writer *w);

/* The next whole frame, good until the next call; empty: the message is over. */
str api_frame_writer_next(struct api_frame_writer *w);
/* The message is not meant any more: what it was lent may go. */
void api_frame_writer_take_back(struct api_frame_writer *w);

#endif
