"""Bergamot's models: their integers, their scales, and their engine's translations."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from edgeformer.errors import ImporterError
from edgeformer.importers.marian.binary import (
    SHORTLIST_HEADER,
    SHORTLIST_MAGIC,
    QuantizedMatrix,
    read_binary,
    read_shortlist,
)
from edgeformer.importers.read import read_model
from edgeformer.importers.run_folder import SHORTLIST_FILE, write_run
from edgeformer.run.folder import Run
from edgeformer_export.export import export_run
from edgeformer_runtime import Translation, Translator
from edgeformer_runtime.engines import onnx as onnx_engine
from edgeformer_runtime.engines.onnx_graphs import products_saturate
from edgeformer_runtime.search.forced_steps import forced_batch, forced_steps
from tests.importers.bergamot_models import bergamot_files
from tests.importers.marian_models import MARIAN, expected

MODEL = MARIAN / "ssru"
VOCABULARY = 1504
SAME = 0.95
UNLIKE = "on x86, the sums of products of Bergamot's engine saturate; on this processor, onnxruntime's cannot"
NEAR_TIE = 0.5
"""Difference between the logits of two tokens below which rounding decides: in 8 bits, logits differ from those in
PyTorch by about as much."""


def shortlist(lists: list[list[int]], frequent: int = 10) -> bytes:
    tokens = [token for tokens in lists for token in sorted(tokens)]
    offsets = np.cumsum([0, *map(len, lists)]).astype("<u8")
    header = SHORTLIST_HEADER.pack(SHORTLIST_MAGIC, 0, frequent, 2, len(offsets), len(tokens))
    return header + offsets.tobytes() + np.array(tokens, "<u4").tobytes()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The committed model of Marian as Firefox has its models."""
    pytest.importorskip("sentencepiece", reason="the extra `import` is not installed")
    out = tmp_path_factory.mktemp("bergamot")
    for name, content in bergamot_files("ssru").items():
        (out / name).write_bytes(content)
    lists = [[token % 90, 7 * token % VOCABULARY] for token in range(VOCABULARY)]
    (out / "lex.50.50.enfr.s2t.bin").write_bytes(shortlist(lists))
    return out


@pytest.fixture(scope="session")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    found = read_model(folder, None, source_language="en", target_language="fr")
    assert found.importer == "bergamot"
    out = tmp_path_factory.mktemp("imported") / "run"
    return write_run(found.model, out, found.origin, text=[case.source for case in expected("ssru")[:200]])


@pytest.fixture(scope="session")
def bundle(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_run(run, tmp_path_factory.mktemp("bundle") / "int8", precision="int8").bundle


def test_weights_are_multiples_of_one_scale(folder: Path, run: Run) -> None:
    items, weights = read_binary(next(folder.glob("model*"))), run.load_model().state_dict()
    query = items["encoder_l1_self_Wq"]
    assert isinstance(query, QuantizedMatrix)
    scales = run.info.quantization["encoder_layers.0.attention.query"]
    assert scales.weight == pytest.approx(1 / query.factor)
    restored = weights["encoder_layers.0.attention.query.weight"].numpy() / scales.weight
    np.testing.assert_array_equal(np.rint(restored), query.integers.T)
    assert np.abs(restored - np.rint(restored)).max() < 1e-4
    assert {"source_embedding.tokens", "decoder_layers.0.target_layer.forget"} & run.info.quantization.keys()
    assert run.info.generation.beam_size == 1
    assert run.info.generation.max_len_a == 2


@pytest.mark.slow
def test_the_bundle_has_the_integers_and_scales_of_the_model(folder: Path, bundle: Path) -> None:
    constants = dict(_constants(bundle))
    columns = {
        np.ascontiguousarray(column).tobytes()
        for array in constants.values()
        if array.dtype == np.int8 and array.ndim == 2
        for side in (array, array.T)
        for column in side
    }
    scales = np.array(sorted(array.item() for array in constants.values() if array.size == 1 and array.dtype == "f4"))
    items = read_binary(next(folder.glob("model*")))
    for name, item in items.items():
        if isinstance(item, QuantizedMatrix):
            rows = item.integers if name == "Wemb" else item.integers.T
            assert all(np.ascontiguousarray(row).tobytes() in columns for row in rows), name
        elif name.endswith("_QuantMultA"):
            assert np.abs(scales * float(item.item()) - 1).min() < 1e-6, name


def _constants(bundle: Path) -> Iterator[tuple[str, NDArray[Any]]]:
    for file in ("encoder.onnx", "decoder.onnx"):
        model = onnx.load(bundle / file)
        for tensor in model.graph.initializer:
            yield f"{file}/{tensor.name}", numpy_helper.to_array(tensor)


@pytest.mark.slow
def test_translations_are_those_of_the_engine_of_firefox(
    folder: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fxtranslate = pytest.importorskip("fxtranslate", reason="Firefox's engine is not installed")
    if not products_saturate():
        pytest.skip(UNLIKE)
    # That engine's sums of products saturate. Ours do not, unless they are told to.
    monkeypatch.setattr(onnx_engine, "products_saturate", lambda: False)
    vocabulary = (folder / "vocab.enfr.spm").read_bytes()
    model = next(folder.glob("model*")).read_bytes()
    theirs = fxtranslate.Translator(model=model, src_vocab=vocabulary, trg_vocab=vocabulary)
    sources = [case.source for case in expected("ssru")]
    others = [theirs.translate(source) for source in sources]
    with Translator.open(bundle) as translator:
        ours = translator.translate(sources)
        differing = [mine for mine, other in zip(ours, others, strict=True) if mine.text != other]
        assert len(differing) <= (1 - SAME) * len(sources)
        for translation in differing:
            assert smallest_margin(translator, translation) < NEAR_TIE, translation.text


def smallest_margin(translator: Translator, translation: Translation) -> float:
    """Smallest difference between the logits of the best token and the second best, over the steps of an output."""
    special = translator.session.special
    batch = forced_batch([(translation.source.ids, translation.best.ids)], special)
    margins = []
    for logits in forced_steps(translator.session.start(batch.source, batch.source_length), batch.target):
        allowed = np.delete(logits[0], [*special.suppress, *special.forbid])
        second, first = np.partition(allowed, -2)[-2:]
        margins.append(float(first - second))
    return min(margins)


# Shortlists.


def test_the_run_keeps_the_shortlist(run: Run) -> None:
    with np.load(run.path / SHORTLIST_FILE) as saved:
        assert saved["frequent"] == 10
        start, end = saved["offsets"][5:7]
        assert saved["tokens"][start:end].tolist() == [5, 35]
    assert "lex.50.50.enfr.s2t.bin" in run.info.provenance["sha256"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (shortlist([[1], [2]])[:-1], "is damaged"),
        (shortlist([[1], [2]])[:20], "is damaged"),
        (shortlist([[1]]), "for other vocabularies"),
        (shortlist([[1], [99]]), "for other vocabularies"),
        (struct.pack("<6Q3Q2I", SHORTLIST_MAGIC, 0, 1, 1, 3, 2, 0, 3, 2, 0, 1), "overlap"),
    ],
)
def test_damaged_shortlists_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "lex.bin"
    file.write_bytes(content)
    with pytest.raises(ImporterError, match=message):
        read_shortlist(file, 2, 50)
