"""The rules by which one of several measured candidates is taken, and the reports of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from edgeformer.markdown import markdown_table
from edgeformer.quality.bootstrap import BleuCounts, corpus_bleu, difference_interval
from edgeformer_export.auto.choice import Rule, decide, remarks
from edgeformer_export.auto.comparisons import MIN_TIE, Comparisons, Median
from edgeformer_export.auto.report import PLOT_FILE, write_report
from edgeformer_export.choice_table import (
    LATENCY_COLUMNS,
    QUALITY_COLUMNS,
    latency_notes,
    latency_rows,
    quality_notes,
    quality_rows,
)
from edgeformer_runtime.bundle.choice import Choice, Latency, Measured, Objective, Quality

SENTENCES = 400
RIGHT, WRONG = (12, 12, 12, 11, 10, 9, 12, 11, 10, 9), (12, 12, 11, 9, 7, 5, 12, 11, 10, 9)
"""BLEU statistics of a sentence of twelve words, without and with a wrong one. A wrong word costs 0.06 BLEU."""


@dataclass(frozen=True)
class Case:
    """A candidate with simulated measurements."""

    name: str
    wrong: range
    """Sentences with a wrong word: four more than another candidate's are significantly worse, three are not."""
    ms: float
    mb: float
    refused: str = ""
    unsteady: float = 0.0
    """Standard deviation of the relative difference between rounds."""

    @property
    def counts(self) -> BleuCounts:
        return np.array([WRONG if index in self.wrong else RIGHT for index in range(SENTENCES)])

    @property
    def times(self) -> NDArray[np.float64]:
        """Ten rounds of 16 sentences, some of which take longer, with a little noise."""
        random = np.random.default_rng(sum(self.name.encode()))
        rounds = 1 + self.unsteady * random.normal(size=(10, 1))
        return self.ms * rounds * np.linspace(0.5, 1.5, 16) * random.normal(1, 0.01, size=(10, 16))


@cache
def measured(case: Case, reference: Case) -> Measured:
    bleu, best = (float(corpus_bleu(entry.counts.sum(axis=0, keepdims=True))[0]) for entry in (case, reference))
    median = Median.of(case.times)
    return Measured(
        name=case.name,
        precision="int8",
        kept={},
        quality=Quality(
            bleu=bleu,
            chrf=60,
            drop=best - bleu,
            drop_interval=difference_interval(reference.counts, case.counts),
            identical=SENTENCES - len(case.wrong),
        ),
        latency=Latency(
            median_ms=median.value,
            median_interval=median.interval,
            p25_ms=median.value / 2,
            p75_ms=median.value * 2,
            differ_alone=0,
        ),
        bytes=round(case.mb * 1e6),
        refused=case.refused,
    )


FP32 = Case("fp32", range(20), 10.0, 12.0)
CASES = [
    FP32,
    Case("int8", range(21), 12.0, 4.0),
    Case("int8-block", range(20), 6.2, 4.2),
    Case("int4", range(32), 4.0, 2.5),
    Case("int4+2", range(22), 6.0, 2.8),
    Case("int8-dyn", range(20), 3.0, 2.0, refused="it depends on the batch."),
]


def decided(cases: Sequence[Case], **settings: Any) -> tuple[list[Measured], str, list[str]]:
    """Candidates, reason and remarks."""
    rule = Rule(**{"max_drop": 0.2, **settings})
    comparisons = Comparisons({case.name: case.times for case in cases}, {case.name: case.counts for case in cases})
    candidates, reason = decide([measured(case, cases[0]) for case in cases], rule, comparisons)
    return candidates, reason, remarks(candidates, rule, comparisons)


def chosen(cases: Sequence[Case], **settings: Any) -> str:
    (name,) = [candidate.name for candidate in decided(cases, **settings)[0] if candidate.chosen]
    return name


def front(cases: Sequence[Case], **settings: Any) -> set[str]:
    return {candidate.name for candidate in decided(cases, **settings)[0] if candidate.on_front}


