# make demo      train, export, verify and time a small model, from nothing
# make test      lint, types and tests
# make lint      lint and types alone
# make bench     latency of the demo's bundles against torch, in one run
# make families  train, export and measure every model family: more than an hour
# make clean     remove the environment and everything the demo made

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO ?= runs/demo
FAMILIES ?= runs/families
PYTEST_ARGS ?=

.PHONY: demo test lint types bench families clean

demo: $(READY)
	$(BIN)/python benchmarks/demo.py --out $(DEMO)

test: lint types
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

bench: $(READY) | $(DEMO)/int8/manifest.json
	$(BIN)/python benchmarks/latency.py $(DEMO)/fp32 $(DEMO)/int8 --checkpoint $(DEMO)/run

families: $(READY)
	$(BIN)/python benchmarks/families.py --out $(FAMILIES)

$(DEMO)/int8/manifest.json:
	$(MAKE) demo

clean:
	rm -rf $(VENV) runs build dist

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "edgeformer needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	@echo "Setting up $(VENV) (once; this downloads torch and onnxruntime)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[cpu,train,export,dev]'
	@touch $@
