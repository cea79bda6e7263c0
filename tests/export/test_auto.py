"""Layers by name, and the choice among measured precisions, from end to end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from edgeformer.markdown import markdown_table
from edgeformer_export import auto
from edgeformer_export.auto import AutoOptions, export_best
from edgeformer_export.choice import COLUMNS, Choice
from edgeformer_export.export import write_graphs
from edgeformer_export.model_graphs import ModelGraphs
from edgeformer_export.quantize.strategies import make_table
from edgeformer_export.validation_text import ValidationText
from edgeformer_export.writer import ExportError
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.precision import PRECISIONS, Precision
from tests.commands import error, succeeded
from tests.factory import PAIRS
from tests.store import CPU_PRECISIONS, Store, with_agreement

TABLE = "source_embedding.tokens"


@pytest.fixture(scope="module")
def model_graphs(store: Store) -> ModelGraphs:
    return store.model_graphs(steps=100)


@pytest.fixture
def quick_choice(model_graphs: ModelGraphs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose from graphs that are traced already, and time as little as possible."""
    monkeypatch.setattr(auto, "ModelGraphs", lambda *_, **__: model_graphs)
    monkeypatch.setattr(auto, "TIMED_SENTENCES", 2)
    monkeypatch.setattr(auto, "ROUNDS", 3)


def test_layers_have_the_names_of_torch_parameters(model_graphs: ModelGraphs) -> None:
    layers = {layer.name: layer for layer in model_graphs.optimized("int8").layers}
    assert len(layers) == 29
    parameters = {name.removesuffix(".weight"): value for name, value in model_graphs.model.named_parameters()}
    for name, layer in layers.items():
        if name in parameters:
            ours, theirs = layer.rows, parameters[name].detach().numpy()
            factor = ours[5, 5] / theirs[5, 5]  # queries have the scale of attention in them
            np.testing.assert_allclose(ours, theirs * factor, rtol=1e-5, atol=1e-6)
    merged = {name for name in layers if name not in parameters}
    assert merged == {f"decoder_layers.{n}.target_layer.attention.{{query,key,value}}" for n in range(2)}
    # The tied table is one layer: two look-ups and the output projection.
    readers = Counter((reader.file, reader.kind) for reader in layers[TABLE].readers)
    assert readers == {
        (contract.ENCODER_FILE, "lookup"): 1,
        (contract.DECODER_FILE, "lookup"): 1,
        (contract.DECODER_FILE, "linear"): 1,
    }


@pytest.mark.slow
def test_recurrent_layers_have_names_too(store: Store) -> None:
    names = {layer.name for layer in store.model_graphs("lstm_bridge").optimized("int8").layers}
    assert {"encoder_layers.0.lstm.{weight_ih_l0,weight_ih_l0_reverse}", "cells.1.gates", "cell_bridge.0"} <= names
    assert not [name for name in names if ":" in name]


def test_fewer_bits_are_less_exact_and_smaller(model_graphs: ModelGraphs) -> None:
    layers = model_graphs.optimized("int4").layers
    tables = [make_table(layers, precision, lambda: model_graphs.moments) for precision in ("int8", "int4")]
    for layer in layers:
        fine, coarse = (next(row.report for row in table if row.layer is layer) for table in tables)
        assert 40 < (fine.snr_db or 0) < 55
        assert fine.bytes < 0.3 * layer.rows.nbytes
        if coarse.precision == "int4":
            assert 15 < (coarse.snr_db or 0) < 30
            assert coarse.bytes < 0.65 * fine.bytes


@pytest.mark.slow
@pytest.mark.usefixtures("quick_choice")
def test_the_command_measures_chooses_and_reports(
    model_graphs: ModelGraphs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, traits in with_agreement(0.5).items():
        monkeypatch.setitem(PRECISIONS, name, traits)
    texts = [tmp_path / "source", tmp_path / "reference"]
    for path, lines in zip(texts, zip(*PAIRS[::4], strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    out = tmp_path / "best"
    command = ["export", str(model_graphs.run.path), "--out", str(out), "--precision", "auto", "--sentences", "12"]
    command += ["--valid", *map(str, texts), "--beam", "2", "--max-bleu-drop", "1"]
    done = succeeded(*command)
    manifest = open_bundle(out).manifest
    choice = msgspec.convert(manifest.report.choice, Choice)
    assert tuple(candidate.precision for candidate in choice.candidates) == CPU_PRECISIONS
    assert (choice.sentences, choice.beam_size, choice.threads, choice.failed) == (12, 2, 1, {})
    reference, *others = choice.candidates
    assert (reference.drop, reference.ratio, reference.identical) == (0, 1, 12)
    for candidate in others:
        assert candidate.drop_interval.low <= candidate.drop <= candidate.drop_interval.high
        assert candidate.bytes < reference.bytes
    assert manifest.precision[contract.DECODER_FILE] == choice.chosen
    card = (out / "README.md").read_text(encoding="utf-8")
    assert all(text in card for text in [*markdown_table(COLUMNS, choice.rows), *choice.notes])
    assert f"Wrote {out}, {choice.chosen}" in " ".join(done.stdout.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "reference", "source"]

    # What turns out not to be the model is not taken, however fast it is.
    for name, traits in with_agreement(1.1).items():
        monkeypatch.setitem(PRECISIONS, name, traits)
    done = succeeded(*command, "--overwrite")
    choice = msgspec.convert(open_bundle(out).manifest.report.choice, Choice)
    assert choice.chosen == "fp32"
    assert all("is too far from PyTorch" in reason for reason in choice.failed.values())
    assert choice.failed.keys() <= {candidate.precision for candidate in choice.candidates} - {"fp32"}


def test_options_of_the_choice_need_it(model_graphs: ModelGraphs, tmp_path: Path) -> None:
    command = ["export", str(model_graphs.run.path), "--out", str(tmp_path / "b"), "--optimize", "size", "--beam", "2"]
    assert error(*command, code=2) == "--optimize, --beam can only be used with --precision auto."
    message = error(*command[:4], "--data", tmp_path, code=2)
    assert message == "--data can only be used with --precision auto or --shortlist."


def test_a_card_says_what_was_not_measured(tmp_path: Path, small_bundle_int4: Path) -> None:
    card = (small_bundle_int4 / "README.md").read_text(encoding="utf-8")
    assert "Not measured for this bundle. `edgeformer evaluate . --source" in card
    assert "`edgeformer bench .` its speed" in card
    assert "| int4 | 13 |" in card
    assert "license: not recorded" in card
    assert "At most 256 source tokens" in card
    assert TABLE in succeeded("inspect", small_bundle_int4).stdout


@pytest.mark.slow
@pytest.mark.usefixtures("quick_choice")
def test_a_precision_that_fails_is_named_and_the_others_go_on(
    model_graphs: ModelGraphs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(graphs: ModelGraphs, folder: Path, precision: Precision) -> Any:
        if precision == "int4":
            raise ExportError("No blocks.")
        return write_graphs(graphs, folder, precision)

    monkeypatch.setattr(auto, "write_graphs", fails)
    sources, references = zip(*PAIRS[::20], strict=True)
    text = ValidationText(list(sources), list(references), "13a", "text")
    choice = export_best(model_graphs.run, tmp_path / "best", text, AutoOptions(beam_size=1)).choice
    assert choice is not None
    assert choice.failed == {"int4": "No blocks."}
    assert [candidate.precision for candidate in choice.candidates] == ["fp32", "int8"]
    assert "int4 failed: No blocks." in (tmp_path / "best" / "README.md").read_text(encoding="utf-8")
