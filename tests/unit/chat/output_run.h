/* output_run - a text through a reply's reader, as one line per thing that it says.
 *
 * Owns:      the options of a case, its tools, cutting the text, the lines.
 * Not:       what is right (the tests).
 * Invariant: pieces of one kind are joined: what a client has in the end.
 *
 *     "R:why\nT:Let me see.\nC:get_weather:{\"city\": \"Bern\"}\nE\n"
 *
 *            R reasoning, T content, C call with what came of its arguments, E its end.
 * Thread:    plain data.
 * Limits:    1 MiB of lines.
 */
#ifndef SHOAL_TESTS_OUTPUT_RUN_H
#define SHOAL_TESTS_OUTPUT_RUN_H

#include "chat/output.h"

struct output_run {
    const char *format, *think; /* "" or NULL: none */
    enum output_begin begin;
    const char *stops[4];
    const char *tools; /* JSON array of {"name", "custom", "banned", "strict", "parameters"}; NULL:
                          output_run_tools */
    bool no_tools, one_call, is_cut, is_forced;
};
extern const char output_run_tools[];

struct output_said {
    struct buf lines;
    bool has_calls, is_stopped;
    uint32_t calls_begun, calls_done;
};
/* The tools of a list; NULL: output_run_tools. Lives in a. */
void output_run_tools_make(struct output_tools *out, const char *list, struct arena *a);
/* text in pieces of `piece` bytes, the first of them `first` bytes long. Fails the test if events
 * are out of order, text is no UTF-8 or finished arguments are no JSON. said->lines is cleared. */
void output_run(const struct output_run *r, str text, size_t first, size_t piece,
                struct output_said *said);
/* The same at each split point, byte by byte and whole; `lines` is what must be said. */
void output_run_check(const struct output_run *r, const char *text, const char *lines);

#endif
