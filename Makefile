# make demo      train, export, verify and time a small model, from nothing
# make test      lint, types and the fast tests
# make test-all  lint, types and every test
# make lint      lint and types alone
# make bench     speed against CTranslate2, torch and Optimum, in one run; more with BENCH_ARGS=--full
# make optimum   an environment of its own for Optimum, which make bench then measures too
# make families  train, export and measure every model family: more than an hour
# make attack    damaged bundles and models, hostile texts and interrupted writes, 10,000 of each: two hours; options in ATTACK_ARGS
# make siege     hostile clients against a server with 512 MiB, and what another client notices; options in SIEGE_ARGS
# make mutants   plant bugs in the runtime, and list those that no test notices; options in MUTANTS_ARGS
# make soak      memory, open files and threads over a million sentences: an hour; options in SOAK_ARGS
# make docs      the documentation site, in build/site
# make clean     remove the environment and everything the demo made

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO ?= runs/demo
FAMILIES ?= runs/families
PYTEST_ARGS ?=
BENCH_ARGS ?=
ATTACK_ARGS ?=
SIEGE_ARGS ?=
SOAK_ARGS ?=
MUTANTS_ARGS ?=
OPTIMUM ?= runs/optimum

.PHONY: demo test test-all test-slow pytest lint types bench optimum families attack siege mutants soak docs clean

demo: $(READY)
	$(BIN)/python -m edgeformer_bench.demo --out $(DEMO)

# mypy uses one CPU, so it runs beside the tests.
test: lint
	@$(MAKE) --no-print-directory --jobs=2 types pytest

test-all:
	@$(MAKE) --no-print-directory test PYTEST_ARGS="--slow $(PYTEST_ARGS)"

test-slow: PYTEST_ARGS += --slow -m slow
test-slow: pytest

pytest: $(READY)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m edgeformer_bench.grid $(if $(wildcard $(OPTIMUM)/.ready),--optimum-python $(OPTIMUM)/bin/python) $(BENCH_ARGS)

optimum: $(OPTIMUM)/.ready

families: $(READY)
	$(BIN)/python -m edgeformer_bench.studies.families --out $(FAMILIES)

attack: $(READY)
	$(BIN)/python -m robustness.attack $(ATTACK_ARGS)
	DAMAGED_MODELS=10000 $(BIN)/python -m pytest --slow -m slow tests/importers/test_damaged_models.py

siege: $(READY)
	$(BIN)/python -m robustness.siege $(SIEGE_ARGS)

mutants: $(READY)
	$(BIN)/python -m robustness.mutants $(MUTANTS_ARGS)

soak: $(READY)
	$(BIN)/python -m robustness.soak $(SOAK_ARGS)

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "Wrote build/site; open build/site/index.html"

clean:
	rm -rf $(VENV) runs build dist

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "edgeformer needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	@echo "Setting up $(VENV) (once; this downloads torch and onnxruntime)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[cpu,train,export,dev]'
	@touch $@

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@

$(OPTIMUM)/.ready: pyproject.toml
	$(PYTHON) -m venv $(OPTIMUM)
	$(OPTIMUM)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[optimum]'
	@touch $@