@pytest.mark.parametrize(
    ("optimize", "max_drop", "expected"),
    [
        ("latency", 0.2, "int4+2"),  # int8-block is within a tenth of it, no better, and larger
        ("latency", 1.0, "int4"),
        ("latency", 0.0, "int8-block"),
        ("size", 0.2, "int4+2"),
        ("size", 1.0, "int4"),
        ("size", 0.1, "int8"),
    ],
)
def test_the_best_inside_the_budget_is_chosen(optimize: Objective, max_drop: float, expected: str) -> None:
    for cases in (CASES, [FP32, *CASES[:0:-1]]):
        assert chosen(cases, max_drop=max_drop, optimize=optimize) == expected


def test_at_equal_speed_a_significantly_better_candidate_is_preferred_to_a_smaller_one() -> None:
    better = Case("better", range(20), 6.4, 4.0)
    worse = Case("worse", range(30), 6.0, 2.0)
    no_worse = Case("no-worse", range(22), 6.2, 3.0)
    candidates, reason, _ = decided([FP32, better, worse, no_worse], max_drop=1)
    assert [candidate.name for candidate in candidates if candidate.chosen] == ["no-worse"]
    assert reason == (
        "better, worse and no-worse are equally fast. BLEU is significantly lower with worse than with better. "
        "Of better and no-worse, whose BLEU does not differ significantly, no-worse is the smallest."
    )
    assert chosen([FP32, better, worse], max_drop=1) == "better"
    assert chosen([FP32, Case("slower", range(20), 7.0, 4.0), worse], max_drop=1) == "worse"


def test_a_measured_drop_counts_even_if_it_is_not_significant() -> None:
    """Without that, few sentences would admit any candidate."""
    unlucky = Case("unlucky", range(12, 40), 5.0, 2.0)
    candidates, _, lines = decided([FP32, unlucky])
    drop = candidates[1].quality.drop_interval
    assert drop is not None
    assert drop.low < 0 < 0.2 < candidates[1].quality.drop
    assert not candidates[1].in_budget
    assert candidates[0].chosen
    (line,) = lines
    assert line.startswith("Over the budget as measured, though perhaps not on other text: unlucky.")


def test_latencies_that_differ_by_chance_are_equal() -> None:
    small = Case("small", range(20), 7.2, 2.0)
    assert chosen([FP32, Case("large", range(20), 6.0, 4.0), small]) == "large"
    assert chosen([FP32, Case("large", range(20), 6.0, 4.0, unsteady=0.4), small]) == "small"


def test_noise_below_the_tie_does_not_change_the_choice() -> None:
    """Every order of times that lie within a few percent of each other gives the same candidate."""
    for factors in ((0.98, 1.0, 1.01), (1.01, 0.99, 1.0), (1.0, 1.02, 0.98)):
        cases = [FP32]
        cases += [
            Case(name, range(wrong), 6 * factor, 4.0)
            for (name, wrong), factor in zip((("a", 22), ("b", 20), ("c", 21)), factors, strict=True)
        ]
        assert chosen(cases) == "b"


def test_equals_are_told_apart_by_size_then_drop_then_name() -> None:
    assert chosen([FP32, Case("b", range(22), 5, 1), Case("a", range(21), 5.2, 2)]) == "b"
    assert chosen([FP32, Case("b", range(22), 5, 1), Case("a", range(21), 5.2, 1)]) == "a"
    assert chosen([FP32, Case("b", range(21), 5, 1), Case("a", range(21), 5.2, 1)]) == "a"
    _, reason, _ = decided([FP32, Case("b", range(22), 5, 1), Case("a", range(21), 5.2, 1)])
    assert reason.endswith(
        "Of b and a, whose BLEU does not differ significantly, a has the smallest drop of the smallest."
    )


def test_the_front_has_admissible_candidates_that_no_admissible_one_dominates() -> None:
    assert front(CASES) == {"int4+2"}  # int8-dyn and int4 are smaller and faster, but inadmissible
    assert front(CASES, max_drop=1) == {"int4", "int4+2"}
    candidates, _, _ = decided(CASES)
    assert {candidate.name for candidate in candidates if not candidate.in_budget} == {"int4"}
    assert {candidate.name for candidate in candidates if not candidate.admissible} == {"int4", "int8-dyn"}
    admitted = [*CASES[:-1], Case("int8-dyn", range(20), 3.0, 2.0)]
    assert front(admitted) == {"int8-dyn"}


