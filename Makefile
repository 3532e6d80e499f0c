# The developer's interface. Every target makes what it needs; none but `peers` needs root.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
TORCH  ?= torch==2.13.0
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help demo test peers check bench pictures clean

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Lineside needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[demo,dev,fast]'
	@touch $@

$(VENV)/.workshop: $(VENV)/.dev
	$(BIN)/python -m pip install -q --disable-pip-version-check '$(TORCH)'
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[workshop]'
	@touch $@

demo: $(VENV)/.demo ## simulated plant, broker, gateway and dashboard; ARGS="--headless --for 30s" needs no terminal
	$(BIN)/lineside demo $(ARGS)

test: $(VENV)/.dev ## all tests that this machine can run; ARGS="tests/e2e" runs a part
	$(BIN)/python -m pytest $(ARGS)

peers: $(VENV)/.workshop ## foreign counterparts the tests talk to (Debian packages: needs root or sudo) and the training extra
	deploy/peers

check: $(VENV)/.dev ## formatting, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev ## speed, as ratios to a named reference in the same run; ARGS="SUITE --json FILE"
	$(BIN)/python -m tests.bench $(ARGS)

pictures: $(VENV)/.demo ## the README's pictures, taken from the running program
	$(BIN)/lineside demo --headless --for 45s --picture docs/pictures/overview.svg

clean: ## removes the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
