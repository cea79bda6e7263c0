"""Layers by name, their sensitivity, mixed precisions, and the choice among measured candidates, from end to end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from rich.console import Console

from edgeformer.cli import main
from edgeformer.markdown import markdown_table
from edgeformer.quality.tuning import ValidationText
from edgeformer_export.auto import export_best, trial
from edgeformer_export.auto.candidates import Candidate, build, mixed
from edgeformer_export.auto.export_best import AutoOptions, previous_choice
from edgeformer_export.auto.measurements import MEASUREMENTS_FILE, Measurements, Value
from edgeformer_export.auto.sensitivity import measure_sensitivity
from edgeformer_export.choice_table import LATENCY_COLUMNS, QUALITY_COLUMNS, latency_rows, quality_rows
from edgeformer_export.export import export_run
from edgeformer_export.model_graphs import ModelGraphs
from edgeformer_export.quantize.assignment import precision_of, stored
from edgeformer_export.writer import ExportError
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.choice import Sensitivity
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.cli import output
from edgeformer_runtime.files import locked_folder
from edgeformer_runtime.precision import PRECISIONS, Precision
from edgeformer_runtime.selfcheck.golden import check_golden
from edgeformer_runtime.translator import Translator
from tests.factory import PAIRS
from tests.store import Store, with_agreement

TABLE = "source_embedding.tokens"


@pytest.fixture(scope="module")
def model_graphs(store: Store) -> ModelGraphs:
    return store.model_graphs(steps=100)


@pytest.fixture(scope="module")
def order(model_graphs: ModelGraphs, tmp_path_factory: pytest.TempPathFactory) -> list[Sensitivity]:
    measurements = Measurements(tmp_path_factory.mktemp("notes") / "n", {}, resume=False, overwrite=False)
    return measure_sensitivity(model_graphs, "int4", measurements)


@pytest.fixture
def quick_choice(model_graphs: ModelGraphs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose from graphs that are traced already, and time as little as possible."""
    monkeypatch.setattr(export_best, "ModelGraphs", lambda *_, **__: model_graphs)
    monkeypatch.setattr(trial, "TIMED_SENTENCES", 2)
    monkeypatch.setattr(trial, "ROUNDS", 3)


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
    uses = Counter((use.file, use.kind) for use in layers[TABLE].uses)
    assert uses == {
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
    for layer in model_graphs.optimized("int4").layers:
        figures = [stored(layer, precision, model_graphs.rounding) for precision in ("int8-block", "int4")]
        (fine, large), (coarse, small) = figures
        assert fine is not None
        assert coarse is not None
        assert 40 < fine < 55
        assert 15 < coarse < 30
        assert small < 0.65 * large < 0.3 * layer.rows.nbytes
        assert stored(layer, "fp32", model_graphs.rounding) == (None, layer.rows.nbytes)


@pytest.mark.slow
def test_sensitivity_follows_bits_and_is_measured_once(
    model_graphs: ModelGraphs, order: list[Sensitivity], tmp_path: Path
) -> None:
    assert [entry.layer for entry in order] == [
        entry.layer for entry in sorted(order, key=lambda entry: -entry.change.kl_divergence)
    ]
    four_bits = [entry for entry in order if entry.precision == "int4"]
    eight_bits = [entry for entry in order if entry.precision != "int4"]
    assert {entry.precision for entry in eight_bits} == {"int8"}  # the encoder's products
    assert len(order) == len(model_graphs.optimized("int4").layers)
    assert order[0].layer == TABLE
    assert min(entry.change.kl_divergence for entry in order) >= 0
    assert np.median([entry.change.kl_divergence for entry in four_bits]) > 5 * np.median(
        [entry.change.kl_divergence for entry in eight_bits]
    )

    first = CountedMeasurements(tmp_path / "n", {"a": 1}, resume=False, overwrite=False)
    with pytest.raises(KeyboardInterrupt):
        measure_sensitivity(model_graphs, "int4", first, lambda fraction: _stop_at(fraction, 0.2))
    assert 0 < first.count < len(order) / 2
    again = CountedMeasurements(tmp_path / "n", {"a": 1}, resume=True, overwrite=False)
    assert measure_sensitivity(model_graphs, "int4", again) == order
    assert first.count + again.count == len(order)


class CountedMeasurements(Measurements):
    """Counts the measurements that were performed rather than read."""

    count = 0

    def measured(self, name: str, kind: type[Value], measure: Callable[[], Value]) -> Value:
        def counted() -> Value:
            self.count += 1
            return measure()

        return super().measured(name, kind, counted)


def _stop_at(fraction: float, end: float) -> None:
    if fraction >= end:
        raise KeyboardInterrupt


def test_measurements_of_other_things_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    measurements = Measurements(folder, {"model": "a"}, resume=False, overwrite=False)
    assert measurements.measured("x", float, lambda: 1.5) == 1.5
    with (folder / MEASUREMENTS_FILE).open("ab") as stream:
        stream.write(b'["y", 2')  # cut off
    with pytest.raises(ExportError, match="--resume to use them, or --overwrite"):
        Measurements(folder, {"model": "a"}, resume=False, overwrite=False)
    with pytest.raises(ExportError, match="measurements with another model; give --overwrite"):
        Measurements(folder, {"model": "b"}, resume=True, overwrite=False)
    again = Measurements(folder, {"model": "a"}, resume=True, overwrite=False)
    assert again.measured("x", float, lambda: pytest.fail("measured again")) == 1.5
    assert again.measured("y", float, lambda: 3.0) == 3.0
    fresh = Measurements(folder, {"model": "b"}, resume=False, overwrite=True)
    assert fresh.measured("x", float, lambda: 4.0) == 4.0
    (folder / MEASUREMENTS_FILE).write_bytes(b"[]\n")
    with pytest.raises(ExportError, match=r"measurements\.jsonl` is damaged"):
        Measurements(folder, {}, resume=True, overwrite=False)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"meow")
    with pytest.raises(ExportError, match="something other than measurements"):
        Measurements(tmp_path / "photos", {}, resume=False, overwrite=True)
    assert (tmp_path / "photos" / "cat.jpg").exists()


