"""Layers by name, and the choice among measured precisions, from end to end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgeformer.markdown import markdown_table
from edgeformer.quality.bootstrap import Interval
from edgeformer_export import auto
from edgeformer_export.auto import TIE, PrecisionCandidate, choose
from edgeformer_export.card import ChoiceTable
from edgeformer_export.model_graphs import ModelGraphs
from edgeformer_export.quantize.strategies import make_table
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


def candidate(precision: Precision, size: float, drop: float = 0.0, milliseconds: float = 1.0) -> PrecisionCandidate:
    return PrecisionCandidate(precision, size, 40 - drop, drop, Interval(low=drop - 0.3, high=drop + 0.3), milliseconds)


@pytest.mark.parametrize(
    ("drops", "milliseconds", "sizes", "chosen"),
    [
        ((0.0, 0.0), (0.5, 0.5 * (1 + TIE)), (5, 3), "int4"),  # about as fast, and smaller
        ((0.0, 0.0), (0.5, 0.551), (5, 3), "int8"),  # smaller, but slower
        ((0.0, 0.5), (0.5, 0.1), (5, 3), "int4"),  # 0.2 … 0.8: not shown to exceed 0.2
        ((0.0, 0.51), (0.5, 0.1), (5, 3), "int8"),
        ((0.6, 0.6), (0.5, 0.5), (5, 3), "fp32"),
        ((0.0, 0.0), (1.2, 1.3), (5, 3), "fp32"),
    ],
)
def test_the_smallest_of_the_fastest_whose_drop_is_not_shown_to_exceed_the_budget(
    drops: tuple[float, float], milliseconds: tuple[float, float], sizes: tuple[int, int], chosen: Precision
) -> None:
    names: tuple[Precision, Precision] = ("int8", "int4")
    others = [candidate(*each) for each in zip(names, sizes, drops, milliseconds, strict=True)]
    assert choose([candidate("fp32", 12), *others], 0.2)[0].precision == chosen


def test_table_and_notes_of_a_choice() -> None:
    candidates = [candidate("fp32", 12), candidate("int8", 4, 0.1, 0.4), candidate("int4", 2.5, 0.7, 0.3)]
    _, table = choose(candidates, 0.2)
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert [row[-1] for row in table.rows] == ["", "chosen", "over budget"]
    assert table.rows[1] == ("int8", "39.90", "+0.10 (-0.20 to +0.40)", "4.00", "0.400", "chosen")
    assert table.notes[0].startswith("Chosen: int8, the smallest of those at most 10% slower than the fastest whose")
    assert "may exceed the budget" in table.notes[1]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_choice")
def test_the_command_measures_chooses_and_reports(
    model_graphs: ModelGraphs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, traits in with_agreement(0.5).items():
        monkeypatch.setitem(PRECISIONS, name, traits)
    texts = [tmp_path / "source", tmp_path / "reference"]
    for path, lines in zip(texts, zip(*PAIRS[:48:4], strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    out = tmp_path / "best"
    (tmp_path / f".best.candidates.{16 * '0'}.tmp" / "fp32").mkdir(parents=True)  # of a process that was killed
    command = ["export", str(model_graphs.run.path), "--out", str(out), "--precision", "auto"]
    command += ["--valid", *map(str, texts), "--max-bleu-drop", "1"]
    done = succeeded(*command)
    manifest = open_bundle(out).manifest
    choice = msgspec.convert(manifest.report.choice, ChoiceTable)
    assert tuple(row[0] for row in choice.rows) == CPU_PRECISIONS
    assert "source and reference, 12 sentences, beam 4, 1 thread" in choice.notes[0]
    assert choice.rows[0][2].startswith("+0.00")
    assert all(float(row[3]) < float(choice.rows[0][3]) for row in choice.rows[1:])
    (chosen,) = [row[0] for row in choice.rows if row[-1] == "chosen"]
    assert manifest.precision[contract.DECODER_FILE] == chosen
    card = (out / "README.md").read_text(encoding="utf-8")
    assert all(text in card for text in [*markdown_table(choice.columns, choice.rows), *choice.notes])
    assert f"Wrote {out}, {chosen}" in " ".join(done.stdout.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "reference", "source"]

    # What turns out not to be the model is not taken, however fast it is; the others are measured.
    for name, traits in with_agreement(1.1).items():
        monkeypatch.setitem(PRECISIONS, name, traits)
    succeeded(*command, "--overwrite")
    choice = msgspec.convert(open_bundle(out).manifest.report.choice, ChoiceTable)
    assert [(row[0], row[-1]) for row in choice.rows] == [("fp32", "chosen")]
    assert all("is too far from PyTorch" in note for note in choice.notes[2:])
    assert [note.split()[0] for note in choice.notes if " failed: " in note] == [*CPU_PRECISIONS[1:]]


def test_options_of_the_choice_need_it(model_graphs: ModelGraphs, tmp_path: Path) -> None:
    command = ["export", str(model_graphs.run.path), "--out", str(tmp_path / "b"), "--max-bleu-drop", "2"]
    assert error(*command, code=2) == "--max-bleu-drop can only be used with --precision auto."
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
