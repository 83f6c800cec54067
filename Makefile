# `make` alone lists the targets. Continuous integration (.ci/run) calls the same ones.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_ARCHIVES := $(VENV)/demo_archives
DOCS_VENV := .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.installed
# Flink's distribution, of which only the command and the web UI are used: it is unpacked, for any Python, and never imported.
FLINK_HOME := .venv-flink
FLINK_STAMP := $(FLINK_HOME)/.installed
# How many test processes run side by side.
WORKERS ?= 2
# The same for tests that call endpoints and for integration tests, which wait for leases, time-outs and other processes
# half of the time. Tests on Spark compute.
INTEGRATION_WORKERS ?= 4
FAST_TESTS := $(wildcard tests/unit tests/simulation)
# Everything that calls endpoints; tests/architecture/test_serialized_tests.py holds the list complete.
RPC_TESTS := tests/unit/rpc tests/unit/cluster tests/unit/spark tests/unit/testing tests/unit/testkit tests/simulation \
  tests/integration/programs tests/integration/stored_savepoints tests/unit/shuffle_service \
  tests/integration/shuffle tests/integration/rest tests/integration/cli
# With AFTER=test-serialized, as .ci/run calls them, `make test-integration` runs no test that has run with encoded calls,
# `make test-spark` none that is marked as a repetition, nor with SLOW=1 any that is marked as long, and `make test-thorough`
# every eighth seed, with encoded calls: it does what `make test-serialized` does of the simulation. `make test-all` runs all.
INTEGRATION_TESTS := $(if $(AFTER),$(filter-out $(RPC_TESTS) %/__pycache__,$(wildcard tests/integration/*)),tests/integration)
SPARK_TESTS := tests/spark $(if $(AFTER),-m "not repetition$(if $(SLOW), and not long)")

# Tests and Spark's workers start hundreds of processes: each would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup lock fmt check test test-all test-serialized test-slow test-thorough test-integration \
  test-spark test-random sim chaos bench bench-quick docs demo wheel clean \
  dashboard dashboard-check dashboard-test test-browser test-flink pictures

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## make .venv with everything pinned in requirements/dev.txt, by hash

$(STAMP): pyproject.toml testkit/pyproject.toml requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Headrace needs Python 3.11 or newer; name one with: make setup PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e testkit
	@touch $@

lock:  ## write requirements/*.txt anew after pyproject.toml has changed; needs uv
	$(PYTHON) tools/lock_requirements.py

fmt: setup  ## format the code and sort imports
	$(BIN)/ruff check --select I --fix --quiet .
	$(BIN)/ruff format .

# The types and the floor plan take a core each.
check: setup  ## lint, format, types, floor plan, stale docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright & pyright=$$!; $(BIN)/python -m pytest -q tests/architecture; tests=$$?; wait $$pyright && exit $$tests
	$(BIN)/python tools/generate_docs.py --check

test: setup  ## unit and simulation tests, little more than a minute; those that need more are in test-slow
	$(BIN)/python -m pytest -q -n $(WORKERS) --leave-nothing -m "not slow" $(FAST_TESTS)

test-all: test test-serialized test-slow  ## the same, then all the others

test-serialized: setup  ## whatever uses RPC, once more with every local call encoded, or PART=tests/<folder> of it
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --force-serialization $(filter $(or $(PART),tests)%,$(RPC_TESTS))

test-slow: test-thorough test-integration test-spark  ## slow unit tests, all seeds of the simulation, integration tests, Spark

test-thorough: setup  ## slow unit tests, many examples of each property, all seeds of the simulation
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "slow or hypothesis" \
	  --hypothesis-profile $(if $(AFTER),ci,thorough) tests/unit
	HEADRACE_SEED_STEP=$(if $(AFTER),8,1) $(BIN)/python -m pytest -q -n $(WORKERS) $(if $(AFTER),--force-serialization) \
	  --hypothesis-profile $(if $(AFTER),ci,thorough) tests/simulation

# Each process takes its part in order, so that tests of a module share its cluster or session, then what another has left.
test-integration: setup  ## tests that start processes and open sockets
	$(BIN)/python -m pytest -q -n $(INTEGRATION_WORKERS) --dist worksteal $(INTEGRATION_TESTS)

test-spark: setup  ## tests on a real Spark
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(SPARK_TESTS)

# All that a test draws follows from the seed: SEED=<number> TESTS=<file>::<test> draws the same again. Not in .ci/run, which
# says the same of the same code.
test-random: SEED ?= $(shell $(BIN)/python -c 'import secrets; print(secrets.randbelow(2**32))')
test-random: setup  ## 1,000 new examples of each property, in an hour or more, or of TESTS=<paths>; SEED=<number> repeats a run
	@seed=$(SEED); echo "seed $$seed; what fails is repeated by: make test-random SEED=$$seed TESTS=<its file>"; \
	  $(BIN)/python -m pytest -q -n $(WORKERS) -m hypothesis --hypothesis-profile random --hypothesis-seed $$seed \
	  --timeout 3600 $(or $(TESTS),tests/unit tests/simulation)

sim: SEED ?= $(shell $(BIN)/python -c 'import secrets; print(secrets.randbelow(2**32))')
sim: setup  ## run the simulation once, from SEED=<number> or a fresh seed
	@seed=$(SEED); echo "seed $$seed"; $(BIN)/python -m pytest -q tests/simulation --seed $$seed

# In parts: `make chaos PART=storage` runs one group (or several), and adds what it finds to the page. What counts of each
# group is kept with the results of benchmarks, and a group that is run again takes the place of its earlier run. Part
# `leaders` kills drivers, without Spark; `takeovers` and `dataframes` do so on Spark.
chaos: setup  ## do to a running job what may happen to it, or PART=<groups> of that (below 30 minutes), and write a page
	@mkdir -p out
	$(BIN)/python -m testkit.chaos $(or $(PART),all) $(if $(REPEATS),--repeats $(REPEATS)) \
	  --json benchmarks/results/chaos.jsonl --log out/chaos.log; status=$$?; \
	  $(BIN)/python -m testkit.chaos.report benchmarks/results/chaos.jsonl docs/chaos_report.md; exit $$status

bench: setup  ## answer the questions of benchmarks/ (or one, also those that take long: BENCH=nexmark)
	@for question in $(or $(BENCH),exchange network state back_pressure_memory keyed_latency keyed_function); do \
	  echo "== $$question"; $(BIN)/python -m benchmarks.$$question || exit $$?; \
	done

bench-quick: setup  ## compare a few ratios with the stored ones, below two minutes; ACCEPT=1 stores new ones
	$(BIN)/python -m benchmarks.quick $(if $(ACCEPT),--accept)

docs: setup $(DOCS_STAMP)  ## regenerate docs/generated from the code, then build the site into site/
	$(BIN)/python tools/generate_docs.py
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/python -m mkdocs build --strict
	@echo "open site/index.html"

$(DOCS_STAMP): requirements/docs.txt
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch $@

demo: setup  ## the New York departures program, on a local Spark
	$(BIN)/headrace run -D jobmanager.archive.fs.dir=$(DEMO_ARCHIVES) examples/new_york_departures.py
	@echo 'Look at it again: $(BIN)/headrace history-server $(DEMO_ARCHIVES)' >&2

# The built files are committed, so that nobody else needs Node: `make check` only compares a hash of their sources.
dashboard:  ## build headrace/rest/dashboard from dashboard/; needs Node 20.19 or newer
	cd dashboard && npm ci && npm test && npm run build
	$(PYTHON) tools/dashboard_sources.py --record

# A build of the same sources and packages gives the same bytes: the committed record of their hashes could be written by hand.
dashboard-test:  ## the types and tests of dashboard/src, and a build of it against the committed one; needs Node 20.19 or newer
	@node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' \
	  || { echo "the dashboard needs Node 20.19 or newer, and not $$(node --version 2>/dev/null || echo none)"; exit 1; }
	cd dashboard && npm ci --no-audit --no-fund && npm run check && npm test
	@built=$$(mktemp -d) && trap 'rm -rf "$$built"' EXIT \
	  && (cd dashboard && npx --no-install vite build --logLevel warn --emptyOutDir --outDir "$$built") \
	  && { diff -rq -x build.sha256 "$$built" headrace/rest/dashboard \
	    || { echo "headrace/rest/dashboard is not what dashboard/ builds: run make dashboard, and commit both"; exit 1; }; }

dashboard-check:  ## say whether the built dashboard is of its sources; needs no Node
	$(PYTHON) tools/dashboard_sources.py

test-browser: setup  ## the dashboard in Chromium, with jobs of every kind; needs Debian's package chromium
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m browser tests/dashboard

test-flink: setup $(FLINK_STAMP)  ## Flink's own command line and web UI against our endpoint; needs Debian's package chromium
	$(BIN)/python -m pytest -q -n $(WORKERS) tests/flink

$(FLINK_STAMP): requirements/flink.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: \
	  --platform manylinux2014_x86_64 --python-version 3.11 --upgrade --target $(FLINK_HOME) -r requirements/flink.txt
	@touch $@

pictures: setup  ## take the pictures of the dashboard in docs/pictures anew
	PICTURES=1 $(BIN)/python -m pytest -q tests/dashboard/test_pictures.py

wheel: setup  ## build dist/headrace-….whl, which pip installs anywhere
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

clean:  ## remove the environments, the site and the caches
	rm -rf $(VENV) $(DOCS_VENV) $(FLINK_HOME) site .pytest_cache .ruff_cache .hypothesis
