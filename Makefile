# The ingero suite. On a fresh machine with Rust, gcc, make and Python:
#
#   make run           build, then show why a GPU waits: of the process PID=..., or of a workload on a stub library
#   make test          everything that a change must pass, on live probes (as root); .ci/run calls it
#
#   make check         what of it needs no root: format, clippy, unit tests, cases; a minute or two once it is built
#   make test-kernels  the tests on live probes, on Debian's Linux 6.1 and 6.12 under qemu (KERNELS=..., TESTS=...)
#   make test-limits   each threshold of ingero-chain pushed: a test or a case must notice (an hour; ENTRIES=... for some)
#   make build         release binaries in target/release
#   make install       binaries, man pages and shell completions below PREFIX (/usr/local), DESTDIR in front
#   make cases         the cases of tests/cases only
#   make bench         what tracing costs here, in ratios
#
# What is missing (clang, the libbpf headers, bpftool) is installed with apt-get where there is one.

SHELL := /bin/bash
CARGO ?= cargo
PREFIX ?= /usr/local
DURATION ?= 10s

TARGET := $(or $(CARGO_TARGET_DIR),target)
BIN := $(TARGET)/release
TOOLS := ingero-cuda ingero-sched ingero-join ingero-chain ingero-mcp

build: build-tools
	$(CARGO) build --release --workspace --bins

run: build
	BIN=$(BIN) DURATION=$(DURATION) tests/scripts/run.sh $(PID)

test: test-tools
	CARGO=$(CARGO) tests/scripts/test.sh

check: test-tools
	CARGO=$(CARGO) tests/scripts/test.sh check

test-kernels: kernel-tools
	CARGO=$(CARGO) python3 tests/kernels/run.py $(KERNELS) $(addprefix --test ,$(TESTS))

test-limits:
	python3 tests/scripts/mutate.py $(ENTRIES)

cases: build
	python3 tests/cases/check.py $(BIN)

bench: test-tools build
	BIN=$(BIN) python3 tests/scripts/bench.py
	BIN=$(BIN) python3 tests/scripts/bench_filters.py
	$(CARGO) bench --workspace --bench "*"

install: build
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	install -d $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	set -e; for tool in $(TOOLS); do \
		install -s -m 755 $(BIN)/$$tool $(DESTDIR)$(PREFIX)/bin/; \
		$(BIN)/$$tool --generate man > $(DESTDIR)$(PREFIX)/share/man/man1/$$tool.1; \
		$(BIN)/$$tool --generate bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$tool; \
		$(BIN)/$$tool --generate zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_$$tool; \
		$(BIN)/$$tool --generate fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$$tool.fish; \
	done

build-tools:
	tests/scripts/prerequisites.sh build

test-tools:
	tests/scripts/prerequisites.sh test

kernel-tools:
	tests/scripts/prerequisites.sh kernels

clean:
	$(CARGO) clean
	rm -rf tests/.cache

.PHONY: build run test check test-kernels test-limits cases bench install build-tools test-tools kernel-tools clean
