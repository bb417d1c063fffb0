# Every target bootstraps .venv by itself: Python 3.11 or newer, pip and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
UV_VERSION := 0.13.7
PROCESSES := -n 3 --dist loadgroup --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help up check types style test proof demo bench compat sim fuzz mutants format clean

help:  ## List the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt setup.py $(wildcard native/*.[ch])
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[dev]'
	@touch $@

up: $(STAMP)  ## Start the embedded broker on 127.0.0.1:9092 (Ctrl+C stops it)
	$(BIN)/lakelog up

check: $(STAMP)  ## Format, lint, types, import contracts, tidy tests
	@$(MAKE) --no-print-directory -j2 types style

types: $(STAMP)
	$(BIN)/mypy

style: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/tidy

test: check  ## All checks and the tests, in minutes
	$(BIN)/python -m pytest -q $(PROCESSES) -m 'not proof' --ignore=tests/tidy

proof: $(STAMP)  ## Everything that is proved, in an hour or two; goes on where it was (DEEP=1: hours)
	$(BIN)/python -m tests.proof $(if $(DEEP),--deep)

format: $(STAMP)  ## Rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

demo: $(STAMP)  ## The whole story in a minute: produce, consume, compact with Spark, query
	$(BIN)/lakelog demo

bench: $(STAMP)  ## Benchmarks against Apache Kafka in the same run (see docs/benchmarks.md)
	$(BIN)/python -m bench

compat: $(STAMP)  ## Real clients: every producer against every consumer, groups, engines on tables
	$(BIN)/python -m tests.compat
	$(BIN)/python -m tests.compat.groups
	$(BIN)/python -m tests.compat.tables
	$(BIN)/python -m tests.compat.spark_kafka
	-$(BIN)/python -m tests.conformance.emulators
	$(BIN)/python -m pytest -q tests/conformance/test_cloud_objects.py
	$(BIN)/python -m tests.compat.lake --records 1000000 --kills 3

sim: $(STAMP)  ## Simulation seeds (SEEDS=2000)
	$(BIN)/python -m tests.sim --seeds $(or $(SEEDS),2000)

fuzz: $(STAMP)  ## Fuzz every parser (INPUTS=1000000)
	$(BIN)/python -m tests.fuzz --inputs $(or $(INPUTS),1000000)

mutants: $(STAMP)  ## Plant known bugs and see each one caught
	$(BIN)/python -m tests.mutants

clean:  ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .proof
