PYTHON ?= python3
SEED ?= 1
KILLS ?= 250
ARGS ?=
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help _python venv product clients browser promtool demo test test-busy test-pythons lint docs docs-serve bench faults mutants screenshots serve

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

_python:
	@command -v "$(PYTHON)" >/dev/null || { echo "make: no $(PYTHON) here; try make PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit("Ackwise needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + "; try make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'

venv: _python ## create or refresh .venv from the lock files, with all extras and all tools
	@"$(PYTHON)" tools/make_venv.py

product: _python ## create or refresh .venv with what the product needs, without tests and tools
	@"$(PYTHON)" tools/make_venv.py --product

clients: venv ## the official Queen clients that the tests drive, each in an environment of its own
	@"$(PYTHON)" tools/make_venv.py --clients

demo: product ## 20,000 orders, 1 % poison, through a Spark pipeline, with a dead-letter report
	$(BIN)/python -m ackwise.demo

browser: venv ## a Chromium for the browser tests: the one on the PATH, or apt's
	@$(BIN)/python -m tools.browser

promtool: venv ## promtool for the check of the alert rules: the one on the PATH, or apt's
	@$(BIN)/python -m tools.promtool

test: clients browser promtool ## lint, and every test; ARGS="-k name" goes to pytest
	$(BIN)/python -m tools.run_tests $(ARGS)

test-busy: clients browser ## every test beside busy loops on every core; ARGS="--loops-per-core 10 -k name"
	$(BIN)/python tools/busy_tests.py $(ARGS)

test-pythons: venv ## the wheel in a fresh environment of every Python 3.11 to 3.14 on this machine
	$(BIN)/python tools/test_pythons.py $(ARGS)

lint: venv ## ruff, mypy, import-linter, plain language and complexity
	$(BIN)/python tools/lint.py

docs: venv ## the documentation site, into build/docs; a broken link inside the repository is an error
	@mkdir -p build
	$(BIN)/sphinx-build -q -W --keep-going -c docs -d build/doctrees . build/docs

docs-serve: docs ## the site on http://127.0.0.1:8000; ARGS="8001" is another port
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/docs $(ARGS)

bench: venv ## measure, into build/bench.json; ARGS="--only server" goes to it
	@mkdir -p build
	$(BIN)/python -m benchmarks $(ARGS)

faults: venv ## kill brokers and pipelines at work (SEED=1 KILLS=250), into build/faults.json
	@mkdir -p build
	$(BIN)/python -m tests.faults --seed $(SEED) --kills $(KILLS)
	$(BIN)/python -m pytest -q -m long tests

mutants: venv ## break the code on purpose and see the tests notice
	$(BIN)/python tools/mutants.py

screenshots: venv browser ## the pictures of README and guide, from the demo, into docs/images
	$(BIN)/python -m tools.screenshots $(ARGS)

serve: product ## run the server; ARGS="--port 0" goes to it
	$(BIN)/ackwise serve $(ARGS)
