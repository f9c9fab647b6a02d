PYTHON ?= python3
BIN := .venv/bin
SOURCES := pyproject.toml Makefile constraints.txt $(wildcard scripts/schemas/*.py)
# More processes than processors, since many tests wait. Groups (of tests that share workers) come first.
PROCESSES ?= 5
SIDE_BY_SIDE := -n $(PROCESSES) --dist loadgroup
# What is installed is compiled when it is first imported: most of it never is.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --no-compile
# Tests start thousands of processes: none of them is to compile what it imports.
COMPILED := $(BIN)/python -m compileall -q wtb workers/wtb_workers scheduler/wtb_scheduler
TIMES ?= 30
unexport PYTHONDONTWRITEBYTECODE

# Whole stories, of which each waits for many processes: two fifths of the time of all tests.
JOURNEYS := tests/acceptance tests/faults tests/hosting/client tests/hosting/pages

# A browser for the tests that look at the report: one that is there, else Debian's where we may install it.
# The shell has no window: tests of pages take half the time in it.
CHROMIUM_SHELL := chromium-headless-shell
CHROMIUM := chromium chromium-browser google-chrome google-chrome-stable

.PHONY: help install docs prose mutants schemas operations untyped lines rooms chromium prometheus demo test journeys test-again test-all package release constraints sbom audit pin pythons steady pictures check bench bench-pages simulate simulate-some chaos clean

help: ## Show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.venv/pip-ready:
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) --upgrade "pip>=25.1"
	@touch $@

.venv/demo-ready: .venv/pip-ready $(SOURCES)
	@sed -E '/^ +--hash/d; s/ \\$$//' constraints.txt > .venv/versions.txt  # with hashes pip installs no directory
	$(PIP_INSTALL) --constraint .venv/versions.txt --editable ".[examples]"
	@touch $@

.venv/all-ready: .venv/pip-ready $(SOURCES)
	@$(BIN)/python -m pip uninstall -qq --yes wtb  # what this distribution was called
	$(PIP_INSTALL) --require-hashes --no-deps --requirement constraints.txt
	$(PIP_INSTALL) --no-deps --editable .
	@touch $@ .venv/demo-ready

# pytest rewrites and compiles what it collects: once, and not in each process at the same time. What cannot be
# collected is told by the run that follows.
.venv/rewritten: .venv/all-ready $(shell find tests -name "*.py")
	@$(BIN)/python -m pytest --collect-only -qq > /dev/null 2>&1 || true
	@touch $@

.venv/supply-ready: .venv/all-ready
	$(PIP_INSTALL) --group supply
	@touch $@

.venv/bench-ready: .venv/all-ready
	$(PIP_INSTALL) --group bench
	@touch $@

install: .venv/all-ready ## Make .venv with wtb, every extra and the test tools

chromium: ## Make sure that there is a browser for the tests, where apt-get and root can
	@command -v $(CHROMIUM_SHELL) >/dev/null && exit 0; \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && export DEBIAN_FRONTEND=noninteractive; \
		for name in $(CHROMIUM_SHELL) chromium; do apt-get install -y -qq --no-install-recommends $$name && exit 0; done; \
	fi; \
	for name in $(CHROMIUM); do command -v $$name >/dev/null && exit 0; done; \
	echo "there is no Chromium: tests of the report will be skipped, in CI they fail"

prometheus: ## Make sure that there is promtool for the tests of metrics and alerts, where apt-get and root can
	@command -v promtool >/dev/null && exit 0; \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && cd "$$(mktemp -d)" && apt-get download -qq prometheus && \
		dpkg-deb --extract prometheus_*.deb . && install -m 755 usr/bin/promtool /usr/local/bin/promtool; \
	else echo "there is no promtool: tests of alert rules will be skipped, in CI they fail"; fi

phoenix: .venv/phoenix/bin/phoenix ## Install a collector of traces for one of the slow tests, in an environment of its own

.venv/phoenix/bin/phoenix: | .venv/pip-ready
	$(PYTHON) -m venv .venv/phoenix
	.venv/phoenix/bin/pip install --quiet "arize-phoenix>=20,<21"

demo: .venv/demo-ready ## Sweep real retrieval variants over real documents; files in out/demo
	$(BIN)/python -m examples.retrieval.demo

test: .venv/rewritten chromium prometheus ## Run the tests, those on a real PostgreSQL included, but for journeys
	@$(COMPILED)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not slow" $(JOURNEYS:%=--ignore=%)

journeys: .venv/rewritten chromium ## Run the tests that go through documents, browsers, servers and killed processes
	@$(COMPILED)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not slow" $(JOURNEYS)

test-again: .venv/all-ready ## Run what failed once more and alone, where it is at most 10: what passes then depends on how busy a machine is, and is named
	@$(BIN)/python -m tests.again

test-all: .venv/rewritten chromium prometheus phoenix ## Run all tests, with those that repeat others (on the other database, another pool or seed), wait for long or measure time
	@$(COMPILED)
	TEST_ALL=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE)

steady: .venv/all-ready ## Run the tests that wait, TIMES=30 times, while every processor is busy: hours; TESTS=path for some of them
	@$(COMPILED)
	$(BIN)/python -m tests.steady --times $(TIMES) $(TESTS)

pictures: demo .venv/all-ready chromium ## Take the pictures of the docs again
	$(BIN)/python -m tests.pictures
	WTB_UPDATE_DOCS=1 $(BIN)/python -m pytest -q tests/acceptance/test_docs.py -k "page_runs and first-sweep"

docs: .venv/all-ready chromium ## Build the site from the pages into out/site and test it; a link that leads nowhere is an error
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -c docs -d out/doctrees . out/site
	SITE=out/site $(BIN)/python -m pytest tests/repository/test_site.py
	@echo "out/site/index.html"

package: sbom ## Build wheel and sdist, and try both in empty environments; RELEASE=1 also requires pinned images
	$(BIN)/python -m pytest tests/repository/test_packaging.py
	WTB_RELEASE=$(RELEASE) $(BIN)/python -m pytest -q tests/repository/test_supply.py

release: .venv/supply-ready ## Build wheel and sdist of the version into dist/, and check both in empty environments; needs a network
	$(BIN)/python -m scripts.release

constraints: .venv/supply-ready ## Resolve all dependencies again, with their hashes, into constraints.txt
	$(BIN)/python -m scripts.constraints

sbom: .venv/all-ready ## Write the bill of materials of what constraints.txt names to out/sbom.json
	@mkdir -p out
	$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --output-file out/sbom.json constraints.txt

audit: .venv/supply-ready ## Look up known vulnerabilities of what constraints.txt names; needs a network, so CI does not run it
	$(BIN)/pip-audit --requirement constraints.txt --require-hashes --disable-pip

pin: ## Pin the images of deploy/ to their digests; needs Docker and a network
	$(PYTHON) scripts/pin_images.py

pythons: ## Run the unit tests and one sweep with each Python of the PATH and of pyenv, in environments of their own
	$(PYTHON) scripts/pythons.py

check: .venv/all-ready ## Lint and type-check, look whether tests/prose has every text, and count untyped mappings, the words of the docs and plain names
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.prose --check
	$(BIN)/python scripts/count_untyped.py
	$(BIN)/python -m scripts.plain_docs
	$(BIN)/python -m scripts.plain_code

prose: .venv/all-ready ## Write the texts that users read to tests/prose again, after a change of one; the diff shows which sentences changed
	$(BIN)/python -m scripts.prose

mutants: .venv/all-ready ## Apply each mutant of tests/structure to a copy, and check that its test fails: minutes
	$(BIN)/python -m scripts.mutants

schemas: .venv/all-ready ## Write the JSON Schemas of documents, their contract and the table of docs/json.md, after a change of wtb/core/documents
	$(BIN)/python -m scripts.write_schemas

operations: .venv/all-ready ## Write the tables of docs/operations.md and docs/api.md again, after a change of operations or routes
	$(BIN)/python -m scripts.write_operations

untyped: ## Count types that are mappings to anything, which have a bound
	$(PYTHON) scripts/count_untyped.py

lines: ## Count the lines of code, by package and for the core
	$(PYTHON) scripts/count_lines.py

rooms: ## Count the modules that each module of commands knows
	$(PYTHON) scripts/count_rooms.py

bench: .venv/bench-ready ## Measure speed and memory as ratios side by side
	$(BIN)/python -m benchmarks

bench-pages: .venv/bench-ready chromium ## Measure what the pages take in a browser
	$(BIN)/python -m benchmarks pages

simulate: .venv/all-ready ## Simulate sweeps whose truth is known; tables go to docs/simulated.md and simulations/figures.md
	$(BIN)/python -m simulations --update

simulate-some: .venv/all-ready ## Simulate a thirtieth of what has a bound, which CI does: minutes
	$(BIN)/python -m simulations --bound --share 0.03 > /dev/null

chaos: .venv/all-ready ## Kill, stop and crash all parts under sweeps, and count what was lost; figures go to docs/reliability.md
	$(BIN)/python -m tests.chaos --update docs/reliability.md

clean: ## Remove what was built
	rm -rf .venv .wtb out build dist
