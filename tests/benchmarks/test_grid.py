"""The comparison with peers: what it saves, and its page; not how fast anything is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("onnxscript")

from click.testing import CliRunner, Result

from edgeformer.quality.bootstrap import Interval
from edgeformer.run.folder import Run
from edgeformer_bench import rounds
from edgeformer_bench.grid import measure, models
from edgeformer_bench.grid.__main__ import main
from edgeformer_bench.grid.report import Cell, Report, Setting, System, page
from edgeformer_bench.rounds import Score, Speed
from edgeformer_runtime.tokenizer import Tokenizer

OURS = ("--system", "edgeformer", "--precision", "fp32", "--precision", "int8")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def report() -> Report:
    """Two systems in a small grid, and two that fail."""
    setting = Setting(model="tiny", threads=1, beam_size=1, batch=1, source_length=10, target_length=31)
    scores = {
        "edgeformer int8": Score([[[0.031, 0.030], [0.032]]]),
        "CTranslate2 int8": Score([[[0.061], [0.062]]], variant="CT2_FORCE_CPU_ISA=AVX512"),
        "torch eager": Score(error="it <failed>"),
    }
    ours = System(
        model="tiny",
        system="edgeformer int8",
        version="onnxruntime 1",
        seconds=0.25,
        peak_mb=70.0,
        bytes=2_000_000,
        identical={"greedy": 7},
    )
    return Report(
        machine="a machine",
        versions={"python": "3.11"},
        vocab_size=1000,
        command="python -m edgeformer_bench.grid",
        systems=[ours, System(model="tiny", system="optimum", error="`optimum` is not installed")],
        cells=[Cell(setting=setting, results=list(rounds.Result.of(scores, "CTranslate2 int8").values()))],
    )


def test_figures_of_a_cell(report: Report) -> None:
    ours, reference, failed = report.cells[0].results
    assert ours.timing is not None
    assert (ours.timing.median_ms, ours.timing.min_ms, ours.timing.max_ms, ours.timing.calls) == pytest.approx(
        (31, 30, 32, 3)
    )
    # One round took 61 ms and 30.5 ms, the other 62 ms and 32 ms.
    assert ours.speed is not None
    assert ours.speed.median == pytest.approx((2 + 62 / 32) / 2)
    assert ours.speed.interval == Interval(low=62 / 32, high=2.0)
    assert reference.speed == Speed(median=1.0, interval=None)
    assert (failed.timing, failed.speed) == (None, None)


def test_the_page_has_all_figures_and_problems(report: Report) -> None:
    lines = page(report)
    assert "## tiny: batch 1, greedy, 10 → 31 tokens, 1 thread" in lines
    for line in (
        "| edgeformer int8 | 31.0 | 30.5 | 31.5 | 1,000 | 1.97 | 1.94 to 2.00 |",
        "| CTranslate2 int8 | 61.5 | 61.2 | 61.8 | 504 | 1.00 | – |",
        "| torch eager | – | – | – | – | – | – |",
        "| tiny | edgeformer int8 | onnxruntime 1 | 2.0 | 0.25 | 70 | 7 |",
        "- tiny: optimum was not measured: `optimum` is not installed",
        "- tiny: batch 1, greedy, 10 → 31 tokens, 1 thread: torch eager was not measured: it <failed>",
    ):
        assert line in lines
    assert report.machine in lines[2]


@pytest.mark.slow
def test_grid(taught_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "random_run", lambda path, preset, vocab_size: taught_run)
    sizes = ("--preset", "tiny", "--workload", "1x1", "--workload", "32x1", "--length", "4", "--length", "6")
    result = run("--out", tmp_path, *sizes, *OURS, "--system", "torch", "--rounds", "1", "--starts", "1")
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    shapes = [
        (cell["setting"]["batch"], cell["setting"]["source_length"], cell["setting"]["target_length"])
        for cell in report["cells"]
    ]
    assert shapes == [(1, 4, 6), (32, 4, 6), (1, 6, 9), (32, 6, 9)]
    for cell in report["cells"]:
        assert [entry["system"] for entry in cell["results"]] == ["edgeformer fp32", "edgeformer int8", "torch eager"]
        assert all(entry["timing"]["median_ms"] > 0 for entry in cell["results"])
    fp32, int8, torch = report["systems"]
    assert torch["identical"] == fp32["identical"] == {"greedy": 8, "beam 4": 8}
    assert int8["bytes"] < fp32["bytes"]
    assert int8["seconds"] > 0
    assert "edgeformer int8" in result.stdout
    assert result.stdout.strip() == (tmp_path / "bench.md").read_text(encoding="utf-8").strip()


def test_more_threads_than_processors_are_refused() -> None:
    assert "must not exceed that" in run("--threads", "9999").stderr


def test_random_weights_with_a_large_vocabulary(tmp_path: Path) -> None:
    run = models.random_run(tmp_path / "run", "tiny", 5000)
    assert run.source_tokenizer.vocab_size == run.build_model().target_vocab_size == 5000
    tokenizer = Tokenizer.from_file(run.source_tokenizer_path)
    text = "Monday, March 3, 2031"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode(text)) < len(text)
    assert max(tokenizer.encode(text)) < models.TRAINED_TOKENS
    assert {*models.PRECISIONS} >= {"fp32", "int8"}
    assert "fp16" not in models.PRECISIONS
