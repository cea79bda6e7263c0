# make demo      train, export, verify and time a small model, from nothing
# make test      lint, types and the fast tests
# make test-all  lint, types and every test
# make lint      lint and types alone
# make bench     presets with random weights against CTranslate2 and torch; options in BENCH_ARGS
# make gpu       tests, training, parity and decoding speed on a GPU, in five minutes; a smaller version without one; options in GPU_ARGS
# make attack    damaged bundles and models, hostile texts, requests and clients: 10,000 of each, or CASES; hours
# make kernels-wheels   wheels of the kernels for Linux, macOS and Windows, in dist/
# make web       the npm package for browsers and Node: builds and tests it; needs Node
# make docs      the documentation site, in build/site
# make clean     remove the environment and everything the demo made

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ENGINE ?= $(if $(shell command -v nvidia-smi 2>/dev/null),gpu,cpu)
READY := $(VENV)/.ready
KERNELS := $(VENV)/.kernels
DEMO ?= runs/demo
PYTEST_ARGS ?=
BENCH_ARGS ?=
GPU_ARGS ?=
CASES ?= 10000
HELD_OUT := --source $(DEMO)/data/test.en --reference $(DEMO)/data/test.fr --beam 1 --threads 1
WEB := runtime/edgeformer-web
ONNXRUNTIME_WEB := onnxruntime-web@1.30.0

.PHONY: demo test test-all test-slow pytest lint types bench gpu attack kernels-wheels web web-package docs demo-page clean

demo: $(READY) $(KERNELS)
	@test ! -e $(DEMO) || test -e $(DEMO)/.demo || { echo "$(DEMO) was not made by the demo; choose another DEMO"; exit 1; }
	@rm -rf $(DEMO) && mkdir -p $(DEMO) && touch $(DEMO)/.demo
	$(BIN)/edgeformer data prepare dates-en-fr --out $(DEMO)/data
	$(BIN)/edgeformer train dates-en-fr --out $(DEMO)/run
	$(BIN)/edgeformer export $(DEMO)/run --out $(DEMO)/fp32
	$(BIN)/edgeformer export $(DEMO)/run --out $(DEMO)/int8 --precision int8
	$(BIN)/edgeformer verify $(DEMO)/fp32 --checkpoint $(DEMO)/run
	$(BIN)/edgeformer verify $(DEMO)/int8
	$(BIN)/edgeformer translate $(DEMO)/int8 "Monday, March 3, 2031" "September 14, 1987" "8,750 kilometers" "in 3 days"
	$(BIN)/edgeformer evaluate $(DEMO)/run $(HELD_OUT)
	$(BIN)/edgeformer evaluate $(DEMO)/fp32 $(HELD_OUT)
	$(BIN)/edgeformer evaluate $(DEMO)/int8 $(HELD_OUT)
	$(BIN)/edgeformer bench $(DEMO)/int8 --beam 1 --threads 1
	@$(BIN)/edgeformer evaluate $(DEMO)/int8 $(HELD_OUT) --json | $(BIN)/python -c 'import json, sys; \
	exact = json.load(sys.stdin)["scores"]["exact_match"]; sys.exit(exact < 0.99 and f"{exact:.2%} exact matches in int8, fewer than 99 %")'
	$(BIN)/edgeformer models
	$(BIN)/edgeformer translate en-fr "Where is the train station?" "I would like a cup of tea, please."
	@echo "To translate in a browser, run this command and open http://127.0.0.1:5000:"
	@echo "$(BIN)/edgeformer serve"

# mypy uses one CPU, so it runs beside the tests.
test: lint
	@$(MAKE) --no-print-directory --jobs=2 types pytest

test-all:
	@$(MAKE) --no-print-directory test PYTEST_ARGS="--slow $(PYTEST_ARGS)"

test-slow: PYTEST_ARGS += --slow -m slow
test-slow: pytest

pytest: $(READY) $(KERNELS)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

bench: $(READY) $(KERNELS)
	$(BIN)/python -m edgeformer_bench.presets $(BENCH_ARGS)

gpu: $(READY)
	$(BIN)/python -m edgeformer_bench.gpu $(GPU_ARGS)

KERNELS_TARGETS := x86_64-linux aarch64-linux x86_64-macos aarch64-macos x86_64-windows

kernels-wheels: $(READY)
	for target in $(KERNELS_TARGETS); do \
	EDGEFORMER_KERNELS_TARGET=$$target $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist runtime/edgeformer-kernels || exit 1; done

web: web-package
	cd $(WEB) && npm run lint && npm test

web-package: $(READY)
	cd $(WEB) && npm ci --ignore-scripts --no-audit && PYTHON=$(abspath $(BIN)/python) npm run wasm && npm run build

attack: $(READY) $(KERNELS)
	CASES=$(CASES) $(BIN)/python -m pytest --slow -o timeout=20000 tests/robustness tests/importers/test_damaged_models.py $(PYTEST_ARGS)

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@$(MAKE) --no-print-directory demo-page || echo "The demo page is missing: it needs Node, and npm's registry"
	@echo "Wrote build/site; open build/site/index.html"

demo-page: web-package
	npm install --ignore-scripts --no-audit --no-fund --prefix build/npm $(ONNXRUNTIME_WEB)
	node $(WEB)/examples/assemble.mjs demo build/site/demo models/en-fr build/npm/node_modules/onnxruntime-web

clean:
	rm -rf $(VENV) runs build dist

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "edgeformer needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	@echo "Setting up $(VENV) (once; this downloads torch and onnxruntime)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(ENGINE),train,export,dev]'
	@touch $@

$(KERNELS): $(READY) $(wildcard runtime/edgeformer-kernels/src/* runtime/edgeformer-kernels/*.py)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable runtime/edgeformer-kernels 2> /dev/null \
	|| echo "edgeformer-kernels could not be built without a C++ compiler; int8 models run in ONNX Runtime"
	@touch $@

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@
