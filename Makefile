# make demo    optimize ResNet-18 from nothing        make test       what CI runs
# make lint    ruff, mypy, import-linter only         make test-slow  the tests that a default run leaves out
# make nvrtc   the generated CUDA kernels of the seven models, compiled for sm_90 (no GPU needed)
# make plans   real cuDNN plans the convolutions of the seven models for a card that is not there (no GPU needed)
# make host    the models at full size as programs for CUDA, executed on the processor (no GPU needed; half an hour)
# make gpu     the tests that need a CUDA card        make bench-gpu  the seven models against torch and JAX on a card: searches first, then 8 minutes
# make docs    the site, in build/docs               make notebooks executes the notebooks
# make corpus  the rules of TASO, Tensat and TensorRight, proven or refuted: a table, and any difference from what is stored
# make mutants what the tests notice: one change at a time in the checker, all of them, and a sample in derivation, expr and instantiate (hours; goes on
#              where it was stopped)
# make goldens the published derivations, found by search: states, depth and time of each, three shapes
# make bench-search   depth, converging and fingerprints: the experiments of the search, about ten minutes
# make reach   what optimize makes of small models whose best known form is known: a JSON, and a page in build/
# make algorithms  algorithms derived from naive models: operations, states, proof, times beside other engines, into benchmarks/results/algorithms.json
# make bench   the seven models against other engines (hours; goes on where it stopped)
# make bench-short   three of them, in under five minutes      make bench-operators, make bench-topologies   see benchmarks/
# make bench-precision   programs within an error beside OpenVINO as it comes and PyTorch in bfloat16: three quarters of a minute a model; goes on where it ended
# make clean   forget everything that was built

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo test lint lint-types lint-style lint-layers lint-rooms reach test-slow corpus mutants nvrtc plans host gpu bench-gpu docs notebooks goldens bench bench-short bench-operators bench-topologies bench-precision clean bench-search algorithms

PYTHON ?= python3
BIN := .venv/bin
DEMO := build/demo
PIP := $(BIN)/python -m pip --disable-pip-version-check
THREADS ?= $(shell nproc)
# Processes that the tests are shared out to, file by file; make test WORKERS=0 runs them in one, as pytest without options does. One that a test
# crashes is not replaced: the others go on to the end, where they would wait for ever beside a new one. tests/conftest.py puts the files in order.
WORKERS ?= $(shell n=$$(nproc); echo $$((n < 2 ? 0 : n < 4 ? n : 4)))
SHARED := -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# The processes that tests start need not compile the same modules each time, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=
EXTRAS := docs notebook nvrtc plans cuda

demo: .venv/stamp-core
	@mkdir -p $(DEMO)
	$(BIN)/python -m benchmarks.models resnet18 --batch 1 --seed 0 -o $(DEMO)/resnet18.onnx
	$(BIN)/einnet optimize $(DEMO)/resnet18.onnx -o $(DEMO)/resnet18.einnet --allow precision --threads $(THREADS) --json $(DEMO)/report.json

test: lint
	@echo "Left out here: slow (make test-slow), gpu (make gpu, on a CUDA machine)."
	$(BIN)/python -m pytest -q $(SHARED)

# Two at a time, each with its output in one piece; all are tried, whichever fails.
lint: .venv/stamp-dev
	@$(MAKE) --no-print-directory --jobs 2 --keep-going --output-sync=target lint-types lint-style lint-layers lint-rooms

lint-types:
	$(BIN)/mypy --strict einnet

lint-style:
	$(BIN)/ruff check einnet benchmarks tests docs

lint-layers:
	$(BIN)/lint-imports

lint-rooms:
	$(BIN)/python -m tests.rooms

test-slow: .venv/stamp-dev
	$(BIN)/python -m pytest -q -m slow

docs: .venv/stamp-docs
	$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going -b html docs build/docs
	@echo "build/docs/index.html"

notebooks: .venv/stamp-notebook
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "slow or not slow" tests/docs/test_notebooks.py

nvrtc: .venv/stamp-nvrtc
	$(BIN)/python -m pytest -q -m slow tests/runtime/cuda/test_nvrtc.py

plans: .venv/stamp-plans
	$(BIN)/python -m pytest -q -m slow tests/runtime/cuda/test_plans.py

host: .venv/stamp-dev
	$(BIN)/python -m benchmarks.host

gpu: .venv/stamp-cuda
	$(BIN)/python -m pytest -q -m gpu

bench-gpu: .venv/stamp-cuda .venv/stamp-xla
	$(BIN)/python benchmarks/gpu.py --prepare build/card
	$(BIN)/python benchmarks/gpu.py --programs build/card

corpus: .venv/stamp-dev
	$(BIN)/python -m tests.corpus.verdicts

CHECKER := einnet.derivation.checker einnet.derivation.normalise einnet.expr.normal einnet.expr.values
MUTANTS := $(BIN)/python -m tests.mutation --cache build/mutants.cache --rows benchmarks/results/mutants.rows

mutants: .venv/stamp-dev
	@mkdir -p build
	$(MUTANTS) $(CHECKER) --tell || true
	$(MUTANTS) einnet.derivation einnet.expr einnet.instantiate --sample 12 --tell

goldens: .venv/stamp-dev
	$(BIN)/python -m tests.search.goldens

reach: .venv/stamp-bench
	$(BIN)/python -m benchmarks.reach

algorithms: .venv/stamp-bench
	$(BIN)/python -m benchmarks.algorithms

bench: .venv/stamp-bench
	$(BIN)/python benchmarks/models.py

bench-operators: .venv/stamp-bench
	$(BIN)/python benchmarks/operators.py

bench-topologies: .venv/stamp-bench
	$(BIN)/python benchmarks/topologies.py

bench-precision: .venv/stamp-bench
	$(BIN)/python -m benchmarks.precision $(if $(wildcard build/zoo),--zoo build/zoo)

bench-short: .venv/stamp-bench
	$(BIN)/python benchmarks/models.py --short

bench-search: .venv/stamp-bench
	$(BIN)/python -m benchmarks.search -o benchmarks/results/search.json --markdown benchmarks/results/search.md --plot benchmarks/results

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

.venv/stamp-core: pyproject.toml | .venv/bin/python
	$(PIP) install --quiet -e .
	@touch $@

.venv/stamp-dev: pyproject.toml | .venv/bin/python
	$(PIP) install --quiet -e '.[dev]'
	@touch $@ .venv/stamp-core

$(EXTRAS:%=.venv/stamp-%): .venv/stamp-%: pyproject.toml | .venv/bin/python
	$(PIP) install --quiet -e '.[dev,$*]'
	@touch $@ .venv/stamp-core

.venv/stamp-bench: pyproject.toml | .venv/bin/python
	$(PIP) install --quiet -e '.[bench]'
	@touch $@ .venv/stamp-core

.venv/stamp-xla: pyproject.toml | .venv/bin/python
	$(PIP) install --quiet -e '.[bench,xla]'
	@touch $@ .venv/stamp-core .venv/stamp-bench

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "einnet needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "$(PYTHON) cannot make an environment; install its venv module" >&2; exit 1; }