@pytest.mark.parametrize("base", ["int8", "int4"])
def test_sensitive_layers_are_kept_higher(
    model_graphs: ModelGraphs, order: list[Sensitivity], tmp_path: Path, base: Precision
) -> None:
    candidate = mixed(base, 2, model_graphs.optimized(base).layers, order)
    raised: Precision = "fp32" if base == "int8" else "int8-block"
    assert candidate.keep[TABLE] == raised
    out = tmp_path / "bundle"
    export_run(model_graphs.run, out, precision=base, keep=candidate.keep, model_graphs=model_graphs)
    manifest = open_bundle(out).manifest
    assert manifest.precision[contract.DECODER_FILE] == base
    report = manifest.report.quantization
    assert report is not None
    assert report.kept == candidate.keep
    layers = {layer.name: layer for layer in model_graphs.optimized(base).layers}
    assert {tensor.name for tensor in report.tensors} == layers.keys()
    for tensor in report.tensors:
        precisions = {precision_of(use, candidate.keep.get(tensor.name, base)) for use in layers[tensor.name].uses}
        assert {tensor.precision} == precisions
        assert (tensor.snr_db is None) == (tensor.precision == "fp32")
    graph = onnx.load(out / contract.DECODER_FILE, load_external_data=False).graph
    operators = Counter(node.op_type for node in graph.node)
    bits = Counter(
        attribute.i
        for node in graph.node
        for attribute in node.attribute
        if node.op_type == "MatMulNBits" and attribute.name == "bits"
    )
    if base == "int8":
        assert operators["QGemm"] == 0  # the projection, whose table is kept
        assert operators["MatMulIntegerToFloat"] >= 11
    else:
        assert bits[8] >= 1
        assert bits[4] >= 11
    stored_bytes = sum(tensor.bytes for tensor in report.tensors)
    assert stored_bytes < (out / contract.WEIGHTS_FILE).stat().st_size
    assert check_golden(Translator.open(out)).problems == ()
    with pytest.raises(ExportError, match=r"no layer nonsense; it has source_embedding\.tokens, "):
        export_run(
            model_graphs.run, tmp_path / "other", precision=base, keep={"nonsense": "fp32"}, model_graphs=model_graphs
        )


