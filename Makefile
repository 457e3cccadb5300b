# Everything a person types. Each target brings what it needs; only Python 3.11 is assumed.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
CODE := business_gateway control_plane foundation node_agent tests tools
# Two workers, each file whole on one of them: files share nothing, and the servers that the tests
# start leave no room for more on two cores.
PYTEST_WORKERS ?= 2
# Hashes and no registry address; markers for each platform instead of this machine's answer.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command 'make lock' -c requirements/constraints.in $(LOCK_FLAGS)

.PHONY: help
help:  ## Show this list.
	@awk 'BEGIN {FS = ":.*  ## "} /^[a-z-]+:.*  ## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

.PHONY: setup
setup:  ## Make .venv with everything for work on the code (again only when the locks change).
	@$(PYTHON) tools/bootstrap.py dev

.PHONY: setup-runtime
setup-runtime:
	@$(PYTHON) tools/bootstrap.py runtime

.PHONY: demo
demo: setup-runtime  ## Run one order end to end: make demo [ZIP=file.zip] [TEXT=watermark] [OUT=folder]
	@$(BIN)/tdp demo $(if $(ZIP),--zip "$(ZIP)") $(if $(TEXT),--text "$(TEXT)") $(if $(OUT),--out "$(OUT)")

.PHONY: up
up: setup-runtime  ## Run the whole stack until Ctrl-C and print its addresses and a key.
	@$(BIN)/tdp dev

.PHONY: test
test: setup  ## Run all tests that need Python only.
	$(BIN)/pytest -n $(PYTEST_WORKERS) --dist loadfile

.PHONY: test-interop
test-interop:  ## Run the tests with clients in other languages (Node, grpcurl, buf).
	@$(PYTHON) tools/bootstrap.py interop
	$(BIN)/pytest -m interop

DEBIAN_TOOLS := systemd-analyze:systemd bsdtar:libarchive-tools unzip:unzip strace:strace

.PHONY: test-debian
test-debian: setup  ## Run the tests with Debian's tools (systemd-analyze, bsdtar, unzip, strace).
	@missing=; test -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf || missing=" fonts-dejavu-core"; \
	for tool in $(DEBIAN_TOOLS); do \
		command -v "$${tool%%:*}" > /dev/null || missing+=" $${tool##*:}"; \
	done; \
	if [[ -n "$$missing" && $$(id -u) != 0 ]]; then \
		echo "Missing, and only root can install them: apt-get install$$missing" >&2; exit 1; \
	elif [[ -n "$$missing" ]]; then \
		apt-get update -qq && apt-get install -qq -y --no-install-recommends $$missing; \
	fi
	$(BIN)/pytest -m debian tests/debian

.PHONY: test-browser
test-browser:  ## Run the tests of the page in Chromium; its pictures go to build/screenshots.
	@$(PYTHON) tools/bootstrap.py browser
	@command -v chromium > /dev/null || { apt-get update -qq && \
		apt-get install -qq -y --no-install-recommends chromium; }
	$(BIN)/pytest -m browser tests/browser

.PHONY: fuzz
fuzz: setup  ## Try new mutations of archives and pictures: make fuzz [COUNT=50000]
	$(BIN)/python -m tests.fuzz zip --count $(or $(COUNT),50000)
	$(BIN)/python -m tests.fuzz image --count $(or $(COUNT),50000)

.PHONY: check
check: setup  ## Lint, format, types, import rules, contracts, generated code and house style.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	$(BIN)/python -m tools.gen_protos --check
	$(BIN)/python -m tools.tidy

.PHONY: bench
bench: setup-runtime  ## Measure 1,000 two-step executions through the whole control plane.
	@$(BIN)/python -m tools.bench

.PHONY: protos
protos: setup  ## Format the contracts and generate protos/gen from them.
	$(BIN)/buf format --write
	$(BIN)/python -m tools.gen_protos

.PHONY: schema
schema: setup  ## Replay the migrations and write each schema.sql anew.
	$(BIN)/python -m tools.schema

.PHONY: lock
lock: setup  ## Resolve requirements/*.txt anew (LOCK_FLAGS=--upgrade for newer versions).
	$(COMPILE) requirements/uv.in -o requirements/uv.txt
	$(COMPILE) pyproject.toml requirements/build.in --extra dev --extra test -o requirements/dev.txt
	$(COMPILE) pyproject.toml requirements/build.in --extra dev -c requirements/dev.txt -o requirements/runtime.txt
	$(COMPILE) requirements/interop.in -o requirements/interop.txt
	$(COMPILE) requirements/node.in -o requirements/node.txt
	$(COMPILE) requirements/browser.in -o requirements/browser.txt

.PHONY: clean
clean:  ## Remove caches and build results; .venv and .data stay.
	rm -rf build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(CODE) protos -name __pycache__ -type d -prune -exec rm -rf {} +
