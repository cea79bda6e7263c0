"""Golden examples: a few inputs with the outputs that the bundle gave where it was made, to be run again on the
device."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from edgeformer_runtime.bundle import Bundle
from edgeformer_runtime.contract import GOLDEN_FILE
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.manifest import Precision
from edgeformer_runtime.translator import Translator

SCORE_TOLERANCE: dict[Precision, float] = {"fp32": 1e-4, "int8": 5e-2, "int8-block": 5e-2, "int4": 5e-2}
"""Largest difference of a score. Kernels of another processor add up in another order; where activations are integers,
such a difference may move one to the next of its 256 levels."""


class GoldenCase(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One input and what it must give."""

    text: str
    """Source text."""
    beam_size: int
    """Hypotheses kept; 1 is greedy search."""
    ids: tuple[int, ...]
    """Token ids of the best hypothesis."""
    score: float
    """Its normalised log-probability."""


class GoldenResult(msgspec.Struct, kw_only=True, frozen=True):
    """How many golden examples were run, and what differed."""

    cases: int
    """Examples run."""
    max_score_difference: float
    """Largest difference of a score among those with the right tokens."""
    problems: tuple[str, ...]
    """One sentence for each example that failed."""


def make_golden(translator: Translator, texts: Sequence[str]) -> bytes:
    """Content of the golden file: greedy and default beam output of each text."""
    cases = []
    for beam_size in sorted({1, translator.options().beam_size}):
        for text, translation in zip(texts, translator.translate(texts, beam_size=beam_size), strict=True):
            best = translation.best
            cases.append(GoldenCase(text=text, beam_size=beam_size, ids=best.ids, score=best.score or 0.0))
    return msgspec.json.format(msgspec.json.encode(cases), indent=1)


def golden_cases(bundle: Bundle) -> tuple[GoldenCase, ...]:
    """The bundle's golden examples.

    Raises:
        BundleError: the file of examples cannot be parsed.
    """
    try:
        cases = msgspec.json.decode(bundle.file(GOLDEN_FILE).read_bytes(), type=tuple[GoldenCase, ...])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BundleError(f"`{GOLDEN_FILE}` cannot be parsed ({error}); export the bundle again.") from None
    if not cases:
        raise BundleError(f"`{GOLDEN_FILE}` holds no example; export the bundle again.")
    return cases


def check_golden(translator: Translator) -> GoldenResult:
    """Run the golden examples: tokens must be the same, scores within :data:`SCORE_TOLERANCE`.

    Raises:
        BundleError: the file of examples cannot be parsed.
    """
    cases = golden_cases(translator.bundle)
    precision = translator.bundle.manifest.precision.values()
    tolerance = max(SCORE_TOLERANCE[name] for name in precision)
    problems, largest = [], 0.0
    for number, case in enumerate(cases, 1):
        best = translator.translate([case.text], beam_size=case.beam_size)[0].best
        if best.ids != case.ids:
            where = f"example {number} (beam {case.beam_size}), token {first_difference(best.ids, case.ids) + 1}"
            problems.append(f"{where} differs: {case.text!r} gave {best.text!r}")
            continue
        difference = abs((best.score or 0.0) - case.score)
        largest = max(largest, difference)
        if not difference <= tolerance:
            problems.append(
                f"example {number} (beam {case.beam_size}) has score {best.score:.6f} instead of {case.score:.6f}"
            )
    if translator.bundle.has_attention:
        problems += _attention_problems(translator, cases[0].text)
    return GoldenResult(cases=len(cases), max_score_difference=largest, problems=tuple(problems))


def _attention_problems(translator: Translator, text: str) -> list[str]:
    """Open the attention graph, which nothing else here needs, and look at what it yields."""
    (attention,) = translator.attention([text], translator.translate([text], beam_size=1))
    sums = attention.weights.sum(axis=1)
    return [] if np.allclose(sums, 1, atol=1e-3) else ["attention weights of example 1 do not add up to one"]


def first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    """Index of the first token that differs; the shorter length if one begins the other."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))
