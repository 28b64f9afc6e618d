# clade's workspace. `make demo` answers a question with a real model; `make test` is the test suite.
# Everything that is made lies in bin/, which git ignores.

SHELL := /bin/bash
.SHELLFLAGS := -e -o pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
PLUGINS := gemma4 glm52 qwen universal whisper
# Modules of the workspace; tools is one of its own, so that no tool's dependency reaches a program's build.
MODULES := sdk core $(addprefix plugins/,$(PLUGINS)) native bench
LDFLAGS := -s -w -X main.version=$(VERSION)
GOBUILD := go build -trimpath -ldflags '$(LDFLAGS)'
DEMO_MODEL := bin/demo/SmolLM2-135M-Instruct.Q4_1.gguf
DEMO_PROMPT ?= What is the capital of France?

.PHONY: demo test test-full setup build bench soak lint generate clean tidy release-checks tools cgo-rule help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: build $(DEMO_MODEL) ## bring a small model and ask it a question
	@bin/clade run $(DEMO_MODEL) "$(DEMO_PROMPT)"

$(DEMO_MODEL): native/versions.json | bin/tools/setup
	@bin/tools/setup package demo bin/demo
	@touch $@

setup: bin/tools/setup ## MLX and mlx-c: pip, cargo and cmake into bin/runtime/
	@bin/tools/setup runtime

bin/tools/setup: native/go.mod $(wildcard native/setup/*.go)
	@mkdir -p bin/tools
	@command -v go >/dev/null || { echo "go is needed and was not found: on Debian: apt-get install golang (1.26 or later)" >&2; exit 1; }
	@cd native && GOWORK=off go build -trimpath -o ../bin/tools/setup ./setup

build: setup ## bin/clade and bin/plugins/, with receipts
	@mkdir -p bin
	@CGO_ENABLED=0 $(GOBUILD) -o bin/clade ./core/cmd/clade
	@for p in $(PLUGINS); do \
		mkdir -p bin/plugins/$$p; \
		cgo=0; [ $$p = universal ] && cgo=1; \
		CGO_ENABLED=$$cgo $(GOBUILD) -o bin/plugins/$$p/clade-$$p ./plugins/$$p; \
		cmp -s plugins/$$p/plugin.yaml bin/plugins/$$p/plugin.yaml || cp plugins/$$p/plugin.yaml bin/plugins/$$p/plugin.yaml; \
		bin/clade plugin seal bin/plugins/$$p >/dev/null; \
	done

clean: ## all of bin/ except the downloads and the native build
	@rm -rf bin/clade bin/plugins bin/runtime bin/tools bin/test.log bench/out.json