@pytest.mark.slow
@pytest.mark.usefixtures("quick_choice")
def test_the_command_chooses_goes_on_where_it_was_and_reports(
    model_graphs: ModelGraphs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, traits in with_agreement(0.5).items():
        monkeypatch.setitem(PRECISIONS, name, traits)
    settings: dict[str, Any] = {"highlight": False, "markup": False, "soft_wrap": True, "width": 120}
    monkeypatch.setattr(output, "console", lambda stderr=False: Console(stderr=stderr, **settings))
    texts = [tmp_path / "source", tmp_path / "reference"]
    for path, lines in zip(texts, zip(*PAIRS[::4], strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    out = tmp_path / "best"
    command = ["export", str(model_graphs.run.path), "--out", str(out), "--precision", "auto", "--sentences", "12"]
    command += ["--valid", *map(str, texts), "--beam", "2", "--max-bleu-drop", "1"]
    runner = CliRunner()

    (tmp_path / "best.quantize").mkdir()
    with locked_folder(tmp_path / "best.quantize"):
        assert "is being used by another process" in runner.invoke(main, command).stderr
    with mock.patch.object(trial.Trial, "timed", side_effect=KeyboardInterrupt):
        stopped = runner.invoke(main, command)
    assert stopped.exit_code == 130
    assert "run the same command with --resume to continue" in stopped.stderr
    assert not out.exists()
    again = runner.invoke(main, command)
    assert again.exit_code == 1
    assert "give --resume to use them" in again.stderr
    with mock.patch.object(trial.Trial, "translate", side_effect=AssertionError("translated again")):
        done = runner.invoke(main, [*command, "--resume"])
    assert done.exit_code == 0, done.output

    manifest = open_bundle(out).manifest
    choice = manifest.report.choice
    assert choice is not None
    names = [candidate.name for candidate in choice.candidates]
    assert names[:5] == ["fp32", "int8", "int8-block", "int4", "int8-dyn"]
    assert {"int8+1", "int4+1"} <= set(names)
    (best,) = [candidate for candidate in choice.candidates if candidate.chosen]
    assert choice.chosen == best.name != "int8-dyn"
    assert best.admissible
    assert best.on_front
    assert (choice.sentences, choice.beam_size, choice.threads) == (12, 2, 1)
    assert (choice.rounds, choice.timed_sentences) == (3, 2)
    assert choice.candidates[0].quality.drop == 0
    assert min(candidate.latency.relative or 0 for candidate in choice.candidates if candidate.admissible) <= 1
    for candidate in choice.candidates:
        intervals = candidate.quality.drop_interval, candidate.latency.median_interval
        for interval, value in zip(intervals, (candidate.quality.drop, candidate.latency.median_ms), strict=True):
            assert interval is not None
            assert interval.contains(value)
    assert choice.bleu_signature.startswith("nrefs:1|")
    assert set(choice.sensitivity) == {"int8", "int4"}
    assert manifest.precision[contract.DECODER_FILE] == best.precision
    card = (out / "README.md").read_text(encoding="utf-8")
    page = (tmp_path / "best.quantize" / "report.md").read_text(encoding="utf-8")
    tables = [
        *markdown_table(QUALITY_COLUMNS, quality_rows(choice)),
        *markdown_table(LATENCY_COLUMNS, latency_rows(choice)),
    ]
    for text in (*tables, choice.reason, choice.bleu_signature, choice.machine, *choice.remarks):
        assert text in card
        assert text in page
    assert all(text in done.stdout for text in (choice.reason, *choice.remarks))
    assert not (tmp_path / "best.quantize" / "candidates").exists()
    assert f"Wrote {out}, {best.name}" in done.stdout
    for row in (*quality_rows(choice), *latency_rows(choice)):
        assert list(row) in [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines()]

    # A bundle that is replaced tells what was chosen before, if the settings were the same.
    assert previous_choice(out, choice) == best.name
    assert previous_choice(out, msgspec.structs.replace(choice, max_bleu_drop=0.5)) is None
    assert previous_choice(tmp_path / "none", choice) is None

    # What turns out not to be the model is not taken, however fast it is.
    for name, traits in with_agreement(1.1).items():
        monkeypatch.setitem(PRECISIONS, name, traits)
    done = runner.invoke(main, [*command, "--resume", "--overwrite"])
    assert done.exit_code == 0, done.output
    choice = open_bundle(out).manifest.report.choice
    assert choice is not None
    assert choice.chosen == "fp32"
    refused = {candidate.name for candidate in choice.candidates if "is too far from PyTorch" in candidate.refused}
    assert refused
    for candidate in choice.candidates[1:]:  # of those not refused, none is as fast as fp32 and no worse
        assert not candidate.on_front or candidate.admissible
        if candidate.admissible:
            relative, drop = candidate.latency.relative_interval, candidate.quality.drop_interval
            assert drop is not None
            assert (relative is not None and relative.low > 1) or drop.low > 0


def test_options_of_the_choice_need_it(model_graphs: ModelGraphs, tmp_path: Path) -> None:
    command = ["export", str(model_graphs.run.path), "--out", str(tmp_path / "b"), "--optimize", "size", "--resume"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 2
    assert "--optimize, --resume can only be used with --precision auto." in done.stderr
    done = CliRunner().invoke(main, [*command[:4], "--data", str(tmp_path)])
    assert "--data can only be used with --precision auto or --shortlist." in done.stderr


def test_a_card_says_what_was_not_measured(tmp_path: Path, small_bundle_int4: Path) -> None:
    card = (small_bundle_int4 / "README.md").read_text(encoding="utf-8")
    assert "Not measured for this bundle. `edgeformer evaluate . --source" in card
    assert "Not measured for this bundle. `edgeformer bench .`" in card
    assert "| int4 | 13 |" in card
    assert "license: not recorded" in card
    assert "At most 256 source tokens" in card
    shown = CliRunner().invoke(main, ["inspect", str(small_bundle_int4)])
    assert TABLE in shown.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("quick_choice")
def test_a_candidate_that_fails_is_named_and_the_others_go_on(
    model_graphs: ModelGraphs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(graphs: ModelGraphs, candidate: Candidate, folder: Path) -> None:
        if candidate.precision == "int4":
            raise ZeroDivisionError("no blocks")
        if candidate.dynamic:
            raise ExportError("The tool refuses this graph.")
        build(graphs, candidate, folder)

    monkeypatch.setattr(export_best, "build", fails)
    sources, references = zip(*PAIRS[::20], strict=True)
    text = ValidationText(sources=list(sources), references=list(references), tokenize="13a")
    report = export_best.export_best(model_graphs.run, tmp_path / "best", text, "text", AutoOptions(beam_size=1))
    choice = open_bundle(tmp_path / "best").manifest.report.choice
    assert choice is not None
    assert choice.failed["int8-dyn"] == "The tool refuses this graph."
    assert re.match(r"ZeroDivisionError: no blocks \(.*\.py:\d+\)\.", choice.failed["int4"])
    assert {"fp32", "int8", "int8-block"} <= {candidate.name for candidate in choice.candidates}
    assert not choice.failed.keys() & {candidate.name for candidate in choice.candidates}
    assert "- int4 failed and is not among the candidates: ZeroDivisionError" in report.page.read_text(encoding="utf-8")
