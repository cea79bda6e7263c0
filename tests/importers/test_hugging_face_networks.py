"""Model folders of Hugging Face: what ``transformers`` generates, token for token, for every architecture."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from edgeformer.importers.hugging_face.importer import read_folder
from edgeformer.importers.read import read_model
from edgeformer.importers.run_folder import write_run
from edgeformer.quality.translators import open_translator
from edgeformer.run.folder import Run
from edgeformer_export.export import export_run
from edgeformer_runtime.translator import AnyTranslator, Translator
from tests.importers.alignments import check_alignments
from tests.importers.hugging_face_models import (
    ARCHITECTURES,
    FAST,
    SENTENCES,
    TRANSLATES,
    changed,
    references,
    reloaded,
)

MAX_STEPS = 39
SLOW = [pytest.param(architecture, 100, marks=pytest.mark.slow) for architecture in ARCHITECTURES]
"""Architectures and numbers of sentences."""


class Imported(NamedTuple):
    """A model folder, and its import."""

    folder: Path
    run: Run
    prefix: tuple[int, ...]


@pytest.fixture(scope="module")
def imported(
    hugging_face: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Imported]:
    """Imports by architecture, each made once."""

    @cache
    def make(name: str) -> Imported:
        source, target = TRANSLATES.get(name, ("", ""))
        found = read_model(hugging_face(name), None, source_language=source, target_language=target)
        assert found.importer == "huggingface"
        run = write_run(found.model, tmp_path_factory.mktemp(name) / "run", found.origin, text=SENTENCES[:5])
        prefix = open_translator(run.path).target_tokenizer.target_prefix(source, target)
        return Imported(hugging_face(name), run, prefix)

    return make


def differences(
    translator: AnyTranslator, model: Imported, texts: Sequence[str], beam_size: int, *, early_stopping: bool = True
) -> list[Any]:
    """Texts, our tokens and those of ``transformers``, where they differ."""
    sources = [source.ids for source in translator.encode(texts)]
    expected = references(
        reloaded(model.folder),
        sources,
        translator.source_tokenizer.pad_id,
        num_beams=beam_size,
        early_stopping=early_stopping and beam_size > 1,
        length_penalty=1.0,
        max_length=MAX_STEPS + 1,
        forced_eos_token_id=None,
        forced_bos_token_id=model.prefix[0] if model.prefix else None,
    )
    assert len({tuple(output) for output in expected}) >= len(texts) / 8, "the outputs do not depend on the inputs"
    given = len(model.prefix)
    assert all(tuple(output[:given]) == model.prefix for output in expected)
    translations = translator.translate(
        texts, beam_size=beam_size, length_penalty=1.0, max_length=MAX_STEPS - given, early_stopping=early_stopping
    )
    outputs = [list(translation.best.ids) for translation in translations]
    results = zip(texts, outputs, (output[given:] for output in expected), strict=True)
    return [result for result in results if result[1] != result[2]]


@pytest.mark.parametrize(("architecture", "count"), [*((architecture, 12) for architecture in FAST), *SLOW])
def test_greedy_search_generates_what_transformers_does(
    imported: Callable[[str], Imported], architecture: str, count: int
) -> None:
    model = imported(architecture)
    translator = open_translator(model.run.path)
    assert differences(translator, model, SENTENCES[:count], 1) == []
    check_alignments(translator, SENTENCES[:8])


@pytest.mark.parametrize(("architecture", "count"), [("m2m", 12), *SLOW])
@pytest.mark.parametrize("early_stopping", [True, False])
def test_beam_search_generates_what_transformers_does(
    imported: Callable[[str], Imported], architecture: str, count: int, early_stopping: bool
) -> None:
    model = imported(architecture)
    check_beam_search(open_translator(model.run.path), model, SENTENCES[:count], early_stopping=early_stopping)


def check_beam_search(
    translator: AnyTranslator, model: Imported, texts: Sequence[str], *, early_stopping: bool = True
) -> None:
    """Accept few differences, and of three kinds only: at the limit of tokens, ``transformers`` ranks unfinished
    hypotheses with finished ones; right after a forced first token, it lets a hypothesis end that is not the best; and
    hypotheses may have scores that are equal but for rounding."""
    found = differences(translator, model, texts, 4, early_stopping=early_stopping)
    unexplained = [
        (text, ours, theirs)
        for text, ours, theirs in found
        if not (
            len(theirs) == MAX_STEPS - len(model.prefix) or not theirs or is_tie(translator, model, text, ours, theirs)
        )
    ]
    assert unexplained == []
    assert len(found) <= 1 + len(texts) // 100, found


def is_tie(translator: AnyTranslator, model: Imported, text: str, ours: list[int], theirs: list[int]) -> bool:
    """Whether two finished hypotheses have the same score, as far as single precision can tell."""
    one, other = (
        sum(score.token_scores) / (len(model.prefix) + len(score.token_scores))
        for score in translator.score([text] * 2, [ours, theirs])
    )
    return abs(one - other) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["marian", "mbart_50", "umt5"])
def test_the_bundle_generates_what_transformers_does(
    imported: Callable[[str], Imported], architecture: str, tmp_path: Path
) -> None:
    model = imported(architecture)
    export_run(model.run, tmp_path / "bundle")
    with Translator.open(tmp_path / "bundle") as translator:
        assert differences(translator, model, SENTENCES, 1) == []
        check_beam_search(translator, model, SENTENCES)


def test_a_first_token_is_forced(imported: Callable[[str], Imported], tmp_path: Path) -> None:
    folder = changed(imported("bart").folder, tmp_path / "model", "generation_config.json", forced_bos_token_id=0)
    found = read_model(folder, None)
    assert found.model.text.target_prefix == ("<s>",)
    run = write_run(found.model, tmp_path / "run", found.origin, text=SENTENCES[:5])
    assert differences(open_translator(run.path), Imported(folder, run, (0,)), SENTENCES[:12], 1) == []


SCALES = [
    *(
        (name, "4.57.1", {"tie_word_embeddings": tied}, tied)
        for name in ("t5_gated", "umt5", "mt5")
        for tied in (True, False)
    ),
    ("t5_gated", "5.0.0", {"scale_decoder_outputs": True}, True),
    ("t5_gated", "5.0.0", {"scale_decoder_outputs": False}, False),
    ("umt5", "5.0.0", {}, True),
    ("mt5", "5.0.0", {}, False),
]
"""Architectures, the version that wrote the folder, what it says, and whether that version divides outputs."""


@pytest.mark.parametrize(("architecture", "version", "stated", "divides"), SCALES)
def test_outputs_of_t5_are_scaled_as_by_the_version_that_wrote_the_folder(
    hugging_face: Callable[[str], Path],
    architecture: str,
    version: str,
    stated: dict[str, Any],
    divides: bool,
    tmp_path: Path,
) -> None:
    values: dict[str, Any] = {
        "tie_word_embeddings": True,
        "scale_decoder_outputs": None,
        "transformers_version": version,
        **stated,
    }
    model = read_folder(changed(hugging_face(architecture), tmp_path / "model", **values)).model
    assert model["output_scale"] == (model["d_model"] ** -0.5 if divides else 1)


# Files of weights.


def pickled_parts(model: Any, folder: Path) -> None:
    state = model.state_dict()
    parts: dict[str, dict[str, Any]] = {"pytorch_model-00001-of-00002.bin": {}, "pytorch_model-00002-of-00002.bin": {}}
    for index, (name, tensor) in enumerate(state.items()):
        parts[list(parts)[index % 2]][name] = tensor.clone()
    for file, tensors in parts.items():
        torch.save(tensors, folder / file)
    index_file = {"weight_map": {name: file for file, tensors in parts.items() for name in tensors}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index_file), encoding="utf-8")


def safe_parts(model: Any, folder: Path) -> None:
    model.save_pretrained(folder, max_shard_size="100KB")
    assert (folder / "model.safetensors.index.json").exists()


@pytest.mark.parametrize("save", [pytest.param(pickled_parts, marks=pytest.mark.slow), safe_parts])
def test_weights_are_the_same_from_every_kind_of_file(
    imported: Callable[[str], Imported], save: Callable[[Any, Path], None], tmp_path: Path
) -> None:
    original = imported("marian").folder
    (changed(original, tmp_path) / "model.safetensors").unlink()
    save(reloaded(original), tmp_path)
    shutil.copy(original / "config.json", tmp_path)
    expected, result = read_folder(original), read_folder(tmp_path)
    assert result.model == expected.model
    assert result.weights.keys() == expected.weights.keys()
    assert all(np.array_equal(result.weights[name], array) for name, array in expected.weights.items())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_converted(imported: Callable[[str], Imported], dtype: torch.dtype, tmp_path: Path) -> None:
    original = imported("bart").folder
    changed(original, tmp_path)
    reloaded(original).to(dtype).save_pretrained(tmp_path)
    expected, result = read_folder(original).weights, read_folder(tmp_path).weights
    for name, array in result.items():
        assert array.dtype == np.float32
        assert np.array_equal(array, torch.from_numpy(expected[name]).to(dtype).float().numpy())


# Positions.


def test_positions_are_those_of_transformers(imported: Callable[[str], Imported]) -> None:
    marian = read_folder(imported("marian").folder).weights["source_embedding.positions"]
    table = MarianSinusoidalPositionalEmbedding(*marian.shape).create_weight().numpy()
    np.testing.assert_allclose(marian, table, rtol=0, atol=1e-7)
    m2m = read_folder(imported("m2m").folder).weights["source_embedding.positions"]
    rows, width = m2m.shape
    assert np.array_equal(m2m, M2M100SinusoidalPositionalEmbedding.get_embedding(rows + 2, width, 1).numpy()[2:])
