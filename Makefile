# shoal: one Makefile, no configure step. `make help` lists the targets, V=1 shows the commands.
#
# Everything made goes to $(BUILD); sanitizer builds are the same Makefile with another BUILD.
CC      = gcc
CLANG   = clang
BUILD   = build
PYTHON  = python3
VERSION = 0.1.0

WARN    = -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
          -Wswitch-enum -Wvla -Werror
BASE    = -std=c17 -D_GNU_SOURCE -Isrc -I$(BUILD)/gen -ffp-contract=off -fno-math-errno -pthread
OPT     = -O2 -g -march=x86-64-v2 -mtune=generic
CFLAGS  = $(OPT) $(WARN)
ALL     = $(BASE) $(CFLAGS) $(SAN)
DEPS    = -MMD -MP

# A file's suffix names its ISA; no other object carries -m flags (docs/ARCHITECTURE.md, 11).
ISA_avx2   = -mavx2 -mfma -mf16c -mbmi -mbmi2
ISA_avx512 = $(ISA_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
ISA_vnni   = $(ISA_avx512) -mavx512vnni -mavx512vbmi
ISA_bf16   = $(ISA_vnni) -mavx512bf16
ISA_amx    = $(ISA_vnni) -mamx-tile -mamx-int8 -mamx-bf16
isa = $(ISA_$(lastword $(subst _, ,$(basename $(notdir $(1))))))

# Libraries go in as archives where the distribution carries them, so that the binary needs little
# beyond glibc; one that has no archive is linked as usual.
LIBRARIES = event event_openssl event_pthreads ssl crypto http_parser pcre2-8 utf8proc xxhash yaml \
            bsd md tinfo
# libedit.a exports names such as map_init that are ours too: only its interface stays visible.
EDIT      = $(BUILD)/gen/libedit.o
archive   = $(shell $(CC) -print-file-name=lib$(1).a)
LIBS     := $(foreach l,$(LIBRARIES),$(if $(findstring /,$(call archive,$l)),-l:lib$l.a,-l$l)) \
            -lm -ldl -pthread

SRC     := $(sort $(wildcard src/*/*.c src/*/*/*.c))
HEADERS := $(sort $(wildcard src/*/*.h src/*/*/*.h))
OBJ     := $(SRC:%.c=$(BUILD)/%.o)
LIB      = $(BUILD)/libshoal.a
VERSION_H = $(BUILD)/gen/base/version.h

# A test program is one .c file that ends in _test.c; its folder says what it is (docs/TESTING.md).
programs = $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard $(1))))
UNIT   := $(call programs,tests/unit/*/*_test.c)
KERN   := $(call programs,tests/kern/*_test.c)
GOLDEN := $(call programs,tests/golden/*_test.c tests/golden/*/*_test.c)
TINY   := $(call programs,tests/model/*_test.c)
REAL   := $(call programs,tests/real/*_test.c)
GPU    := $(call programs,tests/gpu/*_test.c)
SIM    := $(call programs,tests/sim/*_test.c)
FUZZ   := $(call programs,tests/fuzz/*_fuzz.c)
QUICK   = $(UNIT) $(KERN) $(GOLDEN) $(SIM) $(FUZZ)
# What several test programs share, e.g. tests/kern/hostile.c: linked into those of its folder.
helpers = $(patsubst %.c,$(BUILD)/%.o,$(filter-out %_test.c %_fuzz.c,$(wildcard $(1)/*.c)))
TEST_LIBS = -lcmocka

TIER  = quick
RUN_TESTS = $(PYTHON) tests/run.py -build $(BUILD) -tier $(TIER)

ifdef V
say = @:
Q   =
else
say = @printf '  %-6s %s\n' $(1) $(2)
Q   = @
endif

.PHONY: gpu
.PHONY: all help check static tidy layers clang-syntax headers unit kern golden model sim corpus \
        real test test-long full full-programs models tiny templates e2e asan tsan asan-programs \
        tsan-programs quick-programs threaded-programs test-agents bench-kern bench-peer \
        bench-table bench-serve bench-agents bench-route \
        bench-tok bench-grammar test-schema run install dist deb wheel clean \
        soak soak-asan kill-engine test-faults FORCE
.DELETE_ON_ERROR:
.SECONDARY:
all: $(BUILD)/shoal ## build/shoal

help: ## this list
	@awk -F ':.*## ' '/^# -+ / {sub(/^# -+ /, ""); title = $$0} \
	    /^[a-z0-9%-]+:.*## / {if (title) print "\n" title; title = ""; \
	    sub(/%/, "NAME", $$1); printf "  %-14s %s\n", $$1, $$2}' Makefile
	@echo
	@echo 'V=1 shows the commands; BUILD=dir builds elsewhere; CC="ccache gcc" works.'

# ---------------------------------------------------------------- building

$(VERSION_H): FORCE
	@mkdir -p $(@D)
	@tools/make_version $(VERSION) >$@.new; cmp -s $@.new $@ && rm $@.new || mv $@.new $@

# Other flags make other objects.
FLAGS = $(BUILD)/gen/flags
$(FLAGS): FORCE
	@mkdir -p $(@D)
	@echo '$(ALL) $(foreach i,avx2 avx512 vnni bf16 amx,$(ISA_$i)) $(LIBS)' >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$(EDIT):
	@mkdir -p $(@D)
	$(Q)ld -r --whole-archive $(call archive,edit) -o $@
	$(Q)objcopy -w -G 'el_*' -G 'history*' $@

# GPU code: each .cu becomes a fatbin, all go into the binary (src/cuda/cuda_fatbin.c). Sanitizer
# builds, and those without nvcc or with CUDA=0, have none and say so.
CUDA      ?= $(if $(SAN),0,$(if $(shell command -v nvcc),1,0))
CUDA_ARCHS = sm_80 sm_90a compute_90
CUDA_GEN   = -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a \
             -gencode arch=compute_90,code=compute_90
CUDA_DIR   = build/cuda/
ifeq ($(CUDA),1)
CUDA_CU   := $(wildcard src/cuda/*.cu)
CUDA_DEF   = -DCUDA_FATBIN_DIR='"$(CUDA_DIR)"' -DCUDA_ARCHS='"$(CUDA_ARCHS)"'
$(BUILD)/src/cuda/cuda_fatbin.o: $(CUDA_CU:src/cuda/%.cu=$(CUDA_DIR)%.fatbin)
$(BUILD)/src/cuda/cuda_fatbin.o: ALL += $(CUDA_DEF)
endif

$(CUDA_DIR)%.fatbin: src/cuda/%.cu $(wildcard src/cuda/*.cuh) src/cuda/cuda_args.h
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)nvcc -std=c++17 -O3 -Isrc -fmad=false -fatbin $(CUDA_GEN) $< -o $@.new && mv $@.new $@

$(BUILD)/src/%.o: src/%.c $(FLAGS) | $(VERSION_H)
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL) $(DEPS) $(call isa,$<) -c $< -o $@

# A source that is gone leaves the archive.
$(BUILD)/gen/sources: FORCE
	@mkdir -p $(@D)
	@echo '$(SRC)' >$@.new; cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$(LIB): $(filter-out $(BUILD)/src/cli/main.o,$(OBJ)) $(EDIT) $(BUILD)/gen/sources
	@rm -f $@
	$(call say,AR,$@)
	$(Q)ar rcs $@ $(filter %.o,$^)

$(BUILD)/shoal: $(BUILD)/src/cli/main.o $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL) $^ $(LIBS) -o $@

$(BUILD)/tests/%.o: tests/%.c $(FLAGS) | $(VERSION_H)
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL) $(DEPS) -Itests -Wno-missing-prototypes $(call isa,$<) -c $< -o $@

.SECONDEXPANSION:
beside = $(call helpers,$(patsubst $(BUILD)/%,%,$(1))) $(RUNNER_$(notdir $(1)))
# Real models, and tiny ones on a GPU, are run by what runs the tiny ones.
RUNNER_real = $(call helpers,tests/model)
RUNNER_grammar = $(call helpers,tests/unit/engine)
RUNNER_gpu = $(call helpers,tests/model)
$(BUILD)/tests/%_test: $(BUILD)/tests/%_test.o $$(call beside,$$(@D)) $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL) $^ $(LIBS) $(TEST_LIBS) -o $@

# Without a fuzz engine a target replays its corpus; `make fuzz-NAME` hunts with clang's engine.
$(BUILD)/tests/fuzz/%_fuzz: $(BUILD)/tests/fuzz/%_fuzz.o $(BUILD)/tests/fuzz/corpus.o $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL) $^ $(LIBS) -o $@

# The endpoint with a script in the place of engine children (tests/agents/scripted.c).
SCRIPTED = $(BUILD)/tests/agents/scripted
# Ours with a GPU that fails when it is told to (tests/e2e/lossy.c).
LOSSY = $(BUILD)/tests/e2e/lossy
E2E_BINARIES = $(BUILD)/shoal $(BUILD)/bench/serve/stress $(SCRIPTED) $(LOSSY)
$(SCRIPTED) $(LOSSY): $(BUILD)/tests/%: $(BUILD)/src/cli/main.o $(BUILD)/tests/%.o $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL) $^ $(LIBS) -o $@

$(BUILD)/bench/%: bench/%.c $(LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL) $^ $(LIBS) -o $@

install: $(BUILD)/shoal ## binary, completions, manual page to $(DESTDIR)$(PREFIX)
	@tools/make_install $(BUILD)/shoal "$(DESTDIR)$(PREFIX)"
PREFIX = $(HOME)/.local

# Packages lie in $(BUILD)/dist; tests/e2e/test_package.py installs and runs each.
dist: $(BUILD)/shoal ## release tarball with its sha256 and an install script
	@tools/make_dist $(BUILD)/shoal $(VERSION) $(BUILD)/dist
deb: $(BUILD)/shoal ## Debian package
	@tools/make_deb $(BUILD)/shoal $(VERSION) $(BUILD)/dist
wheel: $(BUILD)/shoal ## Python wheel shoal-ai that carries the binary
	@$(PYTHON) tools/make_wheel.py $(BUILD)/shoal $(VERSION) $(BUILD)/dist

clean: ## remove build/
	rm -rf $(BUILD)

# ---------------------------------------------------------------- checks without running

CLANG_OK := $(SRC:%.c=$(BUILD)/clang/%.ok)
GCC_ALONE := $(HEADERS:%=$(BUILD)/alone/gcc/%.ok)
CLANG_ALONE := $(HEADERS:%=$(BUILD)/alone/clang/%.ok)
# clang 14 has no -mprefer-vector-width problem; it only lacks gcc's stricter sign rules.
CLANG_FLAGS = $(BASE) $(OPT) $(WARN) -Wno-sign-conversion -fsyntax-only
alone = printf '\#include "%s"\n' $(<:src/%=%) | $(1) -x c - -MT $@ -MF $(@:.ok=.d) $(DEPS)

clang-syntax: $(CLANG_OK) ## clang -fsyntax-only over every source file
headers: $(GCC_ALONE) $(CLANG_ALONE) ## every header compiles alone, gcc and clang

$(BUILD)/clang/%.ok: %.c | $(VERSION_H)
	@mkdir -p $(@D)
	$(call say,CLANG,$<)
	$(Q)$(CLANG) $(CLANG_FLAGS) $(call isa,$<) $< -MT $@ -MF $(@:.ok=.d) $(DEPS)
	@touch $@

$(BUILD)/alone/gcc/%.ok: % | $(VERSION_H)
	@mkdir -p $(@D)
	$(call say,ALONE,$<)
	$(Q)$(call alone,$(CC) $(ALL) $(call isa,$<) -fsyntax-only)
	@touch $@

$(BUILD)/alone/clang/%.ok: % | $(VERSION_H)
	@mkdir -p $(@D)
	$(Q)$(call alone,$(CLANG) $(CLANG_FLAGS) $(call isa,$<))
	@touch $@

layers: ## includes and files against docs/ARCHITECTURE.md
	$(call say,CHECK,layers)
	@$(PYTHON) tools/check_layers.py

tidy: $(OBJ) ## the rules of docs/STYLE.md section 8
	$(call say,CHECK,tidy)
	@$(PYTHON) tools/check_tidy.py $(BUILD)

# The checkers' and the runner's own tests, when one of them changed.
TOOL_TESTS = $(wildcard tests/unit/tools/*_test.py)
$(BUILD)/tools.ok: $(TOOL_TESTS) $(wildcard tools/check_*) tools/get_model tools/models.txt \
                   tests/run.py Makefile
	@mkdir -p $(@D)
	$(call say,CHECK,tools)
	@$(RUN_TESTS) $(TOOL_TESTS) >$@.log || { cat $@.log; exit 1; }
	@touch $@

static: layers tidy headers clang-syntax $(BUILD)/tools.ok

# ---------------------------------------------------------------- tests

unit: $(UNIT) ## unit tests
	@$(RUN_TESTS) $^
kern: $(KERN) ## kernels against ref
	@$(RUN_TESTS) $^
golden: $(GOLDEN) ## truth from outside
	@$(RUN_TESTS) $^
model: $(TINY) $(BUILD)/shoal tiny ## tiny models: the numerics contract
	@$(RUN_TESTS) $(TINY)
sim: $(SIM) ## real sched, kv, route in simulated time; SEED=n replays one
	@$(if $(SEED),for t in $^; do TEST_SEED=$(SEED) $$t || exit 1; done,$(RUN_TESTS) $^)
real: $(REAL) models ## real weights against their goldens
	@$(RUN_TESTS) -tier full $(REAL)
corpus: $(FUZZ) ## fuzz targets over their corpora
	@$(RUN_TESTS) $^

# One more at a time than there are cores: some of them mostly wait.
check: $(E2E_BINARIES) static $(QUICK) ## fast checks: no model, no network
	@$(RUN_TESTS) -jobs $$(($$(nproc) + 1)) $(QUICK)

# ---------------------------------------------------------------- the two commands

# MODEL and PROMPT come from the caller's environment: no variable of this file may be called so.
MODELS_HOME = $(HOME)/.shoal/models
DEFAULT_MODEL = SmolLM2-135M-Instruct.Q4_1.gguf
DEFAULT_PROMPT = Why is the sky blue?

run: ## answer with a real model: MODEL=path PROMPT="..."
	@tools/setup build
	@$(MAKE) --no-print-directory -j$$(nproc) $(BUILD)/shoal
	@[ -n "$$MODEL" ] || tools/get_model $(DEFAULT_MODEL)
	@$(BUILD)/shoal run -local -timings -n 256 "$${MODEL:-$(MODELS_HOME)/$(DEFAULT_MODEL)}" \
	    "$${PROMPT:-$(DEFAULT_PROMPT)}"

# Everything a full run needs is made first, as far as it can be; what is missing fails by name.
VENV = $(BUILD)/venv
$(VENV)/ok: tests/requirements.txt
	@echo "  VENV   $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

# Tiny models: random weights, quantised by our own encoders (tests/model/make_tiny.py).
$(BUILD)/libquant.so: $(filter src/quant/%,$(SRC)) src/base/base.c $(HEADERS)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(BASE) $(OPT) -fPIC -shared $(filter %.c,$^) -lm -o $@
$(BUILD)/tiny/ok: tests/model/make_tiny.py $(BUILD)/libquant.so $(VENV)/ok
	$(call say,TINY,$(@D))
	$(Q)$(VENV)/bin/python $< $(@D) $(BUILD)/libquant.so
	@touch $@
tiny: $(BUILD)/tiny/ok ## tiny models of every family, into build/tiny

# Chat templates whose licences forbid keeping them, and what Jinja2 makes of each.
TEMPLATES = tests/golden/templates
$(BUILD)/templates/ok: $(wildcard $(TEMPLATES)/*.py) $(VENV)/ok
	$(call say,JINJA,$(@D))
	$(Q)$(VENV)/bin/python $(TEMPLATES)/get_templates.py $(@D)/from
	$(Q)$(VENV)/bin/python $(TEMPLATES)/make_templates.py $(@D) $(@D)/from/*.jinja
	@touch $@
templates: $(BUILD)/templates/ok ## chat templates that the repository does not keep

models: ## the real models that tests use, into build/models
	@tools/get_model -into $(BUILD)/models $$(sed -n 's/^\([^# ]*\) .*/\1/p' tools/models.txt)
	@$(PYTHON) tests/golden/tokens/make_vocab.py -into $(BUILD)/models/vocab

gpu: $(GPU) $(BUILD)/bench/frontier/frontier tiny ## every op on this machine's GPU against the CPU
	@for t in $(GPU); do $$t || exit 1; done

test: ## everything that must hold, from a clean machine; ends with "N passed, N failed"
	@tools/setup build test
	@$(MAKE) --no-print-directory -k -j$$(nproc) TIER=full full-programs || true
	@$(MAKE) --no-print-directory TIER=full full

full-programs: $(E2E_BINARIES) $(QUICK) $(TINY) $(REAL) $(VENV)/ok \
               tiny models templates asan-programs tsan-programs
full:
	@$(RUN_TESTS) -slowest 12 "static=$(MAKE) -s static" \
	    $(foreach p,SERVE LEGS TEXT REST,"e2e-$p=$(PYTEST) $(E2E_$p)") \
	    "oracle=$(ORACLE)" \
	    "pairs=$(PAIRS)" "templates=$(BUILD)/$(TEMPLATES)/templates_test $(BUILD)/templates" \
	    $(TOOL_TESTS) \
	    $(QUICK) $(TINY) $(REAL) $(ASAN_QUICK) $(TSAN_QUICK)
# Two programs side by side already take the cores: more threads of BLAS would only spin.
ORACLE = OPENBLAS_NUM_THREADS=1 $(VENV)/bin/python tests/golden/logits/oracle.py $(BUILD)/models
# Schemas that hypothesis makes, judged by jsonschema, against the automaton.
PAIRS = $(VENV)/bin/python tests/golden/grammar/make_pairs.py \
        --hunt $(BUILD)/tests/golden/grammar/schema_pairs_test -n 20000
# In four parts, so that they run side by side and each ends in its time.
PYTEST    = $(VENV)/bin/python -m pytest -q -p no:cacheprovider
e2e_files = $(sort $(wildcard $(1:%=tests/e2e/test_%.py)))
E2E_SERVE = $(call e2e_files,serve* stress metrics openapi)
E2E_LEGS  = $(call e2e_files,drill* failover* fault_table cases_engine cases_legs remote)
E2E_TEXT  = $(call e2e_files,dialects schema* tool* usage calls cases tier cache_* faults_*)
E2E_REST  = $(filter-out $(E2E_SERVE) $(E2E_LEGS) $(E2E_TEXT),$(call e2e_files,*))
E2E       = $(PYTEST) tests/e2e
e2e: $(E2E_BINARIES) $(VENV)/ok tiny ## the binary from outside
	$(E2E)

# Real agents, in an environment of their own: their packages bring whole programs.
VENV_AGENTS = $(BUILD)/venv-agents
$(VENV_AGENTS)/ok: tests/agents/requirements.txt
	@echo "  VENV   $(VENV_AGENTS)"
	@$(PYTHON) -m venv $(VENV_AGENTS)
	@$(VENV_AGENTS)/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@
test-agents: $(SCRIPTED) $(BUILD)/shoal $(VENV_AGENTS)/ok tiny ## Claude Code and Codex at work
	$(VENV_AGENTS)/bin/python -m pytest -q -p no:cacheprovider tests/agents

test-schema: $(BUILD)/shoal $(VENV)/ok models ## structured output: 400 replies of two models
	SHOAL_TEST=long $(E2E)/test_schema.py tests/e2e/test_tool_choice.py

test-long: ## the full product of the numerics contract, many seeds: hours
	@$(MAKE) --no-print-directory -j$$(nproc) $(QUICK) $(TINY) $(REAL) tiny models
	@$(RUN_TESTS) -tier long $(KERN) $(TINY) $(REAL) $(SIM)
	@PULL_KILLS=2000 $(E2E)/test_pull.py -k killed

test-faults: $(E2E_BINARIES) $(VENV)/ok models ## each cell of the fault table, and 150 agents
	FAULTS=all FLEET_AGENTS=150 $(PYTEST) -s --durations=5 tests/e2e/test_fault_table.py \
	    tests/e2e/test_faults_fleet.py

soak: $(BUILD)/shoal $(BUILD)/bench/serve/stress models ## half an hour of 100 agents and kills
	$(PYTHON) bench/serve/serve.py -only soak -seconds $(or $(SOAK_SECONDS),1800) \
	    $(BUILD)/models/SmolLM2-135M-Instruct.Q4_1.gguf

# The same under ASan and UBSan, on a tiny model. What was freed is kept for a while by ASan: less
# of it, so that memory can be seen to stay flat.
soak-asan: $(BUILD)/bench/serve/stress tiny ## 5 minutes of it under ASan: no error, no leak
	+@$(call sanitized,asan) SAN="$(ASAN_FLAGS)" $(BUILD)/asan/shoal
	ASAN_OPTIONS=quarantine_size_mb=8 $(PYTHON) bench/serve/serve.py -only soak -ctx 2048 \
	    -shoal $(BUILD)/asan/shoal -seconds $(or $(SOAK_SECONDS),300) $(BUILD)/tiny/llama.gguf

# The soak with an end after so many kills, of which not even a refusal may come.
kill-engine: $(BUILD)/shoal $(BUILD)/bench/serve/stress models ## kill -9 of the engine: KILLS=20
	$(PYTHON) bench/serve/serve.py -only soak -kills $(or $(KILLS),20) \
	    $(BUILD)/models/SmolLM2-135M-Instruct.Q4_1.gguf

# ---------------------------------------------------------------- speed

# TYPE=none: the limits alone.
bench-kern: $(BUILD)/tests/kern/kern_test ## kernels, the limits: LEVEL=avx2 TYPE=Q4_K ACT=int8
	@$< --bench "$(LEVEL)" "$(TYPE)" "$(ACT)"

# The peer is built from source for this machine: about ten minutes on two cores, once. The gcc 12
# build of it dies at its first AMX tile load, so a machine with AMX builds it with clang.
PEER      = $(BUILD)/venv-peer
PEER_AMX  = CC=$(CLANG) CXX=$(CLANG)++ CMAKE_ARGS="-DGGML_NATIVE=ON -DGGML_OPENMP=OFF"
PEER_CC  := $(if $(shell grep -m1 -o amx_tile /proc/cpuinfo),$(PEER_AMX),\
            CMAKE_ARGS="-DGGML_NATIVE=ON")
$(PEER)/ok: bench/peer/requirements.txt
	@tools/setup peer
	@echo "  VENV   $(PEER)"
	@$(PYTHON) -m venv $(PEER)
	@$(PEER_CC) CMAKE_BUILD_PARALLEL_LEVEL=$$(nproc) $(PEER)/bin/pip install -q \
	    --disable-pip-version-check --no-binary llama-cpp-python -r $<
	@touch $@
PEER_MADE = $(BUILD)/shoal $(BUILD)/tests/kern/kern_test $(PEER)/ok models
bench-peer: $(PEER_MADE) ## beside llama.cpp: ROUNDS=5 BATCH=1,8,32 DEPTH=0,4096 MODEL=x.gguf
	@bench/peer/peer.py -rounds $(or $(ROUNDS),5) -batch $(or $(BATCH),1) -floor 1.0 \
	    -depth $(or $(DEPTH),0) -python $(PEER)/bin/python $(or $(MODEL),$(BUILD)/models/*.gguf)

# Rows of bench/peer/table.py, all without ROW, which takes an hour: ROW="prefill decode:Q5_K".
PEER_AVX2 = $(BUILD)/peer-avx2
bench-table: $(PEER_MADE) $(VENV)/ok $(if $(filter-out avx2%,$(ROW)),,$(PEER_AVX2)/ok) ## goals
	@$(VENV)/bin/python bench/peer/table.py -rounds $(or $(ROUNDS),3) $(if $(KEEP),-keep) \
	    -python $(PEER)/bin/python $(ROW)

PEER_SRC = $(BUILD)/peer-src
$(PEER_SRC)/ok: bench/peer/requirements.txt
	@tools/setup peer
	@mkdir -p $(@D)
	@$(PYTHON) -m venv $(@D)/venv
	@cd $(@D) && venv/bin/pip download -q --disable-pip-version-check --no-deps \
	    --no-binary llama-cpp-python -r $(abspath $<) -d . && tar xzf llama_cpp_python-*.tar.gz
	@touch $@
# The peer's libraries with those kernels that an AVX2 machine would get: two minutes.
$(PEER_AVX2)/ok: $(PEER_SRC)/ok $(PEER)/ok
	@mkdir -p $(@D)
	@echo "  PEER   $(@D)"
	@cmake -S $(PEER_SRC)/llama_cpp_python-*/vendor/llama.cpp -B $(@D)/build \
	    -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=OFF -DGGML_AVX2=ON \
	    -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON >$(@D)/log
	@cmake --build $(@D)/build -j$$(nproc) --target ggml-cpu >>$(@D)/log
	@cp -r $$($(PEER)/bin/python -c 'import llama_cpp; print(llama_cpp.__path__[0])')/lib $(@D)
	@cp $(@D)/build/bin/libggml-cpu.so* $(@D)/lib
	@touch $@

# The peer's server lies in the same source package: about ten minutes on two cores, once.
PEER_SERVER = $(BUILD)/peer-server/bin/llama-server
PEER_CMAKE  = -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF \
              -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF \
              -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_SERVER=ON -DLLAMA_USE_PREBUILT_UI=OFF \
              -DLLAMA_OPENSSL=OFF $(if $(findstring clang,$(PEER_CC)),-DGGML_OPENMP=OFF)
$(PEER_SERVER): bench/peer/requirements.txt
	@$(MAKE) -s $(PEER_SRC)/ok
	@echo "  PEER   $@"
	@$(filter CC=% CXX=%,$(PEER_CC)) cmake -S $(PEER_SRC)/llama_cpp_python-*/vendor/llama.cpp \
	    -B $(BUILD)/peer-server $(PEER_CMAKE) >$(PEER_SRC)/log
	@cmake --build $(BUILD)/peer-server -j$$(nproc) --target llama-server >>$(PEER_SRC)/log
SERVE_MODEL = $(BUILD)/models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
SERVE_MADE = $(BUILD)/shoal $(BUILD)/bench/serve/stress $(BUILD)/bench/serve/floor $(PEER_SERVER)
bench-serve: $(SERVE_MADE) models ## a fleet, beside llama.cpp's server: ROUNDS=3
	@bench/serve/serve.py -rounds $(or $(ROUNDS),3) -peer $(PEER_SERVER) $(SERVE_MODEL)

# Traces of coding agents, deterministic from SEED, to both servers one after the other.
bench-agents: $(BUILD)/shoal $(PEER_SERVER) models ## prefixes of a fleet: AGENTS=16
	@bench/agents/agents.py -agents $(or $(AGENTS),16) -steps $(or $(STEPS),14) \
	    -seed $(or $(SEED),1) -peer $(PEER_SERVER) $(or $(MODEL),$(SERVE_MODEL))

# What passing a stream on costs; litellm from PyPI in a venv of its own, once.
LITELLM = $(BUILD)/venv-litellm
$(LITELLM)/ok: bench/route/requirements.txt
	@echo "  VENV   $(LITELLM)"
	@$(PYTHON) -m venv $(LITELLM)
	@$(LITELLM)/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@
bench-route: $(BUILD)/shoal $(BUILD)/bench/route/passthrough $(LITELLM)/ok ## beside litellm's proxy
	@bench/route/passthrough.py -litellm $(LITELLM)

# English and code of this repository, one megabyte; the peers: bench/tok/tok_peer.py.
bench-tok: $(BUILD)/bench/tok/tok_bench models ## text to ids, per real vocabulary
	@cat docs/*.md src/*/*.[ch] | head -c 1000000 >$(BUILD)/bench/tok/text
	@for m in $(BUILD)/models/*.gguf; do $< $$m $(BUILD)/bench/tok/text || exit 1; done

# Masks of structured output beside llguidance, and xgrammar where it can be installed (it brings
# torch: XGRAMMAR=1 asks for it).
VENV_GRAMMAR = $(BUILD)/venv-grammar
GRAMMAR_OUT  = $(BUILD)/bench/grammar/out
$(VENV_GRAMMAR)/ok: bench/grammar/requirements.txt
	@echo "  VENV   $(VENV_GRAMMAR)"
	@$(PYTHON) -m venv $(VENV_GRAMMAR)
	@$(VENV_GRAMMAR)/bin/pip install -q --disable-pip-version-check -r $< \
	    $(if $(XGRAMMAR),xgrammar==$(XGRAMMAR_VERSION))
	@touch $@
XGRAMMAR_VERSION = 0.2.9
bench-grammar: $(BUILD)/bench/grammar/grammar_bench $(VENV_GRAMMAR)/ok models ## what a mask costs
	@mkdir -p $(GRAMMAR_OUT)
	@$< $(SERVE_MODEL) $(GRAMMAR_OUT) bench/grammar/tools.txt tests/golden/grammar/pairs.txt
	@$(VENV_GRAMMAR)/bin/python bench/grammar/grammar_peer.py $(GRAMMAR_OUT)

# ---------------------------------------------------------------- sanitizers, fuzzing

# Sanitizer builds lie in $(BUILD)/asan and $(BUILD)/tsan and run the quick tier. No warnings there:
# instrumented code gives other ones, and the plain build has judged the source.
ASAN_FLAGS = -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1
TSAN_FLAGS = -fsanitize=thread -fno-omit-frame-pointer -O1
# What has threads: TSan needs no more. Of the models: the programs that have an engine.
ENGINES    = $(filter $(BUILD)/tests/model/engine%,$(TINY))
THREADED   = $(filter $(BUILD)/tests/unit/base/thread% $(BUILD)/tests/unit/base/log% \
             $(BUILD)/tests/unit/wire/% $(BUILD)/tests/unit/cpu/% $(BUILD)/tests/unit/engine/% \
             $(BUILD)/tests/unit/serve/%,$(UNIT)) \
             $(ENGINES) $(SIM)
ASAN_QUICK = $(foreach p,$(QUICK) $(ENGINES),"$(p:$(BUILD)/%=$(BUILD)/asan/%)")
TSAN_QUICK = $(foreach p,$(THREADED),"$(p:$(BUILD)/%=$(BUILD)/tsan/%)")
sanitized  = $(MAKE) --no-print-directory BUILD=$(BUILD)/$(1) WARN=-w

asan-programs:
	+@$(call sanitized,asan) SAN="$(ASAN_FLAGS)" quick-programs
tsan-programs:
	+@$(call sanitized,tsan) SAN="$(TSAN_FLAGS)" threaded-programs
quick-programs: $(QUICK) $(ENGINES)
threaded-programs: $(THREADED)
asan: asan-programs ## quick tests under ASan and UBSan
	@$(RUN_TESTS) -timeout 600 $(ASAN_QUICK)
tsan: tsan-programs ## threaded tests under TSan
	@$(RUN_TESTS) -timeout 600 $(TSAN_QUICK)

FUZZ_SECONDS = 60
fuzz-%: tests/fuzz/%_fuzz.c $(SRC) ## hunt with clang's engine for FUZZ_SECONDS
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/fuzz CC=$(CLANG) WARN= \
	    SAN="-fsanitize=fuzzer-no-link,address,undefined" $(BUILD)/fuzz/tests/fuzz/$*_hunt
	@mkdir -p $(BUILD)/fuzz/found/$*
	$(BUILD)/fuzz/tests/fuzz/$*_hunt -max_total_time=$(FUZZ_SECONDS) -timeout=5 \
	    -artifact_prefix=$(BUILD)/fuzz/$*- $(BUILD)/fuzz/found/$* tests/fuzz/corpus/$*

$(BUILD)/tests/fuzz/%_hunt: $(BUILD)/tests/fuzz/%_fuzz.o $(LIB)
	$(call say,LD,$@)
	$(Q)$(CC) $(ALL) -fsanitize=fuzzer $^ $(LIBS) -o $@

-include $(OBJ:.o=.d) $(CLANG_OK:.ok=.d) $(GCC_ALONE:.ok=.d) $(CLANG_ALONE:.ok=.d)
-include $(shell find $(BUILD)/tests -name '*.d' 2>/dev/null)
