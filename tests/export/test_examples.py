"""Golden examples are far from any other output."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edgeformer_export.parity.golden_examples import MARGIN, SHORTLIST, listed_cases, make_golden
from edgeformer_export.parity.margins import beam_margins, greedy_margins, survives
from edgeformer_runtime.check.golden import read_golden
from edgeformer_runtime.precision import PRECISIONS
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.translator import Translator
from tests.factory import PAIRS
from tests.toy import Ids, ToySession

SOURCES: list[Ids] = [(4, 5, 3), (6, 3), (7, 4, 4, 3), (5, 6, 7, 3), (4, 3), (7, 7, 3)]
TEXTS = sorted({source for source, _ in PAIRS}, key=lambda text: (len(text), text))


def best(session: ToySession, sources: Sequence[Ids], options: DecodeOptions) -> list[Ids]:
    return [first.ids for first, *_ in decode(session, sources, options)]


def plain_margin(session: ToySession, source: Ids, output: Ids) -> float:
    """Smallest distance of the two best logits, from the toy's own function."""
    gaps = []
    for step in range(min(len(output) + 1, session.max_target_length)):
        logits = session.logits(source, output[:step])
        second, first = np.sort(np.delete(logits, [0, 2]))[-2:]
        gaps.append(float(first - second))
    return min(gaps)


@pytest.mark.parametrize("seed", range(5))
def test_greedy_margins_are_the_smallest_distance_of_two_logits(seed: int) -> None:
    session = ToySession(seed=seed, end_bias=1.0)
    outputs = best(session, SOURCES, DecodeOptions(beam_size=1))
    assert len({len(output) for output in outputs}) > 1
    expected = [plain_margin(session, source, output) for source, output in zip(SOURCES, outputs, strict=True)]
    assert greedy_margins(session, SOURCES, outputs) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
def test_greedy_output_survives_less_than_its_margin_and_not_much_more(seed: int) -> None:
    session, options = ToySession(seed=seed, end_bias=1.0), DecodeOptions(beam_size=1)
    outputs = best(session, SOURCES, options)
    margins = greedy_margins(session, SOURCES, outputs)
    for source, output, margin in zip(SOURCES, outputs, margins, strict=True):
        assert survives(session, [source], [output], options, 0.999 * margin) == [True]
    assert not all(survives(session, SOURCES, outputs, options, 20 * max(margins)))


@pytest.mark.parametrize("seed", range(3))
def test_beam_margins_are_the_largest_that_is_survived(seed: int) -> None:
    session, options = ToySession(seed=seed, end_bias=1.0), DecodeOptions(beam_size=3)
    outputs = best(session, SOURCES, options)
    margins = beam_margins(session, SOURCES, outputs, options, (0.01, 0.3, 2.0))
    assert set(margins) <= {0.0, 0.01, 0.3, 2.0}
    assert len(set(margins)) > 1
    assert [margin == 2.0 for margin in margins] == survives(session, SOURCES, outputs, options, 2.0)
    assert beam_margins(session, SOURCES, outputs, options, (1e-6,)) == [1e-6] * len(SOURCES)
    assert beam_margins(session, SOURCES, outputs, options, (1e4,)) == [0.0] * len(SOURCES)
    wrong = [(4, *output) for output in outputs]
    assert survives(session, SOURCES, wrong, options, 1e-6) == [False] * len(SOURCES)


def test_of_texts_of_a_length_those_far_from_another_output_are_taken(translator: Translator) -> None:
    some = TEXTS[::4]
    golden = make_golden(translator, some, count=3)
    assert golden == make_golden(translator, some, count=3)
    assert [case.beam_size for case in golden.cases] == [1, 1, 1, 4, 4, 4]
    texts = [case.text for case in golden.cases[:3]]
    assert texts == [case.text for case in golden.cases[3:]]
    assert [len(text) for text in texts] == sorted(len(text) for text in texts)
    everywhere = make_golden(translator, some, count=len(some))
    all_greedy = {case.text: case.margin for case in everywhere.cases if case.beam_size == 1}
    thirds = [some[: len(some) // 3], some[len(some) // 3 : 2 * len(some) // 3], some[2 * len(some) // 3 :]]
    for case, third in zip(golden.cases, thirds, strict=False):
        assert case.margin == pytest.approx(all_greedy[case.text], rel=0.05)
        better = [text for text in third if all_greedy[text] > 1.05 * case.margin]
        assert len(better) < SHORTLIST


def test_few_texts_are_all_taken(translator: Translator) -> None:
    texts = ["sea", " ", "The dog runs."]
    golden = make_golden(translator, texts)
    assert [(case.text, case.beam_size) for case in golden.cases] == [
        (text, beam) for beam in (1, 4) for text in ("sea", "The dog runs.")
    ]
    for case in golden.cases:
        found = translator.translate([case.text], beam_size=case.beam_size)[0].best
        assert (case.ids, case.output) == (found.ids, found.text)
        assert case.score == pytest.approx(found.score, abs=1e-5)
        assert case.source == (*translator.source_tokenizer.encode(case.text), 3)


def test_examples_with_a_shortlist_are_those_that_it_does_not_change(translator: Translator) -> None:
    golden = make_golden(translator, TEXTS, count=3)
    withheld = golden.cases[0].ids[0]
    listing = Translator(
        translator.session,
        translator.source_tokenizer,
        translator.target_tokenizer,
        translator.options(suppress_tokens=[withheld]),
    )
    changed = [case for case in golden.cases if withheld in case.ids]
    listed = listed_cases(golden, listing)
    assert changed
    assert [(case.text, case.beam_size, case.ids, case.margin) for case in listed] == [
        (case.text, case.beam_size, case.ids, case.margin) for case in golden.cases if case not in changed
    ]


def test_examples_of_a_taught_model_have_the_margin_looked_for(small_bundle: Path) -> None:
    cases = read_golden(Translator.open(small_bundle, threads=1).bundle).cases
    assert min(case.margin for case in cases) >= MARGIN * PRECISIONS["fp32"].tolerances.score
