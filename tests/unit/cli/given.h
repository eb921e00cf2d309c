/* given - where a test of the configuration begins: no file, no environment, no problem.
 *
 * Owns:      the arena that a configuration lives in, the problems that were told.
 * Not:       what is loaded (the tests).
 * Thread:    one.
 */
#ifndef SHOAL_TESTS_UNIT_CLI_GIVEN_H
#define SHOAL_TESTS_UNIT_CLI_GIVEN_H

#include "cli/config.h"

extern struct given {
    struct arena arena;
    struct buf problems;
} given;

int given_begin(void **state); /* setup of a test */
int given_end(void **state);
/* The text as "config.yaml"; a problem fails the test. */
struct config *given_config(const char *yaml);

#endif
