#!/bin/sh
# Records greedy-NAME.txt anew, after a change of numerics that its commit explains: 128 greedy ids
# for each of prompts.txt (a line each, \n is a line end), per real model, default activations.
# usage: tests/golden/greedy/record.sh    in the repository's root, after `make models`
set -eu
make -s build/tests/real/greedy_test
exec build/tests/real/greedy_test record