def test_candidates_that_differ_by_chance_only_are_not_both_on_the_front() -> None:
    assert front([FP32, Case("a", range(20), 6.0, 4.0), Case("b", range(22), 6.3, 4.1)]) == {"a"}
    assert front([FP32, Case("a", range(20), 6.0, 4.1), Case("b", range(22), 6.3, 4.0)]) == {"b"}
    assert front([FP32, Case("a", range(20), 6.0, 4.0), Case("b", range(22), 9.0, 3.0)]) == {"a", "b"}


def test_ratios_are_to_the_fastest_admissible_candidate() -> None:
    candidates = {candidate.name: candidate.latency for candidate in decided(CASES)[0]}
    assert candidates["int4+2"].relative == 1
    for name, expected in (("int8", 2.0), ("int8-dyn", 0.5)):
        assert candidates[name].relative == pytest.approx(expected, rel=0.01)
        interval = candidates[name].relative_interval
        assert interval is not None
        assert interval.contains(expected)
        assert interval.high - interval.low < 0.02


def test_a_choice_stays_unless_another_is_clearly_better() -> None:
    def cases(ms: float, wrong: int = 20) -> list[Case]:
        return [Case("fp32", range(20), 14, 9), Case("a", range(21), 10, 2), Case("b", range(wrong), ms, 2)]

    assert chosen(cases(10.8)) == "b"
    assert chosen(cases(11.5)) == "a"
    assert chosen(cases(11.5), previous="b") == "b"
    assert decided(cases(11.5), previous="b")[1] == "b was chosen before, and no candidate is clearly better."
    assert decided(cases(11.5), previous="a")[1] == decided(cases(11.5))[1] == "a is the fastest."
    assert chosen(cases(11.5, wrong=30), previous="b", max_drop=1) == "a"
    assert chosen(cases(10.8), previous="a") == "a"
    assert chosen(cases(12.5), previous="b") == "a"
    assert chosen(cases(11.5), previous="gone") == "a"
    assert chosen([*cases(11.5)[:2], Case("b", range(21), 11.5, 2)], max_drop=0.0, previous="b") == "fp32"


def test_what_is_slower_than_fp32_is_said() -> None:
    _, _, (refused, slower) = decided([*CASES[:3], CASES[5]])
    assert refused == "int8-dyn is inadmissible: it depends on the batch."
    assert slower.startswith("int8 is slower than fp32 on this machine: it takes 1.20 times as long (1.")
    assert decided([FP32, Case("int8", range(20), 10.8, 4.0)])[2] == []


def test_doubts_are_said() -> None:
    _, _, (line,) = decided([FP32, Case("a", range(23), 5, 1)])
    assert line.startswith("The drop of a may exceed the budget of 0.2 on other text: its interval is +0.00 to +0.")
    _, _, (line,) = decided([FP32, Case("a", range(20), 5, 2), Case("b", range(20), 5.65, 1, unsteady=0.1)])
    assert line.startswith("A close call: with latencies at the ends of their intervals, b would be chosen.")


def choice_of(cases: Sequence[Case]) -> Choice:
    candidates, reason, lines = decided(cases)
    return Choice(
        chosen=next(candidate.name for candidate in candidates if candidate.chosen),
        reason=reason,
        max_bleu_drop=0.2,
        optimise="latency",
        candidates=candidates,
        remarks=lines,
        text="validation <set>",
        sentences=SENTENCES,
        too_long=0,
        beam_size=4,
        threads=1,
        bleu_signature="nrefs:1|tok:13a",
        chrf_signature="nrefs:1|nc:6",
        machine="a machine",
        engine="onnxruntime 1",
        clock="processor time",
        rounds=10,
        timed_sentences=16,
        tie=MIN_TIE,
        previous=None,
        sensitivity={},
    )


