"""The rules for choosing among measured candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from edgeformer_export.auto.comparisons import MIN_TIE, Comparisons, End
from edgeformer_runtime.bundle.choice import Measured, Objective


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Criteria for the choice."""

    max_drop: float
    """Quality budget: maximum drop in BLEU."""
    optimize: Objective = "latency"
    """What to minimize within the budget."""
    previous: str | None = None
    """Name of the candidate chosen earlier with the same settings; ``None`` if there is no earlier choice."""


@dataclass(frozen=True)
class Selection:
    """The chosen candidate."""

    name: str
    """Its name."""
    reason: str
    """Why it was chosen, in a few sentences."""


def decide(candidates: Sequence[Measured], rule: Rule, comparisons: Comparisons) -> tuple[list[Measured], str]:
    """Mark the candidates that are within the budget, on the Pareto front, and chosen; see :func:`select`.

    A drop counts as measured. If every drop within the noise were accepted, a short text would admit any candidate; if
    the whole confidence interval had to be within the budget, a text of usual length would admit none.

    Args:
        candidates: measured candidates, fp32 first.
        rule: criteria for the choice.
        comparisons: pairwise comparisons of the candidates.

    Returns:
        The candidates, and the reason for the choice.
    """
    candidates = [replace(entry, in_budget=entry.quality.drop <= rule.max_drop) for entry in candidates]
    allowed = [entry for entry in candidates if entry.admissible]
    selection, fastest = select(allowed, rule, comparisons), _fastest(allowed)
    decided = []
    for entry in candidates:
        ratio = comparisons.ratio(entry.name, fastest.name)
        interval = None if entry is fastest else ratio.interval
        dominated = any(_dominates(rival, entry, comparisons) for rival in allowed)
        chosen = entry.name == selection.name
        decided.append(
            replace(
                entry,
                latency=replace(entry.latency, relative=ratio.value, relative_interval=interval),
                on_front=chosen or (entry.admissible and not dominated),
                chosen=chosen,
            )
        )
    return decided, selection.reason


def select(allowed: Sequence[Measured], rule: Rule, comparisons: Comparisons, end: End = "median") -> Selection:
    """Choose the fastest or smallest of the admissible candidates.

    Candidates that are not slower than the one with the lowest median latency, by
    :meth:`~edgeformer_export.auto.comparisons.Comparisons.is_slower`, are equally fast. Of these, the ones whose BLEU
    is significantly below the highest are dropped, and of the rest, the smallest is chosen, then the one with the
    smallest drop, then the first by name. An earlier choice is kept as long as it is not dropped and its latency
    exceeds the lowest by at most twice :data:`~edgeformer_export.auto.comparisons.MIN_TIE`.

    Args:
        allowed: admissible candidates; at least one.
        rule: criteria for the choice.
        comparisons: pairwise comparisons of the candidates.
        end: the end of the intervals of latency ratios that decides; other than ``median`` to see whether the choice
            depends on it.
    """
    equal, fastest = _equal(allowed, rule, comparisons, end), _fastest(allowed).name
    best = max(equal, key=lambda entry: entry.quality.bleu)
    as_good = [entry for entry in equal if not comparisons.is_worse(entry.name, best.name)]
    chosen = min(as_good, key=lambda entry: (entry.bytes, entry.quality.drop, entry.name))
    if rule.optimize == "latency":
        near = [entry for entry in allowed if comparisons.ratio(entry.name, fastest).at(end) <= 1 + 2 * MIN_TIE]
        for entry in [*as_good, *near]:
            if entry.name == rule.previous != chosen.name and not comparisons.is_worse(entry.name, best.name):
                return Selection(entry.name, f"{entry.name} was chosen before, and no candidate is clearly better.")

    what = "fast" if rule.optimize == "latency" else "small"
    reasons = [f"{_list(equal)} are equally {what}." if len(equal) > 1 else f"{chosen.name} is the {what}est."]
    if worse := [entry for entry in equal if entry not in as_good]:
        reasons.append(f"BLEU is significantly lower with {_list(worse)} than with {best.name}.")
    if len(as_good) > 1:
        is_smallest = sum(entry.bytes == chosen.bytes for entry in as_good) == 1
        merit = "is the smallest" if is_smallest else "has the smallest drop of the smallest"
        reasons.append(f"Of {_list(as_good)}, whose BLEU does not differ significantly, {chosen.name} {merit}.")
    return Selection(chosen.name, " ".join(reasons))


