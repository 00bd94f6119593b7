# What can be done with plinth, a target each. Plain `make` prints the list.
#
# Every target brings in the tools that it needs (tools/bootstrap.sh), so a Debian machine with Rust, gcc, make and
# Python 3 is enough. What is built goes under target/, or under $CARGO_TARGET_DIR.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
DESTDIR ?=
LIBDIR ?= lib
TARGET := $(or $(CARGO_TARGET_DIR),target)
# The cargo profile of the library that the tests use: release, or dev, which builds in a fraction of the time: for dev,
# cargo builds all that `cargo test` builds, so that it compiles everything once. `make test` uses dev, `make test-deep`
# release.
PROFILE ?= release
LIBRARY := $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
# Options of c_tests/run.py for `make test-c`.
C_TESTS ?=
# `oldest-and-newest` leaves out what lies between in `make header-check`.
HEADER_CHECK ?=
# What `make replay` and `make bench` replay: a folder of .trace or .trace.xz, or such files.
TRACES ?= benches/traces
# What a GPU answered to the random sequences of driver calls of `make conformance`.
CONFORMANCE_RECORD := crates/conformance/gpu.record
# What `make test-fuzz` replays beside the inputs that it makes.
FUZZ_INPUTS = $(wildcard fuzz/corpus/*)
# A shell opened before rustup was installed does not know where it put cargo.
export PATH := $(PATH):$(HOME)/.cargo/bin

# The library prints nothing. Its header has a form of its own for what rustdoc would call Safety.
CLIPPY := -D clippy::print_stdout -D clippy::print_stderr -D clippy::dbg_macro -A clippy::missing_safety_doc

NVCC := $(TARGET)/tools/python/nvidia/cu13/bin/nvcc
NVRTC := $(TARGET)/tools/python/nvidia/cu13/lib/libnvrtc.so.13

# Builds the runner of traces; compares allocators by it.
REPLAY_PROGRAMS = tools/programs.sh benches/replay $(TARGET)/benches/replay $(LIBRARY) $(abspath $(LIBRARY))
COMPARE = benches/replay/compare.py --replay $(TARGET)/benches/replay/replay --plinth $(TARGET)/release/libplinth.so

.PHONY: help
help: ## print this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '%-15s %s\n' "$$name" "$$text"; done

# ---- building

# The crate types are named because cargo optimises across crates only where no rlib is asked for.
.PHONY: build
build: ## the shared and the static library, in target/release
	@tools/bootstrap.sh rust cc
	cargo rustc --release --lib --locked --crate-type cdylib,staticlib
	@tools/soname_link.sh $(TARGET)/release

.PHONY: library
library: $(if $(filter release,$(PROFILE)),build)
	@tools/bootstrap.sh rust cc
	$(if $(filter release,$(PROFILE)),@,cargo build --profile $(PROFILE) --workspace --all-targets --locked &&) \
		tools/soname_link.sh $(LIBRARY)

.PHONY: header
header: ## write include/plinth.h, include/plinth/*.h and tests/symbols.txt from the sources
	@tools/bootstrap.sh rust cc
	PLINTH_WRITE_HEADER=1 cargo test --locked --test header

.PHONY: layout
layout: ## write tests/abi/layout.txt from the headers
	@tools/bootstrap.sh cc
	python3 tests/abi/layout.py --write

.PHONY: kernels
kernels: ## compile kernels/*.cu to kernels/*.ptx
	@tools/bootstrap.sh c++ python
	tools/kernels.sh $(NVCC) kernels

.PHONY: docs
docs: ## the reference, for Rust and for C, in target/doc and target/doxygen; a warning is an error
	@tools/bootstrap.sh rust cc doxygen
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --locked --workspace --no-deps --lib
	tools/doxygen.sh

# ---- using

.PHONY: demo
demo: build ## build, tour the library in C, replay a training run; PLINTH_DEVICE=cuda or host chooses the device
	@tools/bootstrap.sh cc c++
	@mkdir -p $(TARGET)/demo
	gcc -std=c11 -O2 -Wall -Wextra -Iinclude examples/01-tour.c -o $(TARGET)/demo/tour -L$(TARGET)/release \
		-Wl,-rpath,$(abspath $(TARGET)/release) -lplinth
	@echo
	@PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/demo/tour
	@$(REPLAY_PROGRAMS)
	@printf '\nWhat PyTorch allocated while it trained a ResNet-50, allocated again:\n'
	@$(COMPARE) --brief --out $(TARGET)/demo/replay benches/traces/resnet_train.trace.xz

.PHONY: replay
replay: build ## replay recorded allocation traces by each allocator that is here; TRACES=folder for others than ours
	@tools/bootstrap.sh cc c++
	@$(REPLAY_PROGRAMS)
	@benches/replay/peers.sh $(TARGET)/benches/peers
	$(COMPARE) --peers $(TARGET)/benches/peers --out $(TARGET)/replay $(TRACES)

.PHONY: bench
bench: build ## calls beside the bare driver's, start-up, bandwidth, and the allocator beside others; TRACES=folder
	@tools/bootstrap.sh cc c++
	@tools/programs.sh benches $(TARGET)/benches $(TARGET)/release $(abspath $(TARGET)/release)
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/overhead
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/graph
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/history
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/sanitizer
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/startup || [ $$? = 77 ]
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/bandwidth
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/nowait
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/pinned
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/telemetry
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/jiterator
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/comm --largest 67108864 || [ $$? = 77 ]
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/communicator --largest 67108864 || [ $$? = 77 ]
	@$(REPLAY_PROGRAMS)
	@benches/replay/peers.sh $(TARGET)/benches/peers
	$(COMPARE) --peers $(TARGET)/benches/peers --bench $(TARGET)/benches/allocator --out $(TARGET)/replay $(TRACES)

.PHONY: bench-random
bench-random: build ## random fills beside a plain one, cuRAND and, where there is one, PyTorch; PLINTH_DEVICE=host or cuda
	@tools/bootstrap.sh cc c++
	@tools/programs.sh benches $(TARGET)/benches $(TARGET)/release $(abspath $(TARGET)/release)
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/random
	@# It ends with 77 without PyTorch or a GPU.
	PLINTH_DEVICE=cuda python3 benches/random_table.py --library $(TARGET)/release/libplinth.so \
		--program $(TARGET)/benches/random || [ $$? = 77 ]

.PHONY: install
install: build ## install under PREFIX=/usr/local, LIBDIR=lib; DESTDIR= for packagers
	tools/install.sh --from $(TARGET)/release --prefix "$(PREFIX)" --libdir "$(LIBDIR)" --destdir "$(DESTDIR)"

# In a folder of its own: a program makes cargo build the library as an rlib, too, which is another libplinth.so.
.PHONY: tool
tool: ## the command-line tool, target/tool/release/plinth
	@tools/bootstrap.sh rust cc
	cargo build --release --locked -p plinth-tool --target-dir $(TARGET)/tool

.PHONY: install-tool
install-tool: tool ## install the tool under PREFIX=/usr/local; DESTDIR= for packagers
	install -D -m 755 $(TARGET)/tool/release/plinth "$(DESTDIR)$(PREFIX)/bin/plinth"

.PHONY: gpu-bundle
gpu-bundle: build ## pack suite and benches into build/gpu for a GPU machine without Rust; there, run tools/gpu_run.sh
	tools/gpu_bundle.sh build/gpu

# ---- testing

.PHONY: test
test: ## what every change must pass, in under ten minutes on two cores: see tools/test.sh; stops at the first failure
	@tools/test.sh fast

.PHONY: test-deep
test-deep: ## what every submission must pass beside `make test`, in some 40 minutes more
	@tools/test.sh deep

.PHONY: test-nightly
test-nightly: ## what takes hours: exhaustive faults under AddressSanitizer, ThreadSanitizer, long fuzzing
	@tools/test.sh nightly

.PHONY: lint
lint: docs ## formatting, clippy, shell scripts and documentation; a warning is an error
	@tools/bootstrap.sh shellcheck
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings $(CLIPPY)
	shellcheck tools/*.sh benches/replay/*.sh tests/package/*.sh .ci/run

.PHONY: test-rust
test-rust: ## unit, property and header tests, and those of the command-line tool
	@tools/bootstrap.sh rust cc c++ python
	cargo test --locked --workspace

.PHONY: conformance
conformance: ## replay a GPU's answers to random sequences of driver calls on the host device: see docs/host.md
	@tools/bootstrap.sh rust cc
	cargo build --locked --workspace --all-targets
	$(TARGET)/debug/conformance replay $(CONFORMANCE_RECORD)

.PHONY: conformance-record
conformance-record: ## record the answers of this machine's GPU, for `make conformance`
	@tools/bootstrap.sh rust cc
	cargo build --locked --release -p plinth-conformance
	CUDA_VISIBLE_DEVICES=0 $(TARGET)/release/conformance record --programs 20000 --seed 1 --device cuda \
		--output $(CONFORMANCE_RECORD)

.PHONY: test-c
test-c: library ## the C and C++ tests, on PLINTH_DEVICE=host (the default) or cuda; C_TESTS=options of c_tests/run.py
	@tools/bootstrap.sh c++ python
	PLINTH_NVRTC_LIBRARY=$${PLINTH_NVRTC_LIBRARY:-$(abspath $(NVRTC))} python3 c_tests/run.py --lib $(LIBRARY) \
		--include include --build $(if $(filter release,$(PROFILE)),$(TARGET),$(LIBRARY))/c_tests \
		--device $${PLINTH_DEVICE:-host} $(C_TESTS)

.PHONY: examples
examples: library ## compile the examples and benches, warnings as errors, and run the examples
	@tools/bootstrap.sh cc c++
	@tools/programs.sh benches $(TARGET)/benches $(LIBRARY) $(abspath $(LIBRARY))
	@$(REPLAY_PROGRAMS)
	@tools/programs.sh examples $(TARGET)/example-programs $(LIBRARY) $(abspath $(LIBRARY))
	@for source in examples/*.c examples/*.cpp; do \
		echo "== $$source"; \
		PLINTH_DEVICE=$${PLINTH_DEVICE:-host} "$(TARGET)/example-programs/$$(basename "$${source%.*}")"; \
	done

.PHONY: test-replay
test-replay: library ## the programs that replay traces: broken traces, broken allocators, limits, tables and charts
	@tools/bootstrap.sh cc c++
	@$(REPLAY_PROGRAMS)
	python3 tests/replay/run.py --replay $(TARGET)/benches/replay/replay --lib $(LIBRARY) --build $(TARGET)/replay-test

.PHONY: test-random
test-random: library ## random numbers on the host device: beside what PyTorch wrote on a GPU, and by statistics
	python3 tests/random/golden.py --library $(LIBRARY)/libplinth.so --device host
	python3 tests/random/distributions.py --library $(LIBRARY)/libplinth.so --device host

.PHONY: test-snapshot
test-snapshot: library ## snapshots of a made-up training: pickle and JSON by Python, the page in a headless Chromium
	@tools/bootstrap.sh cc chromium
	python3 tests/snapshot/run.py --lib $(LIBRARY) --build $(TARGET)/snapshot-test --device $${PLINTH_DEVICE:-host}

.PHONY: test-fuzz
test-fuzz: library ## made and kept sequences of the allocator's calls against a model: the same each time, some seconds
	@tools/bootstrap.sh c++
	@tools/programs.sh fuzz $(TARGET)/fuzz $(LIBRARY) $(abspath $(LIBRARY))
	@for segments in True False; do \
		PLINTH_ALLOC_CONF=expandable_segments:$$segments PLINTH_DEVICE=host $(TARGET)/fuzz/allocator \
			--save $(TARGET)/fuzz/failed-$$segments --seeds 0 150 $(FUZZ_INPUTS); \
	done

.PHONY: fuzz
fuzz: ## look for new ones by libFuzzer, FUZZ_SECONDS=60 for each variant (test-nightly)
	@tools/bootstrap.sh rust c++ clang
	tools/fuzz.sh

.PHONY: header-check
header-check: ## the headers alone and beside CUDA's and DLPack's, in every C and C++ that they promise, by gcc and clang
	@tools/bootstrap.sh cc c++ clang python
	tools/check_header.sh $(HEADER_CHECK)

.PHONY: abi
abi: library ## exports, soname, needed libraries, struct layouts and version numbers; of a release also its size
	python3 tests/abi/layout.py
	python3 tests/abi/binary.py $(LIBRARY) $(if $(filter release,$(PROFILE)),--release)

.PHONY: package
package: library ## programs that use an installed plinth by CMake and pkg-config, shared and static; of a release also its sources
	@tools/bootstrap.sh c++ cmake pkg-config
	tests/package/run.sh $(LIBRARY) $(if $(filter release,$(PROFILE)),--sources)

.PHONY: kernels-check
kernels-check: ## kernels/*.ptx are what kernels/*.cu make
	@tools/bootstrap.sh c++ python
	@mkdir -p $(TARGET)/kernels
	tools/kernels.sh $(NVCC) $(TARGET)/kernels
	@for ptx in kernels/*.ptx; do cmp "$(TARGET)/$$ptx" "$$ptx"; done

.PHONY: test-asan
test-asan: ## the C tests with AddressSanitizer, in them and in the library, with one fault in each driver call
	@tools/bootstrap.sh rust c++ clang
	@# fault_allocator takes minutes under the sanitizer, even with one fault in each call; test-asan-faults has it.
	PLINTH_TEST_FAULTS=each tools/sanitize.sh address '^(?!fault_allocator/)'

.PHONY: test-asan-faults
test-asan-faults: ## every driver call failing in turn, in processes of their own, with AddressSanitizer (test-nightly)
	@tools/bootstrap.sh rust c++ clang
	tools/sanitize.sh address '^fault'

.PHONY: test-tsan
test-tsan: ## the C tests with ThreadSanitizer (test-nightly)
	@tools/bootstrap.sh rust c++ clang
	tools/sanitize.sh thread

.PHONY: test-valgrind
test-valgrind: library ## some of the C tests under valgrind
	@tools/bootstrap.sh c++ valgrind
	tools/valgrind.sh

# ---- cleaning

.PHONY: clean
clean: ## remove everything that was built
	cargo clean
	rm -rf build $(TARGET)/tools