def test_the_plot_shows_every_candidate_in_each_panel() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'edgeformer[plot]'")
    from edgeformer_export.auto.plot import candidates_figure

    choice = choice_of(CASES)
    by_size, by_latency = candidates_figure(choice).axes
    for axes, xs in (
        (by_size, [candidate.bytes / 1e6 for candidate in choice.candidates]),
        (by_latency, [candidate.latency.median_ms for candidate in choice.candidates]),
    ):
        points = {str(points.get_label()): points for points in axes.collections}
        for candidate, x in zip(choice.candidates, xs, strict=True):
            assert list(np.ravel(points[candidate.name].get_offsets())) == pytest.approx([x, candidate.quality.bleu])
            filled = len(np.ravel(points[candidate.name].get_facecolor())) > 0
            assert filled == (candidate.on_front or not candidate.admissible)
        assert len(axes.collections) == len(choice.candidates) + 1  # the ring
        budget = choice.candidates[0].quality.bleu - 0.2
        assert list(np.ravel(axes.lines[-1].get_ydata())) == pytest.approx([budget, budget])
    # A bar for the BLEU of each candidate, and in the second panel one for its latency.
    assert [len(axes.lines) for axes in (by_size, by_latency)] == [len(CASES) + 1, 2 * len(CASES) + 1]
    (interval,) = [candidate.latency.median_interval for candidate in choice.candidates if candidate.name == "int8"]
    assert interval is not None
    assert (interval.low, interval.high) in [tuple(np.ravel(line.get_xdata())) for line in by_latency.lines]


def test_the_report_has_every_candidate_and_a_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'edgeformer[plot]'")
    choice = choice_of(CASES)
    text = write_report(tmp_path, "bundle", choice).read_text(encoding="utf-8")
    assert (tmp_path / PLOT_FILE).read_bytes().startswith(b"\x89PNG")
    assert f"({PLOT_FILE})" in text
    lines = [
        *quality_notes(choice),
        *latency_notes(choice),
        *(f"- {remark}" for remark in choice.remarks),
        *markdown_table(QUALITY_COLUMNS, quality_rows(choice)),
        *markdown_table(LATENCY_COLUMNS, latency_rows(choice)),
    ]
    assert {*lines} <= {*text.splitlines()}

    (tmp_path / "without").mkdir()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = write_report(tmp_path / "without", "bundle", choice).read_text(encoding="utf-8")
    assert [path.name for path in (tmp_path / "without").iterdir()] == ["report.md"]
    assert "![" not in text
    assert {*lines} <= {*text.splitlines()}


def test_the_tables_tell_what_is_admissible_and_what_was_chosen() -> None:
    choice = choice_of(CASES)
    quality = {row[0]: row for row in quality_rows(choice)}
    assert quality["int4+2"] == ("int4+2", "98.61", "+0.13", "+0.00 to +0.32", "94%", "2.80", "yes, no worse")
    assert quality["fp32"][3] == "–"
    assert [row[-1] for row in quality.values()] == [
        "yes",
        "yes, no worse",
        "yes, no worse",
        "no, over budget",
        "yes, no worse",
        "no, refused",
    ]
    latency = {row[0]: row for row in latency_rows(choice)}
    assert [row[-1] for row in latency.values()] == ["dominated", "dominated", "dominated", "–", "chosen", "–"]
    for candidate in choice.candidates:
        _, median, interval, ratio, ratio_interval, _ = latency[candidate.name]
        assert median == f"{candidate.latency.median_ms:.2f}"
        assert interval == f"{candidate.latency.median_interval:.2f}"
        assert ratio == f"{candidate.latency.relative:.2f}"
        if candidate.chosen:
            assert (ratio, ratio_interval) == ("1.00", "–")
        else:
            assert ratio_interval == f"{candidate.latency.relative_interval:.2f}"
    assert "nrefs:1|tok:13a" in quality_notes(choice)[0]
    assert "a machine" in latency_notes(choice)[0]
    assert msgspec.convert(msgspec.to_builtins(choice), Choice) == choice
