# shoal: one Makefile, no configure step. `make help` lists the targets.
CC      = gcc
BUILD   = build
VERSION = 0.1.0

PKGS    = libevent libevent_openssl libssl libcrypto libpcre2-8 libutf8proc libxxhash yaml-0.1 liburing libedit
WARN    = -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror
BASE    = -std=c17 -D_GNU_SOURCE -Isrc -ffp-contract=off -fno-math-errno -pthread
OPT     = -O2 -g -march=x86-64-v2 -mtune=generic
CFLAGS  = $(OPT) $(WARN)
ALL     = $(BASE) $(CFLAGS) $(EXTRA) -MMD -MP

# A file's suffix names its ISA; no other object carries -m flags (docs/ARCHITECTURE.md, 11).
ISA_avx2   = -mavx2 -mfma -mf16c -mbmi -mbmi2
ISA_avx512 = $(ISA_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
ISA_vnni   = $(ISA_avx512) -mavx512vnni -mavx512vbmi
ISA_bf16   = $(ISA_vnni) -mavx512bf16
ISA_amx    = $(ISA_vnni) -mamx-tile -mamx-int8 -mamx-bf16
isa = $(ISA_$(lastword $(subst _, ,$(basename $(notdir $(1))))))

SRC  := $(sort $(wildcard src/*/*.c src/*/*/*.c))
OBJ  := $(SRC:%.c=$(BUILD)/%.o)
LIB   = $(BUILD)/libshoal.a
LIBS  = $(shell pkg-config --libs $(PKGS)) -lhttp_parser -lm -ldl -pthread

UNIT    := $(sort $(wildcard tests/unit/*/*_test.c))
UNIT_BIN = $(UNIT:tests/%.c=$(BUILD)/tests/%)

.PHONY: all check unit clean help
all: $(BUILD)/shoal

help: ## this list
	@grep -hE '^[a-z%-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL) $(call isa,$<) -c $< -o $@

$(LIB): $(filter-out $(BUILD)/src/cli/main.o,$(OBJ))
	@rm -f $@
	ar rcs $@ $^

$(BUILD)/shoal: $(BUILD)/src/cli/main.o $(LIB)
	$(CC) $(ALL) $^ $(LIBS) -o $@

$(BUILD)/tests/%: tests/%.c $(LIB)
	@mkdir -p $(@D)
	$(CC) $(ALL) -Itests -Wno-missing-prototypes $< $(LIB) $(LIBS) -lcmocka -o $@

unit: $(UNIT_BIN) ## unit tests
	@failed=0; for t in $(UNIT_BIN); do timeout 60 $$t >$$t.log 2>&1 || { cat $$t.log; failed=1; }; done; exit $$failed

check: $(BUILD)/shoal unit ## fast checks: no model, no network

clean: ## remove build/
	rm -rf $(BUILD)

-include $(OBJ:.o=.d)
