"""Which of several measured candidates to take: the rules, and nothing but them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from edgeformer_export.auto.sensitivity import Sensitivity
from edgeformer_runtime.bundle.manifest import Precision

Objective = Literal["latency", "size"]
MIN_TIE = 0.1
"""Latencies that differ by less than this part are equal, whatever the measured noise."""


class Latency(msgspec.Struct, kw_only=True, frozen=True):
    """Time of one sentence at a time."""

    mean_ms: float
    """Mean over the sentences, of the fastest of all rounds of each; candidates are compared by it."""
    median_ms: float
    """Median over them."""
    p25_ms: float
    """First quartile."""
    p75_ms: float
    """Third quartile."""
    differ_alone: int
    """Sentences whose translation alone is another one than among others."""


class Quality(msgspec.Struct, kw_only=True, frozen=True):
    """Scores of one candidate on the text that all are compared on."""

    bleu: float
    """Corpus BLEU, 0 … 100."""
    chrf: float
    """chrF2, 0 … 100."""
    drop: float
    """BLEU of fp32 less this BLEU."""
    drop_error: float
    """Half of the interval in which the drop lies with 95 % certainty, by paired bootstrap."""
    identical: int
    """Sentences with the same translation as fp32's."""


class Measured(msgspec.Struct, kw_only=True, frozen=True):
    """One candidate with all figures."""

    name: str
    """What tables call it."""
    precision: Precision
    """The precision that it is exported with."""
    kept: dict[str, Precision]
    """Layers that are kept in another one."""
    quality: Quality
    """On the text."""
    latency: Latency
    """On this machine."""
    bytes: int
    """Bytes of its files."""
    refused: str = ""
    """Why it is never chosen, as a sentence; empty if it may be."""
    in_budget: bool = False
    """Whether its drop is small enough."""
    on_front: bool = False
    """Whether no other candidate is as good in quality, latency and size and better in one of them."""
    chosen: bool = False
    """Whether it is taken."""


class Choice(msgspec.Struct, kw_only=True, frozen=True):
    """All candidates with their figures, and how they were measured."""

    chosen: str
    """Name of the candidate that was taken."""
    max_bleu_drop: float
    """Budget, in BLEU."""
    optimise: Objective
    """What to be best in, inside the budget."""
    candidates: list[Measured]
    """Figures, fp32 first."""
    remarks: list[str]
    """What the figures do not say by themselves."""
    text: str
    """What was translated."""
    sentences: int
    """Sentences translated."""
    too_long: int
    """Sentences left out, since the model does not take so many tokens."""
    beam_size: int
    """Hypotheses kept, for quality and for latency."""
    threads: int
    """CPU threads of one operator; 0 for all."""
    bleu_signature: str
    """sacreBLEU's signature."""
    chrf_signature: str
    """sacreBLEU's signature."""
    machine: str
    """Processor and system."""
    engine: str
    """The engine and its version."""
    clock: str
    """What latencies are measured with."""
    noise: float
    """Relative difference of latencies that were measured twice."""
    tie: float
    """Relative difference below which latencies are equal."""
    previous: str | None
    """What was chosen before from the same settings, and stays unless another is clearly better; none if nothing."""
    sensitivity: dict[Precision, list[Sensitivity]]
    """For precisions of which there are mixed candidates, all layers, the most sensitive first."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What to choose by."""

    max_drop: float
    """Budget, in BLEU."""
    optimise: Objective = "latency"
    """What to be best in, inside the budget."""
    noise: float = 0.0
    """Relative difference of latencies that were measured twice."""
    previous: str | None = None
    """What was chosen before, from the same settings; none if nothing was."""

    @property
    def tie(self) -> float:
        """The relative difference below which latencies are equal."""
        return max(MIN_TIE, self.noise)


def decide(candidates: Sequence[Measured], rule: Rule) -> list[Measured]:
    """Mark what is in the budget, on the Pareto front, and chosen; see :func:`best`."""
    chosen = best(candidates, rule, rule.tie)
    return [
        msgspec.structs.replace(
            one,
            in_budget=one.quality.drop <= rule.max_drop,
            on_front=not any(_dominates(other, one) for other in candidates),
            chosen=one.name == chosen,
        )
        for one in candidates
    ]


def best(candidates: Sequence[Measured], rule: Rule, equal: float) -> str:
    """The name of the fastest or the smallest inside the budget.

    Latencies that are larger than the smallest by no more than ``equal`` are equal. Of equals, the smallest, then that
    with the smallest drop, then the first name is best: sizes do not change with noise. What was chosen before stays as
    long as it is larger by no more than twice that.

    Args:
        candidates: what was measured; one of them may be chosen and has no drop.
        rule: what to choose by.
        equal: relative difference.
    """
    allowed = [one for one in candidates if not one.refused and one.quality.drop <= rule.max_drop]
    if rule.optimise == "latency":
        shortest = min(one.latency.mean_ms for one in allowed)
        ties = [one for one in allowed if one.latency.mean_ms <= shortest * (1 + equal)]
        kept = [one for one in allowed if one.latency.mean_ms <= shortest * (1 + 2 * equal)]
        if rule.previous in [one.name for one in kept]:
            return str(rule.previous)
    else:
        smallest = min(one.bytes for one in allowed)
        ties = [one for one in allowed if one.bytes == smallest]
    return min(ties, key=lambda one: (one.bytes, one.quality.drop, one.name)).name


def _dominates(one: Measured, other: Measured) -> bool:
    mine, yours = _losses(one), _losses(other)
    return mine != yours and all(a <= b for a, b in zip(mine, yours, strict=True))


def _losses(one: Measured) -> tuple[float, float, int]:
    return one.quality.drop, one.latency.mean_ms, one.bytes


def remarks(candidates: Sequence[Measured], rule: Rule) -> list[str]:
    """What a table does not say by itself, a sentence each.

    Args:
        candidates: from :func:`decide`.
        rule: as there.
    """
    reference = next(one for one in candidates if one.name == "fp32")
    lines = [
        f"{one.name} is slower than fp32 on this machine: {ratio:.2f} times its time."
        for one in candidates
        if (ratio := one.latency.mean_ms / reference.latency.mean_ms) > 1 + rule.tie
    ]
    lines += [f"{one.name} is never chosen: {one.refused}" for one in candidates if one.refused]
    taken = next(one for one in candidates if one.chosen)
    drop, error = taken.quality.drop, taken.quality.drop_error
    if drop + error > rule.max_drop:
        lines.append(
            f"The drop of {taken.name} is {drop:+.2f} ± {error:.2f}, so the budget of {rule.max_drop:g} may be missed "
            "on other text; more sentences tell more."
        )
    others = {best(candidates, rule, rule.tie + error) for error in (-rule.noise, rule.noise)} - {taken.name}
    if others:
        lines.append(
            f"A close call: with times off by the measured noise, {' or '.join(sorted(others))} would be chosen. With "
            "--resume the measurements and the choice stay as they are."
        )
    return lines
