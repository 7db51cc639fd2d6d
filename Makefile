PYTHON ?= python3
SEED ?= 1
KILLS ?= 250
ARGS ?=
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help venv clients browser demo test lint bench faults mutants serve

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: ## create or refresh .venv from requirements.lock
	@command -v "$(PYTHON)" >/dev/null || { echo "make: no $(PYTHON) here; try make PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit("Ackwise needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + "; try make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@"$(PYTHON)" tools/make_venv.py

clients: venv ## the official Queen clients that the tests drive, each in an environment of its own
	@"$(PYTHON)" tools/make_venv.py --clients

demo: venv ## 20,000 orders, 1 % poison, through a Spark pipeline, with a dead-letter report
	$(BIN)/python -m ackwise.demo

browser: venv ## a Chromium for the browser tests: the one on the PATH, or apt's
	@$(BIN)/python tools/browser.py

test: clients browser ## lint, and every test; ARGS="-k name" goes to pytest
	$(BIN)/python tools/run_tests.py $(ARGS)

lint: venv ## ruff, mypy and import-linter
	$(BIN)/python tools/lint.py

bench: venv ## measure, into build/bench.json; ARGS="--only server" goes to it
	@mkdir -p build
	$(BIN)/python -m benchmarks $(ARGS)

faults: venv ## kill brokers and pipelines at work (SEED=1 KILLS=250), into build/faults.json
	@mkdir -p build
	$(BIN)/python -m tests.faults --seed $(SEED) --kills $(KILLS)
	$(BIN)/python -m pytest -q -m long tests

mutants: venv ## break the code on purpose and see the tests notice
	$(BIN)/python tools/mutants.py

serve: venv ## run the server; ARGS="--port 0" goes to it
	$(BIN)/ackwise serve $(ARGS)