def remarks(candidates: Sequence[Measured], rule: Rule, comparisons: Comparisons) -> list[str]:
    """List remarks on what the table does not show by itself, one sentence each.

    Args:
        candidates: result of :func:`decide`.
        rule: the rule passed to :func:`decide`.
        comparisons: the comparisons passed to :func:`decide`.
    """
    reference = candidates[0].name
    lines = [f"{entry.name} is inadmissible: {entry.refused}" for entry in candidates if entry.refused]
    lines += [
        f"{entry.name} is slower than fp32 on this machine: it takes {ratio.value:.2f} times as long "
        f"({ratio.interval:.2f})."
        for entry in candidates
        if comparisons.is_slower(entry.name, reference)
        for ratio in [comparisons.ratio(entry.name, reference)]
    ]
    return [*lines, *_doubts(candidates, rule, comparisons)]


def _doubts(candidates: Sequence[Measured], rule: Rule, comparisons: Comparisons) -> list[str]:
    """List what other sentences or other rounds might change."""
    lines = []
    chosen = next(entry for entry in candidates if entry.chosen)
    drop = comparisons.deficit(chosen.name, candidates[0].name)
    if drop.high > rule.max_drop:
        lines.append(
            f"The drop of {chosen.name} may exceed the budget of {rule.max_drop:g} on other text: its interval is "
            f"{drop:+.2f}. Measure more sentences to be surer."
        )
    near = [
        entry
        for entry in candidates
        if not entry.in_budget
        and not entry.refused
        and comparisons.deficit(entry.name, candidates[0].name).low <= rule.max_drop
    ]
    if near:
        lines.append(
            f"Over the budget as measured, though perhaps not on other text: {_list(near)}. Measure more sentences to "
            "be surer."
        )
    ends: tuple[End, ...] = ("low", "high")
    allowed = [entry for entry in candidates if entry.admissible]
    rivals = {select(allowed, rule, comparisons, end).name for end in ends} - {chosen.name}
    if rivals:
        lines.append(
            f"A close call: with latencies at the ends of their intervals, {' or '.join(sorted(rivals))} would be "
            "chosen. With --resume, the measurements and the choice stay as they are."
        )
    return lines


def _fastest(candidates: Sequence[Measured]) -> Measured:
    return min(candidates, key=lambda entry: (entry.latency.median_ms, entry.name))


def _equal(allowed: Sequence[Measured], rule: Rule, comparisons: Comparisons, end: End) -> list[Measured]:
    """Return the candidates that no other is faster than, or smaller."""
    if rule.optimize == "latency":
        fastest = _fastest(allowed).name
        return [entry for entry in allowed if not comparisons.is_slower(entry.name, fastest, end)]
    smallest = min(entry.bytes for entry in allowed)
    return [entry for entry in allowed if entry.bytes == smallest]


def _dominates(rival: Measured, entry: Measured, comparisons: Comparisons) -> bool:
    """Whether a rival is better in quality, latency or size and not worse in another of them."""

    def is_below(first: Measured, second: Measured) -> tuple[bool, bool, bool]:
        return (
            comparisons.is_worse(first.name, second.name),
            comparisons.is_slower(first.name, second.name),
            first.bytes > second.bytes,
        )

    return any(is_below(entry, rival)) and not any(is_below(rival, entry))


def _list(entries: Sequence[Measured]) -> str:
    """Format names: ``a, b and c``."""
    names = [entry.name for entry in entries]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
