PYTHON ?= python3
BIN := .venv/bin
SOURCES := pyproject.toml Makefile

.PHONY: help install demo test check bench chaos clean

help: ## Show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.venv/pip-ready:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@touch $@

.venv/demo-ready: .venv/pip-ready $(SOURCES)
	$(BIN)/python -m pip install --quiet --editable ".[examples]"
	@touch $@

.venv/all-ready: .venv/pip-ready $(SOURCES)
	$(BIN)/python -m pip install --quiet --editable ".[examples,pandas,stack]" --group test --group check
	@touch $@ .venv/demo-ready

.venv/bench-ready: .venv/all-ready
	$(BIN)/python -m pip install --quiet --group bench
	@touch $@

install: .venv/all-ready ## Make .venv with wtb, every extra and the test tools

demo: .venv/demo-ready ## Sweep real retrieval variants over real documents; files in out/demo
	$(BIN)/python -m examples.retrieval.demo

test: .venv/all-ready ## Run all tests, those on a real PostgreSQL included
	$(BIN)/python -m pytest -n 3 --dist loadfile

check: .venv/all-ready ## Lint and type-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/bench-ready ## Measure speed and memory as ratios side by side
	$(BIN)/python -m benchmarks

chaos: .venv/all-ready ## Kill, stop and crash workers and servers under a sweep of 2,000 cells, and count what was lost
	$(BIN)/python -m tests.chaos

clean: ## Remove what was built
	rm -rf .venv .wtb out build dist
