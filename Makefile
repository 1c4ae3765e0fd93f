# The front door; CMake does the work. `make help` lists the targets.
BUILD ?= build
JOBS ?= $(shell nproc)

.PHONY: all deps build test demo clean help
all: build

deps: ## install what is missing (says what)
	@tools/deps.sh

build: deps
	@cmake -S . -B $(BUILD) >/dev/null
	@cmake --build $(BUILD) -j $(JOBS)

test: build ## build and run the quick test suite
	@ctest --test-dir $(BUILD) --output-on-failure -LE slow

demo: build ## build and train a small GPT-2 with 4 ranks as 2 nodes x 2
	@tools/demo.sh

clean:
	@rm -rf $(BUILD)

help:
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'
