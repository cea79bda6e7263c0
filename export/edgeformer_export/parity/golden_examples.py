"""Makes a bundle's golden examples from the texts whose translations are least likely to change due to rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from edgeformer_export.parity.margins import beam_margins, greedy_margins
from edgeformer_runtime.check.golden import Golden, GoldenCase, score_tolerance
from edgeformer_runtime.translation import TextHypothesis
from edgeformer_runtime.translator import Translator

TEXTS = 6
"""Number of texts used as examples."""
MARGIN = 10
"""Desired margin, in units of the score tolerance: differences between logits of int4 graphs changed by up to 0.14
between an x86 processor and emulated ARM64 processors."""
FACTORS = (0.25, 0.5, 1, 2)
"""Margins to try with beam search, in units of the desired margin."""
SHORTLIST = 3
"""Number of texts of similar length that are tried with beam search, which is slower than greedy search."""


@dataclass
class _Candidate:
    """A text that may become a golden example."""

    text: str
    source: tuple[int, ...]
    """Source ids with the end token."""
    best: dict[int, TextHypothesis]
    """Best translation for each beam size."""
    margin: dict[int, float]
    """For each beam size, how far logits may move without changing the translation."""


def make_golden(translator: Translator, texts: Sequence[str], count: int = TEXTS) -> Golden:
    """Make examples from at most ``count`` texts, with the bundle's current output.

    Args:
        translator: the bundle.
        texts: candidates, from shortest to longest; among texts of similar length, the one with the largest margin is
            used.
        count: maximum number of texts.

    Raises:
        InputError: a text is too long or not valid Unicode.
    """
    session, options = translator.session, translator.defaults
    greedy = translator.translate([text for text in texts if text.strip()], beam_size=1)
    sources = [translation.source.ids for translation in greedy]
    margins = greedy_margins(session, sources, [translation.best.ids for translation in greedy])
    candidates = [
        _Candidate(translation.source.text, translation.source.ids, {1: translation.best}, {1: margin})
        for translation, margin in zip(greedy, margins, strict=True)
    ]
    # Groups of similar length; those with the largest margins are chosen from each.
    bounds = [len(candidates) * part // count for part in range(count + 1)]
    groups = [candidates[start:end] for start, end in pairwise(bounds) if start < end]
    groups = [sorted(group, key=lambda example: -example.margin[1])[:SHORTLIST] for group in groups]
    if options.beam_size > 1:
        _try_beams(translator, [example for group in groups for example in group])
    chosen = [max(group, key=lambda example: min(example.margin.values())) for group in groups]
    return Golden(cases=tuple(_case(example, beam_size) for beam_size in chosen[0].best for example in chosen))


def listed_cases(golden: Golden, listing: Translator) -> tuple[GoldenCase, ...]:
    """List the examples of a golden file whose output is the same with a shortlist.

    Fewer tokens compete there, so logits may shift as far as without a shortlist. How far they may shift where the
    output is another one is not known: rounding could change it on the next processor.

    Args:
        golden: the examples without shortlist.
        listing: the bundle with its shortlist.
    """
    cases = []
    for case in golden.cases:
        best = listing.translate([case.text], beam_size=case.beam_size)[0].best
        if best.ids == case.ids:
            cases.append(msgspec.structs.replace(case, score=best.score or 0.0))
    return tuple(cases)


def _try_beams(translator: Translator, examples: Sequence[_Candidate]) -> None:
    """Add translations by beam search, and their margins."""
    options = translator.defaults
    goal = MARGIN * score_tolerance(translator.bundle.manifest)
    beams = [translation.best for translation in translator.translate([example.text for example in examples])]
    sources, outputs = [example.source for example in examples], [best.ids for best in beams]
    margins = beam_margins(translator.session, sources, outputs, options, [goal * factor for factor in FACTORS])
    for example, best, margin in zip(examples, beams, margins, strict=True):
        example.best[options.beam_size], example.margin[options.beam_size] = best, margin


def _case(example: _Candidate, beam_size: int) -> GoldenCase:
    best = example.best[beam_size]
    return GoldenCase(
        text=example.text,
        beam_size=beam_size,
        ids=best.ids,
        score=best.score or 0.0,
        source=example.source,
        output=best.text,
        margin=float(f"{example.margin[beam_size]:.3g}"),
    )
