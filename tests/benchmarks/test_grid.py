"""The comparison with peers: what it saves, that it goes on where it stopped, its page; not how fast anything is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnxscript")

import msgspec
from click.testing import CliRunner, Result

from edgeformer.errors import ConfigError
from edgeformer.markdown import markdown_table
from edgeformer.quality.interval import Interval
from edgeformer.train.run import Run
from edgeformer_bench.grid import cli, lineup, models
from edgeformer_bench.grid.report import Cell, Model, Report, Setting, SystemFacts, resumed
from edgeformer_bench.grid.start import Start
from edgeformer_bench.grid.tables import problems, tables, write_page
from edgeformer_bench.rounds import Score, Speed
from edgeformer_runtime.tokenizer import Tokenizer

OURS = ("--system", "edgeformer", "--precision", "fp32", "--precision", "int8")
QUICK = ("--rounds", "1", "--starts", "1")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


def content(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "bench.json").read_text(encoding="utf-8"))
    return report


@pytest.fixture
def report() -> Report:
    """Two systems in a small grid, and a third that fails; one system in another cell."""
    cells = []
    for batch, source_length in ((1, 10), (1, 20), (32, 20)):
        setting = Setting(
            model="tiny", threads=1, beam_size=1, batch=batch, source_length=source_length, target_length=31
        )
        scores = {
            "edgeformer int8": Score([[[0.031, 0.030], [0.032]]], [0.001]),
            "CTranslate2 int8": Score([[[0.061], [0.062]]], [0.002], variant="CT2_FORCE_CPU_ISA=AVX512"),
            "torch eager": Score(error="it <failed>"),
        }
        cells.append(Cell.of(setting, scores))
    alone = Setting(model="tiny", threads=2, beam_size=4, batch=1, source_length=10, target_length=31)
    cells.append(Cell.of(alone, {"edgeformer int8": Score([[[0.062]]])}))
    facts = [
        SystemFacts(
            system="edgeformer int8",
            kind="bundle",
            version="onnxruntime 1",
            start=Start(seconds=0.25, peak_mb=70.0, bytes=2_000_000),
            identical={"greedy": 7},
        ),
        SystemFacts(system="CTranslate2 int8", kind="ctranslate2", weights="int8", identical={"greedy": 5}),
        SystemFacts(
            system="CTranslate2 float32",
            kind="ctranslate2",
            weights="float32",
            version="ctranslate2 4",
            identical={"greedy": 6},
        ),
        SystemFacts(system="optimum", error="`optimum` is not installed"),
    ]
    return Report(
        machine="a machine",
        versions={"python": "3.11"},
        systems=["edgeformer", "ctranslate2"],
        vocab_size=1000,
        commands=["python -m edgeformer_bench.grid"],
        models=[Model(name="tiny", parameters=10**6, compared=8, baseline="edgeformer fp32", systems=facts)],
        cells=cells,
    )


def test_figures_of_a_cell(report: Report) -> None:
    cell = report.cells[0]
    ours, reference, failed = cell.results
    assert ours.timing is not None
    assert (ours.timing.median_ms, ours.timing.min_ms, ours.timing.max_ms, ours.timing.calls) == pytest.approx(
        (31, 30, 32, 3)
    )
    # One round took 61 ms and 30.5 ms, the other 62 ms and 32 ms.
    assert ours.speed is not None
    assert ours.speed.median == pytest.approx((2 + 62 / 32) / 2)
    assert ours.speed.interval == Interval(low=62 / 32, high=2.0)
    assert reference.speed == Speed(median=1.0, interval=None)
    assert ours.step_ms(31) == pytest.approx(1)
    assert cell.per_second(ours) == pytest.approx(1000)
    assert (failed.timing, failed.step_ms(31), failed.speed, cell.per_second(failed)) == (None,) * 4
    assert report.cells[3].per_second(report.cells[3].results[0]) == pytest.approx(500)
    assert report.cells[3].results[0].speed is None


def test_tables_and_problems(report: Report) -> None:
    by_title = {rows.title: rows for rows in tables(report)}
    assert all(len(row) == len(rows.columns) for rows in by_title.values() for row in rows.rows)
    cell = by_title["tiny: batch 1, greedy, 10 → 31 tokens, 1 thread"]
    assert cell.rows[0] == ("edgeformer int8", "31.0", "30.5", "31.5", "1.00", "1.000", "1,000", "1.97", "1.94 to 2.00")
    assert cell.rows[1][-2:] == ("1.00", "–")
    assert cell.rows[2] == ("torch eager", *"–" * 8)
    assert problems(report) == [
        "tiny: CTranslate2 float32, greedy, differs from edgeformer fp32 in 2 of 8 sentences.",
        "tiny: optimum was not measured: `optimum` is not installed",
        *(
            f"tiny, batch {batch}, greedy, {length} → 31 tokens: torch eager failed: it <failed>"
            for batch, length in ((1, 10), (1, 20), (32, 20))
        ),
    ]


def test_the_page_has_all_tables(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "bench.md"
    write_page(report, path)
    text = path.read_text(encoding="utf-8")
    for rows in tables(report):
        assert "\n".join([f"## {rows.title}", "", *markdown_table(rows.columns, rows.rows)]) in text
    for expected in ("it <failed>", report.machine, *report.commands):
        assert expected in text


def test_a_report_comes_back_from_its_file(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    report.write(path)
    fresh = msgspec.structs.replace(report, cells=[], models=[], commands=["again"])
    again = resumed(path, fresh)
    assert again.commands == ["python -m edgeformer_bench.grid", "again"]
    assert (again.cells, again.models) == (report.cells, report.models)
    assert again.cell(report.cells[1].setting) == report.cells[1]
    assert again.cell(msgspec.structs.replace(report.cells[1].setting, threads=2)) is None
    with pytest.raises(ConfigError, match="its `machine` is a machine, but now it is another"):
        resumed(path, msgspec.structs.replace(fresh, machine="another"))
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="Leave out --resume"):
        resumed(path, fresh)


@pytest.mark.slow
def test_grid_and_resume(taught_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineup, "random_run", lambda path, preset, vocab_size: taught_run)
    sizes = ("--preset", "tiny", "--workload", "1x1", "--workload", "32x1", "--length", "4", "--length", "6")
    out = tmp_path / "out"
    options = ("--out", out, *sizes, *OURS, "--system", "torch", *QUICK)
    result = run(*options)
    assert result.exit_code == 0, result.output
    report = content(out)
    shapes = [
        (cell["setting"]["batch"], cell["setting"]["source_length"], cell["setting"]["target_length"])
        for cell in report["cells"]
    ]
    assert shapes == [(1, 4, 6), (32, 4, 6), (1, 6, 9), (32, 6, 9)]
    for cell in report["cells"]:
        assert [entry["system"] for entry in cell["results"]] == ["edgeformer fp32", "edgeformer int8", "torch eager"]
        for entry in cell["results"]:
            assert 0 < entry["first_token_ms"] < entry["timing"]["max_ms"]
    fp32, int8, torch = report["models"][0]["systems"]
    assert torch["identical"] == fp32["identical"] == {"greedy": 8, "beam 4": 8}
    assert int8["start"]["bytes"] < fp32["start"]["bytes"]
    assert "edgeformer int8" in result.stdout

    *kept, dropped = report["cells"]
    (out / "bench.json").write_text(json.dumps({**report, "cells": kept}), encoding="utf-8")
    assert run(*options, "--resume").exit_code == 0
    again = content(out)
    assert again["cells"][:-1] == kept
    assert again["cells"][-1]["setting"] == dropped["setting"]
    assert again["cells"][-1] != dropped
    assert again["models"] == report["models"]
    assert len(again["commands"]) == 2
    assert run(*options, "--resume").exit_code == 0
    assert content(out)["cells"] == again["cells"]
    result = run(*options, "--system", "optimum", "--resume")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "its `systems` is ['edgeformer', 'torch']" in result.stderr


def test_errors(tmp_path: Path) -> None:
    assert "must not exceed that" in run("--threads", "9999").stderr
    result = run("--out", tmp_path / "missing", "--resume")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "cannot be resumed" in result.stderr
    (tmp_path / "out" / "models").mkdir(parents=True)
    (tmp_path / "out" / "models" / "mine").touch()
    assert "choose another --out" in run("--out", tmp_path / "out").stderr
    assert (tmp_path / "out" / "models" / "mine").exists()


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
