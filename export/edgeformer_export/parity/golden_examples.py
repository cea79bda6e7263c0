"""Makes a bundle's golden examples, of texts whose translations are far from any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from edgeformer_export.parity.margins import beam_margins, greedy_margins
from edgeformer_runtime.selfcheck.golden import SCORE_TOLERANCE, Golden, GoldenCase
from edgeformer_runtime.selfcheck.machine import this_machine
from edgeformer_runtime.selfcheck.trace import STEPS, Trace, session_fingerprints
from edgeformer_runtime.translator import TextHypothesis, Translator

TEXTS = 6
"""Texts of the examples."""
MARGIN = 10
"""Margin to look for, in units of the score tolerance: logits of int4 graphs moved against each other by up to 0.14
between an x86 processor and emulated ARM64 ones."""
FACTORS = (0.25, 0.5, 1, 2)
"""Margins to try with beams, in units of the margin to look for."""
SHORTLIST = 3
"""Texts of about the same length that are tried with beams, which takes longer than greedy search."""


@dataclass
class _Candidate:
    """A text, and by beam size its translation and how far that is from another one."""

    text: str
    source: tuple[int, ...]
    best: dict[int, TextHypothesis]
    margin: dict[int, float]


def make_golden(translator: Translator, texts: Sequence[str], count: int = TEXTS) -> Golden:
    """Examples of at most ``count`` texts, with what the bundle gives now.

    Args:
        translator: the bundle.
        texts: candidates, from the shortest to the longest; of neighbours, that with the largest margin is taken.
        count: texts wanted.

    Raises:
        InputError: a text is too long, or no text.
    """
    session, options = translator.session, translator.defaults
    greedy = translator.translate([text for text in texts if text.strip()], beam_size=1)
    sources = [translation.source.ids for translation in greedy]
    margins = greedy_margins(session, sources, [translation.best.ids for translation in greedy])
    candidates = [
        _Candidate(translation.source.text, translation.source.ids, {1: translation.best}, {1: margin})
        for translation, margin in zip(greedy, margins, strict=True)
    ]
    # Neighbours in length, and of each group those with the largest margins
    bounds = [len(candidates) * part // count for part in range(count + 1)]
    groups = [candidates[start:end] for start, end in pairwise(bounds) if start < end]
    groups = [sorted(group, key=lambda one: -one.margin[1])[:SHORTLIST] for group in groups]
    if options.beam_size > 1:
        _try_beams(translator, [one for group in groups for one in group])
    chosen = [max(group, key=lambda one: min(one.margin.values())) for group in groups]
    return Golden(
        cases=tuple(_case(one, beam_size) for beam_size in chosen[0].best for one in chosen),
        machine=this_machine(session.device),
        traces=tuple(_trace(translator, one) for one in chosen),
    )


def _try_beams(translator: Translator, candidates: Sequence[_Candidate]) -> None:
    """Add translations by beam search, and their margins."""
    options = translator.defaults
    wanted = MARGIN * max(SCORE_TOLERANCE[name] for name in translator.bundle.manifest.precision.values())
    beams = [one.best for one in translator.translate([one.text for one in candidates])]
    sources, outputs = [one.source for one in candidates], [best.ids for best in beams]
    margins = beam_margins(translator.session, sources, outputs, options, [wanted * factor for factor in FACTORS])
    for one, best, margin in zip(candidates, beams, margins, strict=True):
        one.best[options.beam_size], one.margin[options.beam_size] = best, margin


def _case(one: _Candidate, beam_size: int) -> GoldenCase:
    best = one.best[beam_size]
    return GoldenCase(
        text=one.text,
        beam_size=beam_size,
        ids=best.ids,
        score=best.score or 0.0,
        source=one.source,
        output=best.text,
        margin=float(f"{one.margin[beam_size]:.3g}"),
    )


def _trace(translator: Translator, one: _Candidate) -> Trace:
    steps = min(STEPS, translator.session.max_target_length)
    trace = Trace(source=one.source, target=(translator.session.special.bos, *one.best[1].ids)[:steps])
    found = session_fingerprints(translator.session, translator.bundle.manifest.state, trace)
    return msgspec.structs.replace(trace, stages=found)
