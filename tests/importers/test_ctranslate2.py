"""CTranslate2's models: imported ones translate as CTranslate2 itself does, token for token."""

from __future__ import annotations

import json
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.store import Store

pytest.importorskip("torch")
pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'edgeformer[bench]'")

from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES
from numpy.typing import NDArray

from edgeformer.importers.ctranslate2.importer import NAMES
from edgeformer.importers.layout import modules
from edgeformer.importers.model import ImportedModel, Weights
from edgeformer.importers.read import read_model
from edgeformer.importers.run_folder import write_run
from edgeformer.quality.translators import run_translator
from edgeformer.run.folder import Run
from edgeformer_bench.peers.ctranslate2 import token_names
from edgeformer_bench.peers.ctranslate2_model import convert_run
from edgeformer_export.export import export_run
from edgeformer_export.quantize.static import quantize_rows
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.translator import Translator
from tests import factory
from tests.importers.alignments import check_alignments
from tests.importers.ctranslate2_models import MODELS, arrays_file
from tests.importers.ctranslate2_oracle import LANGUAGES, compare, sources


def import_model(folder: Path, out: Path, sentences: int = 1) -> tuple[ImportedModel, Run]:
    model = read_model(folder, "ctranslate2", **LANGUAGES)
    text = [" ".join(source) for source in sources(sentences)]
    return model.model, write_run(model.model, out, model.origin, text=text)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *((name, 60) for name in MODELS if name != "t5_per_layer"),
        *(pytest.param(name, 400, marks=pytest.mark.slow) for name in MODELS),
    ],
)
def test_translations_are_those_of_ctranslate2(name: str, count: int, tmp_path: Path) -> None:
    folder = MODELS[name](tmp_path / "model")
    imported, run = import_model(folder, tmp_path / "run")
    settings = json.loads((folder / "config.json").read_text())
    compare(
        run_translator(run, run.load_model()),
        folder,
        sources(count),
        around=not (settings["add_source_bos"] or settings["add_source_eos"]),
    )
    assert run.info.generation.beam_size == 2
    assert bool(imported.notes) == (name in {"t5", "t5_per_layer", "m2m"})
    check_alignments(run_translator(run, run.load_model()), [" ".join(source) for source in sources(8)])


# Precisions.


@pytest.fixture(scope="module")
def trained(store: Store) -> Run:
    return store.run(steps=100)


def words(run: Run) -> list[list[str]]:
    """Sources that the model was trained on, as the names that its conversion gives to tokens."""
    names = token_names(run.source_tokenizer.vocab_size, SpecialTokens())
    encoded = run.source_tokenizer.encode_batch([source for source, _ in factory.PAIRS])
    return [[names[index] for index in ids] for ids in encoded]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ACCEPTED_MODEL_TYPES)
def test_every_precision_of_a_trained_model_is_read(trained: Run, precision: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    convert_run(trained, folder, precision)
    imported, run = import_model(folder, tmp_path / "run")
    compare(run_translator(run, run.load_model()), folder, words(trained), longest=40)
    assert imported.model["tied_embeddings"] == "all"


def test_quantized_weights(tmp_path: Path) -> None:
    folder = MODELS["opennmt_py"](tmp_path / "model", "int8_float16")
    _, run = import_model(folder, tmp_path / "run")
    compare(run_translator(run, run.load_model()), folder, sources(60))


# Integers


def stored_integers(folder: Path) -> dict[str, NDArray[np.int8]]:
    """Integers of a model's matrices, by name."""
    with np.load(arrays_file(folder)) as arrays:
        return {name: arrays[name] for name in arrays if arrays[name].dtype == np.int8 and arrays[name].ndim == 2}


def requantized(weights: Weights, *names: str) -> NDArray[np.int8]:
    """Integers that the int8 export makes of matrices, one below the other."""
    return np.concatenate([quantize_rows(weights[name]).integers for name in names])


def test_integers_survive(tmp_path: Path) -> None:
    folder = MODELS["opennmt_py"](tmp_path / "model", "int8")
    imported, stored = read_model(folder, None).model, stored_integers(folder)
    merged = {theirs: list(group) for theirs, group in groupby(modules(imported.model, NAMES), attrgetter("theirs"))}
    parts = {theirs: [f"{part.ours}.weight" for part in group] for theirs, group in merged.items()}
    parts["encoder/embeddings_0/weight"] = ["source_embedding.tokens.weight"]
    parts["decoder/embeddings/weight"] = ["target_embedding.tokens.weight"]
    parts["decoder/projection/weight"] = ["projection.weight"]
    for theirs, integers in stored.items():
        ours = requantized(imported.weights, *parts[theirs])
        np.testing.assert_array_equal(integers, ours[: len(integers)])  # tables have the start token, too
    assert len(stored) == 2 * 4 + 2 * 7 + 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t5", "m2m"])
def test_bundles_translate_as_ctranslate2_does(name: str, tmp_path: Path) -> None:
    folder = MODELS[name](tmp_path / "model")
    _, run = import_model(folder, tmp_path / "run", sentences=40)
    export_run(run, tmp_path / "bundle")
    with Translator.open(tmp_path / "bundle") as translator:
        compare(translator, folder, sources(200))
