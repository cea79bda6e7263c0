"""The rules for choosing among measured candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from edgeformer_runtime.bundle.choice import Measured, Objective

MIN_TIE = 0.1
"""Latencies whose relative difference is below this are treated as equal, regardless of the measured noise."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Criteria for the choice."""

    max_drop: float
    """Quality budget: maximum drop in BLEU."""
    optimize: Objective = "latency"
    """What to minimize within the budget."""
    noise: float = 0.0
    """Relative difference between repeated measurements of latency."""
    previous: str | None = None
    """Name of the candidate chosen earlier with the same settings; ``None`` if there is no earlier choice."""

    @property
    def tie(self) -> float:
        """Relative difference below which latencies are treated as equal."""
        return max(MIN_TIE, self.noise)


def decide(candidates: Sequence[Measured], rule: Rule) -> list[Measured]:
    """Mark the candidates that are within the budget, on the Pareto front, and chosen; see :func:`best`."""
    chosen = best(candidates, rule, rule.tie)
    return [
        msgspec.structs.replace(
            candidate,
            in_budget=candidate.quality.drop <= rule.max_drop,
            on_front=not any(_dominates(rival, candidate) for rival in candidates),
            chosen=candidate.name == chosen,
        )
        for candidate in candidates
    ]


def best(candidates: Sequence[Measured], rule: Rule, equal: float) -> str:
    """Return the name of the fastest or smallest candidate within the budget.

    Latencies that exceed the lowest by at most ``equal`` are tied. Ties are resolved by size, which does not vary with
    noise, then by the smallest drop, then by name. An earlier choice is kept as long as its latency exceeds the lowest
    by at most twice ``equal``.

    Args:
        candidates: measured candidates; at least one of them is admissible and has no drop.
        rule: criteria for the choice.
        equal: relative difference up to which latencies are tied.
    """
    allowed = [row for row in candidates if not row.refused and row.quality.drop <= rule.max_drop]
    if rule.optimize == "latency":
        shortest = min(row.latency.mean_ms for row in allowed)
        ties = [row for row in allowed if row.latency.mean_ms <= shortest * (1 + equal)]
        kept = [row.name for row in allowed if row.latency.mean_ms <= shortest * (1 + 2 * equal)]
        if rule.previous is not None and rule.previous in kept:
            return rule.previous
    else:
        smallest = min(row.bytes for row in allowed)
        ties = [row for row in allowed if row.bytes == smallest]
    return min(ties, key=lambda row: (row.bytes, row.quality.drop, row.name)).name


def _dominates(rival: Measured, candidate: Measured) -> bool:
    theirs, mine = _losses(rival), _losses(candidate)
    return theirs != mine and all(a <= b for a, b in zip(theirs, mine, strict=True))


def _losses(candidate: Measured) -> tuple[float, float, int]:
    return candidate.quality.drop, candidate.latency.mean_ms, candidate.bytes


def remarks(candidates: Sequence[Measured], rule: Rule) -> list[str]:
    """List remarks on what the table does not show by itself, one sentence each.

    Args:
        candidates: result of :func:`decide`.
        rule: the rule passed to :func:`decide`.
    """
    reference = next(row for row in candidates if row.name == "fp32")
    lines = [
        f"{row.name} is slower than fp32 on this machine: it takes {ratio:.2f} times as long."
        for row in candidates
        if (ratio := row.latency.mean_ms / reference.latency.mean_ms) > 1 + rule.tie
    ]
    lines += [f"{row.name} is never chosen: {row.refused}" for row in candidates if row.refused]
    chosen = next(row for row in candidates if row.chosen)
    drop, error = chosen.quality.drop, chosen.quality.drop_error
    if drop + error > rule.max_drop:
        lines.append(
            f"The drop of {chosen.name} is {drop:+.2f} ± {error:.2f}, so it may exceed the budget of {rule.max_drop:g} "
            "on other text; measure more sentences to be surer."
        )
    rivals = {best(candidates, rule, rule.tie + error) for error in (-rule.noise, rule.noise)} - {chosen.name}
    if rivals:
        lines.append(
            f"A close call: with times off by the measured noise, {' or '.join(sorted(rivals))} would be chosen. With "
            "--resume, the measurements and the choice stay as they are."
        )
    return lines
