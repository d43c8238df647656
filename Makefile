# Everything stopwise's developers do, from a machine that has Python 3.11+, make and git.
# Each target makes the virtual environment and installs what it needs, once.

PYTHON ?= python3
VENV   ?= .venv
PYTEST_ARGS ?=
BENCH_ARGS  ?=

BIN    := $(VENV)/bin
STAMPS := $(VENV)/stamps

# numba's on-disk cache of a compiled function is keyed on the file that defines it. A kernel
# that calls a kernel of another file keeps its old machine code when only that other file
# changes, and would silently compute yesterday's mathematics. So the cache has one directory per
# state of the engine's sources: any edit there starts afresh, going back finds the old cache.
ENGINE_STATE := $(shell find src/stopwise/engine src/stopwise/monomials.py -name '*.py' 2>/dev/null | LC_ALL=C sort \
                | xargs cat /dev/null | cksum | tr ' ' '-')
export NUMBA_CACHE_DIR := $(CURDIR)/.cache/numba/$(ENGINE_STATE)
# uv: trust the authorities this machine trusts.
export UV_SYSTEM_CERTS := 1
export HYPOTHESIS_STORAGE_DIRECTORY := $(CURDIR)/.cache/hypothesis

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help run example browser installed compiled test test-full bench lint types format constraints clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

run: $(STAMPS)/run  ## Reproduce the paper quickly: a minute's work, and a report to open
	@$(BIN)/stopwise reproduce --quick --out reproduction-quick

example: $(STAMPS)/run  ## Watch a first cascade learn where to stop
	@$(BIN)/python examples/first_cascade.py

browser:  ## Install Chromium, in which the tests open the report, where it is missing (Debian)
	@command -v chromium > /dev/null && command -v chromedriver > /dev/null || { \
	    echo "Installing Chromium ..." >&2; \
	    SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	    $$SUDO apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive $$SUDO apt-get install -y -qq --no-install-recommends \
	        chromium chromium-driver > /dev/null; }

installed: $(STAMPS)/lint $(STAMPS)/types $(STAMPS)/test  ## Install what checks and tests need

compiled: $(STAMPS)/test  ## Compile the kernels beforehand, so that no test waits for them
	@$(BIN)/python -c "from stopwise.logs.replay.preparing import prepare; \
	    from stopwise.policies.registry import POLICIES; from stopwise.service.warming import warm; \
	    warm(); prepare(lambda *_: None, [k for k, p in POLICIES.items() if not p.needs_truth])"

test: browser $(STAMPS)/test  ## Run the tests and the doctests of src and docs (PYTEST_ARGS="-k gram")
	@$(BIN)/python -m pytest -q -n auto $(PYTEST_ARGS)

test-full: browser $(STAMPS)/test  ## The same with the slow statistical runs, on all cores
	@$(BIN)/python -m pytest -q -m "full or not full" -n auto $(PYTEST_ARGS)

bench: $(STAMPS)/bench  ## Measure speed and regret beside other libraries (BENCH_ARGS=...)
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

lint: $(STAMPS)/lint  ## Check style, docstrings and formatting
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .

types: $(STAMPS)/types  ## Check types (strict in src) and the order of the layers
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports --no-logo --cache-dir .cache/import-linter

format: $(STAMPS)/lint  ## Rewrite the code in the house format and fix what can be fixed
	@$(BIN)/ruff check -q --fix-only .
	@$(BIN)/ruff format -q .

constraints: $(STAMPS)/uv  ## Pin the newest versions of every dependency in constraints.txt
	@echo "# Every dependency of every group, pinned. Written by 'make constraints'." > constraints.new
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --upgrade --strip-extras \
	    --no-header --no-annotate --all-extras --group all pyproject.toml >> constraints.new \
	    || { rm -f constraints.new; exit 1; }
	@mv constraints.new constraints.txt

clean:  ## Remove the virtual environment, the caches and what was built
	@rm -rf $(VENV) .cache build dist constraints.new reproduction-quick
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# --- installing ---------------------------------------------------------------------------------
# A stamp is newer than pyproject.toml and constraints.txt, or its group is installed again.

$(STAMPS)/run:   WHAT = -e .[paper,logs,service,client]
$(STAMPS)/test:  WHAT = -e .[paper,logs,dask,service,postgres,client] --group test
$(STAMPS)/lint:  WHAT = --group lint
$(STAMPS)/types: WHAT = -e .[paper,logs,dask,service,postgres,client] --group test --group types
$(STAMPS)/bench: WHAT = -e .[paper,service] --group bench

# uv is the faster installer, but it does not read pip's configuration:
# where only pip knows the way to the packages, pip (new enough for --group) does the work.
$(STAMPS)/run $(STAMPS)/test $(STAMPS)/lint $(STAMPS)/types $(STAMPS)/bench: \
    pyproject.toml constraints.txt | $(STAMPS)/uv
	@echo "Installing what 'make $(@F)' needs into $(VENV) ..." >&2
	@$(BIN)/uv pip install -q --python $(BIN)/python \
	    -c constraints.txt --build-constraints constraints.txt $(WHAT) \
	 || { echo "uv could not; trying pip ..." >&2; \
	      $(BIN)/python -m pip install -qq --upgrade 'pip>=25.1' && \
	      $(BIN)/python -m pip install -qq -c constraints.txt $(WHAT); }
	@touch $@

$(STAMPS)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "stopwise needs Python 3.11 or newer, and '$(PYTHON)' is" \
	         "$$($(PYTHON) --version 2>/dev/null || echo 'not there')." >&2; \
	    echo "If a newer one has another name, say so: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Making the virtual environment $(VENV) ..." >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq -c constraints.txt uv
	@mkdir -p $(STAMPS) && touch $@
