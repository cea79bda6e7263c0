"""The choice among measured precisions: the rule, and the table that card and terminal show."""

from __future__ import annotations

import msgspec

from edgeformer.quality.bootstrap import Interval
from edgeformer_runtime.precision import Precision

TIE = 0.1
"""Times that differ by at most this fraction are equal: the load of a machine changes them by as much."""
COLUMNS = ("precision", "BLEU", "drop (95 % interval)", "MB", "ms", "result")


class PrecisionCandidate(msgspec.Struct, kw_only=True, frozen=True):
    """One precision with its measurements."""

    precision: Precision
    bytes: int
    """Size of all files."""
    bleu: float
    """Corpus BLEU, 0 … 100."""
    drop: float
    """BLEU of fp32 minus this BLEU."""
    drop_interval: Interval
    """Confidence interval of the drop, by paired bootstrap over the sentences."""
    milliseconds: float
    """Median time per sentence, one at a time."""


class PrecisionChoice(msgspec.Struct, kw_only=True, frozen=True):
    """All candidates, and what decides between them."""

    candidates: tuple[PrecisionCandidate, ...]
    """fp32 first, which is always admissible."""
    failed: dict[Precision, str]
    """Precisions that the model cannot have, with the reason as a sentence."""
    max_bleu_drop: float
    """Quality budget, at least 0. A candidate is over it if the whole confidence interval of its drop is."""
    conditions: str
    """Text, search, engine and machine, as a sentence."""

    @property
    def chosen(self) -> PrecisionCandidate:
        """Of the fastest candidates within the budget, the smallest."""
        allowed = [candidate for candidate in self.candidates if not self._objection(candidate)]
        longest = (1 + TIE) * min(candidate.milliseconds for candidate in allowed)
        return min((entry for entry in allowed if entry.milliseconds <= longest), key=lambda entry: entry.bytes)

    def _objection(self, candidate: PrecisionCandidate) -> str:
        if candidate.precision in self.failed:
            return "failed"
        return "over budget" if candidate.drop_interval.low > self.max_bleu_drop else ""

    @property
    def notes(self) -> list[str]:
        """Explanation of the measurements and of the choice, a paragraph each."""
        notes = [
            f"{self.conditions} `drop` is fp32's BLEU minus this one, `ms` the median time of a sentence alone.",
            f"Chosen: {self.chosen.precision}, the smallest of those at most {TIE:.0%} slower than the fastest whose "
            f"drop is not shown to exceed {self.max_bleu_drop:g}.",
        ]
        if self.chosen.drop_interval.high > self.max_bleu_drop:
            notes.append("On other text its drop may exceed the budget; measure more sentences for more certainty.")
        return [*notes, *(f"{name} failed: {reason}" for name, reason in self.failed.items())]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """A row for each candidate, with the columns :data:`COLUMNS`."""
        return [
            (
                entry.precision,
                f"{entry.bleu:.2f}",
                f"{entry.drop:+.2f} ({entry.drop_interval:+.2f})",
                f"{entry.bytes / 1e6:.2f}",
                f"{entry.milliseconds:#.3g}",
                "chosen" if entry is self.chosen else self._objection(entry),
            )
            for entry in self.candidates
        ]
