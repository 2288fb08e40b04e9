# Tacit. Every target sets up the environment it needs; later calls are quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt
.DEFAULT_GOAL := help

.PHONY: help demo test test-slow test-deployed test-chaos check bench pages docs clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(VENV)/core: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tacit needs Python 3.11 or newer, got $$($(PYTHON) --version 2>&1); run: make PYTHON=python3.11 ..." >&2; exit 1; }
	@echo "Setting up $(VENV) (once)" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e .
	@touch $@

$(VENV)/dev: $(VENV)/core papers/pyproject.toml
	@$(PIP) -e '.[dev]' -e papers
	@touch $@

$(VENV)/docs: $(VENV)/dev
	@$(PIP) -e '.[dev,docs]' -e papers
	@touch $@

$(VENV)/bench: $(VENV)/core
	@$(PIP) -e '.[bench]' -e papers
	@touch $@

demo: $(VENV)/core ## train on a synthetic log with and without noise, and write a report
	@$(BIN)/tacit demo

test: $(VENV)/dev ## run the tests
	@$(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: $(VENV)/dev $(VENV)/bench ## run the tests that take minutes, and those of equality bit for bit on programs as users get them
	@$(BIN)/python -m pytest -m slow -n 2 --dist worksteal
	@XLA_FLAGS= $(BIN)/python -m pytest -m 'bitwise and not slow' -n 2 --dist worksteal

test-deployed: $(VENV)/dev ## run the tests that start, and kill, Flower processes
	@$(BIN)/python -m pytest -m deployed

test-chaos: $(VENV)/dev ## kill processes, cut power, fill disks, lose and repeat messages at random: more than 200 rounds
	@$(BIN)/python -m pytest -m 'not deployed' tests/deploy/test_chaos.py
	@$(BIN)/python -m pytest -m deployed tests/deploy/test_over_flower.py -k killed

check: $(VENV)/dev ## check style, types, import contracts and exported names
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest tests/project/test_exports.py

bench: $(VENV)/bench ## measure speed against other libraries, as ratios in one run
	@$(BIN)/python -W ignore benchmarks/speed.py
	@$(BIN)/python benchmarks/scale.py

pages: $(VENV)/dev ## make the tables of the pages again, from the code and from benchmarks/results
	@$(BIN)/python benchmarks/pages.py

docs: $(VENV)/docs ## build the documentation as a site in site/
	@$(BIN)/python -m pytest tests/project/test_docs.py tests/project/test_exports.py
	@$(BIN)/python -m sphinx -W --keep-going -E -q -d build/docs docs site
	@echo "The site is in site/index.html."

clean: ## remove everything that the targets made
	@rm -rf $(VENV) dist build runs site .hypothesis .ruff_cache .import_linter_cache
	@find src papers tests -name __pycache__ -prune -exec rm -rf {} +
