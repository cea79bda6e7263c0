"""The rules by which one of several measured candidates is taken, and the reports of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from edgeformer.markdown import markdown_table
from edgeformer_export.auto.choice import Rule, decide, remarks
from edgeformer_export.auto.report import PLOT_FILE, write_report
from edgeformer_export.choice_table import COLUMNS, explanation, rows
from edgeformer_runtime.bundle.choice import Choice, Latency, Measured, Objective, Quality


def measured(name: str, drop: float, ms: float, mb: float, *, refused: str = "") -> Measured:
    return Measured(
        name=name,
        precision="int8",
        kept={},
        quality=Quality(bleu=40 - drop, chrf=60, drop=drop, drop_error=0.01, identical=90),
        latency=Latency(mean_ms=ms, median_ms=ms, p25_ms=ms - 1, p75_ms=ms + 1, differ_alone=0),
        bytes=round(mb * 1e6),
        refused=refused,
    )


CANDIDATES = [
    measured("fp32", 0.0, 10.0, 12.0),
    measured("int8", 0.1, 12.0, 4.0),
    measured("int8-block", -0.05, 6.2, 4.2),
    measured("int4", 0.6, 4.0, 2.5),
    measured("int4+2", 0.15, 6.0, 2.8),
    measured("int8-dyn", 0.0, 3.0, 3.0, refused="it depends on the batch."),
]


def chosen(candidates: list[Measured], **settings: Any) -> str:
    (name,) = [candidate.name for candidate in decide(candidates, Rule(**settings)) if candidate.chosen]
    return name


@pytest.mark.parametrize(
    ("optimize", "max_drop", "noise", "expected"),
    [
        ("latency", 0.2, 0.0, "int4+2"),  # int8-block is within a tenth of it, and larger
        ("latency", 1.0, 0.0, "int4"),
        ("latency", 1.0, 0.6, "int4"),  # so noisy that it and the next two are equal
        ("latency", 0.0, 0.0, "int8-block"),
        ("size", 0.2, 0.0, "int4+2"),
        ("size", 1.0, 0.9, "int4"),
        ("size", 0.1, 0.0, "int8"),
    ],
)
def test_the_best_inside_the_budget_is_chosen(
    optimize: Objective, max_drop: float, noise: float, expected: str
) -> None:
    for candidates in (CANDIDATES, CANDIDATES[::-1]):
        assert chosen(candidates, max_drop=max_drop, optimize=optimize, noise=noise) == expected


def test_equals_are_told_apart_by_size_then_drop_then_name() -> None:
    settings: dict[str, Any] = {"max_drop": 1, "optimize": "latency", "noise": 0.0}
    reference = measured("fp32", 0.0, 20, 9)
    assert chosen([reference, measured("b", 0.2, 10, 1), measured("a", 0.1, 10.4, 2)], **settings) == "b"
    assert chosen([reference, measured("b", 0.2, 10, 1), measured("a", 0.1, 10.4, 1)], **settings) == "a"
    assert chosen([reference, measured("b", 0.1, 10, 1), measured("a", 0.1, 10.4, 1)], **settings) == "a"


def test_noise_below_the_tie_does_not_change_the_choice() -> None:
    """Every order of times that lie within a few percent of each other gives the same candidate."""
    for factors in ((0.98, 1.0, 1.01), (1.01, 0.99, 1.0), (1.0, 1.02, 0.98)):
        candidates = [measured("fp32", 0.0, 9.0, 12.0)]
        candidates += [
            measured(name, drop, 6 * factor, 4.0)
            for (name, drop), factor in zip((("a", 0.1), ("b", 0.02), ("c", 0.05)), factors, strict=True)
        ]
        assert chosen(candidates, max_drop=0.2, optimize="latency", noise=0.02) == "b"


def test_what_is_dominated_is_not_on_the_front() -> None:
    decided = {candidate.name: candidate for candidate in decide(CANDIDATES, Rule(max_drop=0.2))}
    assert {name for name, candidate in decided.items() if candidate.on_front} == {
        "int8-block",
        "int4",
        "int4+2",
        "int8-dyn",
    }
    assert {name for name, candidate in decided.items() if not candidate.in_budget} == {"int4"}


def test_a_choice_stays_unless_another_is_clearly_better() -> None:
    def with_times(ms: float) -> list[Measured]:
        return [measured("fp32", 0.0, 14, 9), measured("a", 0.1, 10, 2), measured("b", 0.05, ms, 2)]

    settings: dict[str, Any] = {"max_drop": 0.2, "noise": 0.01}
    assert chosen(with_times(10.9), **settings) == "b"
    assert chosen(with_times(11.2), **settings) == "a"
    assert chosen(with_times(11.2), **settings, previous="b") == "b"
    assert chosen(with_times(10.9), **settings, previous="a") == "a"
    assert chosen(with_times(12.1), **settings, previous="b") == "a"
    assert chosen(with_times(11.2), **settings, previous="gone") == "a"
    assert chosen(with_times(11.2), max_drop=0.0, previous="b") == "fp32"


def said(candidates: list[Measured], rule: Rule) -> list[str]:
    return remarks(decide(candidates, rule), rule)


def test_what_is_slower_than_fp32_is_said() -> None:
    lines = said(CANDIDATES, Rule(max_drop=0.2, noise=0.01))
    assert lines[0] == "int8 is slower than fp32 on this machine: it takes 1.20 times as long."
    assert lines[1] == "int8-dyn is never chosen: it depends on the batch."
    assert len(lines) == 2
    assert not [line for line in said(CANDIDATES, Rule(max_drop=0.2, noise=0.2)) if "slower" in line]


def test_doubts_are_said() -> None:
    reference = measured("fp32", 0.0, 20, 9)
    (line,) = said([reference, measured("a", 0.195, 10, 1)], Rule(max_drop=0.2))
    assert line.startswith("The drop of a is +0.20 ± 0.01, so it may exceed the budget of 0.2")
    (line,) = said([reference, measured("a", 0.1, 10, 1), measured("b", 0.05, 11.1, 1)], Rule(max_drop=0.2, noise=0.02))
    assert line.startswith("A close call: with times off by the measured noise, b would be chosen.")


def choice_of(candidates: list[Measured]) -> Choice:
    rule = Rule(max_drop=0.2, noise=0.02)
    decided = decide(candidates, rule)
    return Choice(
        chosen=next(candidate.name for candidate in decided if candidate.chosen),
        max_bleu_drop=0.2,
        optimise="latency",
        candidates=decided,
        remarks=remarks(decided, rule),
        text="validation <set>",
        sentences=100,
        too_long=0,
        beam_size=4,
        threads=1,
        bleu_signature="nrefs:1|tok:13a",
        chrf_signature="nrefs:1|nc:6",
        machine="a machine",
        engine="onnxruntime 1",
        clock="processor time",
        noise=0.02,
        tie=rule.tie,
        previous=None,
        sensitivity={},
    )


def test_the_plot_shows_every_candidate_in_each_panel() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'edgeformer[plot]'")
    from edgeformer_export.auto.plot import candidates_figure

    choice = choice_of(CANDIDATES)
    by_size, by_latency = candidates_figure(choice).axes
    for axes, xs in (
        (by_size, [candidate.bytes / 1e6 for candidate in choice.candidates]),
        (by_latency, [candidate.latency.mean_ms for candidate in choice.candidates]),
    ):
        points = {str(points.get_label()): points for points in axes.collections}
        for candidate, x in zip(choice.candidates, xs, strict=True):
            assert list(np.ravel(points[candidate.name].get_offsets())) == pytest.approx([x, candidate.quality.bleu])
            assert (len(np.ravel(points[candidate.name].get_facecolor())) > 0) == candidate.on_front
        assert len(axes.collections) == len(choice.candidates) + 1  # the ring
        assert list(np.ravel(axes.lines[0].get_ydata())) == pytest.approx([39.8, 39.8])


def test_the_report_has_every_candidate_and_a_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'edgeformer[plot]'")
    choice = choice_of(CANDIDATES)
    text = write_report(tmp_path, "bundle", choice).read_text(encoding="utf-8")
    assert (tmp_path / PLOT_FILE).read_bytes().startswith(b"\x89PNG")
    assert f"({PLOT_FILE})" in text
    lines = [
        *explanation(choice),
        *(f"- {remark}" for remark in choice.remarks),
        *markdown_table(COLUMNS, rows(choice)),
    ]
    assert {*lines} <= {*text.splitlines()}

    (tmp_path / "without").mkdir()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = write_report(tmp_path / "without", "bundle", choice).read_text(encoding="utf-8")
    assert [path.name for path in (tmp_path / "without").iterdir()] == ["report.md"]
    assert "![" not in text
    assert {*lines} <= {*text.splitlines()}


def test_the_table_fits_a_terminal_and_tells_the_choice() -> None:
    choice = choice_of(CANDIDATES)
    lines = rows(choice)
    assert lines[4] == ("int4+2", "39.85", "+0.15", "0.01", "90%", "6.00", "2.80", "yes", "chosen")
    assert lines[5][-1] == "never"
    assert "nrefs:1|tok:13a" in explanation(choice)[0]
    assert "a machine" in explanation(choice)[1]
    assert msgspec.convert(msgspec.to_builtins(choice), Choice) == choice
