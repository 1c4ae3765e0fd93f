# The front door; CMake does the work. `make help` lists the targets.
BUILD ?= build
JOBS ?= $(shell nproc)
# Tests wait for a good part of their time, for ranks, signals and time-outs: three more than cores run at once.
TEST_JOBS ?= $(shell expr $(JOBS) + 3)

MAKEFLAGS += --no-print-directory

.PHONY: all deps configure build tests test quick fuzz demo bench-cloud install package clean help
all: build

deps: ## install what is missing (says what)
	@tools/deps.sh

configure: deps
	@cmake -S . -B $(BUILD) $(CMAKE_FLAGS) >/dev/null

build: configure ## build program, library and man page (as does make alone)
	@cmake --build $(BUILD) -j $(JOBS) --target mics_built

tests: configure
	@cmake --build $(BUILD) -j $(JOBS)

test: tests ## build and run the quick test suite
	@ctest --test-dir $(BUILD) -j $(TEST_JOBS) --output-on-failure --no-tests=error -LE slow && status=0 || status=$$?; \
	    awk '/^[0-9]+\/[0-9]+ Test: / { name = $$3 } /^skipped / { print name ": " $$0 }' \
	    $(BUILD)/Testing/Temporary/LastTest.log; exit $$status

quick: tests ## build, and run the tests of modules alone
	@ctest --test-dir $(BUILD) -j $(TEST_JOBS) --output-on-failure --no-tests=error -L unit -LE 'slow|long|short'

fuzz: ## fuzz every parser for FUZZ_SECONDS each (60) under sanitizers; needs clang
	@tools/fuzz --seconds $(or $(FUZZ_SECONDS),60)

demo: configure ## build the program and train a small GPT-2 with 4 ranks as 2 nodes x 2
	@cmake --build $(BUILD) -j $(JOBS) --target mics_cli
	@BUILD=$(BUILD) tools/demo.sh

bench-cloud: began := $(shell date +%s)
bench-cloud: configure ## train on an emulated cloud of 1 and 4 nodes, zero3 and MiCS, in under 5 minutes (root)
	@cmake --build $(BUILD) -j $(JOBS) --target mics_cli
	@BUILD=$(BUILD) SECONDS_MAX=$${SECONDS_MAX:-$$((285 - $$(date +%s) + $(began)))} bench/cloud/short.sh

# Builds what it installs and no more, and installs no packages: it may run as root after `make demo`.
install: ## install program, library, headers, man page, and the GPU plugin if it was built (PREFIX, DESTDIR)
	@cmake -S . -B $(BUILD) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target mics_installed
	@cmake --install $(BUILD) $(if $(PREFIX),--prefix $(PREFIX))

package: ## pack what `install` installs: a .tar.xz that runs where it is unpacked and, where dpkg-dev is, a .deb
	@cmake -S . -B $(BUILD) $(CMAKE_FLAGS) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target mics_installed
	@cd $(BUILD) && cpack

clean: ## remove the build folder
	@rm -rf $(BUILD)

help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'
