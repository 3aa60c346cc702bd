# Everything a newcomer needs. Relative paths only, so that a checkout may lie under any path, spaces included.
.DEFAULT_GOAL := help
.PHONY: help venv demo quick test nightly check catalogs bench chaos clean
SHELL := /bin/sh

# Whatever umask the caller has: servers of the tests and of the demo run under other accounts and must read this.
USUAL := umask 022;
PYTHON := .venv/bin/python
STAMP := .venv/.installed
# Tests beside one another: most of the time they wait for processes. Each has servers of its own.
JOBS ?= 3

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-9s %s\n", $$1, $$2}' Makefile

venv: $(STAMP) ## Make the Python environment in .venv (once; again when the lock changes)

$(STAMP): requirements-dev.lock pyproject.toml deploy/make-venv
	@$(USUAL) sh deploy/make-venv .venv

demo: $(STAMP) ## See it work on embedded services and real data; KEEP=1 keeps them up
	@$(USUAL) exec $(PYTHON) -m demo $(if $(filter-out 0 no,$(KEEP)),--keep)

quick: $(STAMP) ## Run the tests that start nothing, in under a minute: units, in-memory twins
	@$(USUAL) exec env REROOT_TEST_QUICK=1 $(PYTHON) -m pytest -n $(JOBS) tests/unit tests/contract $(ARGS)

test: $(STAMP) ## Run every test that this machine can run; says what it left out and why
	@$(USUAL) $(PYTHON) -m tests.support.fetch_catalogs --if-possible
	@$(USUAL) exec $(PYTHON) -m pytest -n $(JOBS) --dist loadfile $(ARGS)

nightly: $(STAMP) ## Run the long proofs: pairs of faults, 100,000 random stories, every catalog
	@$(USUAL) $(PYTHON) -m tests.support.fetch_catalogs --if-possible --nightly
	@$(USUAL) exec env REROOT_TEST_NIGHTLY=1 $(PYTHON) -m pytest -n $(JOBS) --dist loadfile -rP tests/unit/test_fault_matrix.py \
		tests/unit/test_stateful_move.py tests/contract tests/integration/test_move_on_temperaments.py \
		tests/integration/test_move_on_nessie.py $(ARGS)

check: $(STAMP) ## Lint, format, types, who may import whom, and the locks against pyproject.toml
	@$(USUAL) $(PYTHON) -m ruff check . && $(PYTHON) -m ruff format --check . && $(PYTHON) -m mypy \
		&& .venv/bin/lint-imports && $(PYTHON) -m pytest -q tests/unit/test_locks.py

catalogs: $(STAMP) ## Fetch the catalogs that the tests start (needs mvn and java); NIGHTLY=1 fetches Nessie too
	@$(USUAL) exec $(PYTHON) -m tests.support.fetch_catalogs $(if $(filter-out 0 no,$(NIGHTLY)),--nightly)

bench: $(STAMP) ## Measure what docs/benchmarks.md reports
	@$(USUAL) exec $(PYTHON) -m benchmarks $(ARGS)

chaos: $(STAMP) ## Disasters for minutes; see that nothing is lost (ARGS="--datasets 300 --minutes 5 --seed 7")
	@$(USUAL) exec $(PYTHON) -m tests.chaos $(ARGS)

clean: ## Remove what these targets made
	rm -rf .venv .demo .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
