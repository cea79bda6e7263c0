"""The choice among measured precisions: what was measured, the rule, and the table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from edgeformer.quality.bootstrap import Interval
from edgeformer_runtime.precision import Precision

Objective = Literal["latency", "size"]
TIE = 0.1
"""Times that differ by at most this fraction are equal: the load of a machine changes them by as much from one run to
the next."""
COLUMNS = ("precision", "BLEU", "drop (95 % interval)", "same", "MB", "ms", "× fp32", "result")


class Candidate(msgspec.Struct, kw_only=True, frozen=True):
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
    identical: int
    """Number of sentences with the same translation as fp32."""
    milliseconds: float
    """Median time per sentence, one at a time."""
    ratio: float
    """Median of the ratios to fp32's time for the same sentence in the same round."""


class Choice(msgspec.Struct, kw_only=True, frozen=True):
    """All candidates, the chosen one, and how they were measured."""

    chosen: Precision
    max_bleu_drop: float
    """Quality budget, in BLEU."""
    optimize: Objective
    """The quantity that is minimized within the budget."""
    candidates: tuple[Candidate, ...]
    """fp32 first."""
    failed: dict[Precision, str]
    """Precisions that the model cannot have, also those of candidates that are too far from it, with the reason as a
    sentence."""
    text: str
    """Name of the text that was translated."""
    sentences: int
    """Number of sentences translated."""
    too_long: int
    """Number of sentences left out because they have more tokens than the model accepts."""
    beam_size: int
    """Hypotheses kept per sentence, for both quality and time."""
    threads: int
    """CPU threads per operator; 0 for as many as are useful for a model of its size."""
    bleu_signature: str
    """sacreBLEU's signature."""
    machine: str
    """Processor and system."""
    engine: str
    """The engine and its version."""

    def without(self, precision: Precision, reason: str) -> Choice:
        """Choose again without a precision."""
        failed = {**self.failed, precision: reason}
        chosen = choose(self.candidates, self.max_bleu_drop, self.optimize, failed)
        return msgspec.structs.replace(self, failed=failed, chosen=chosen)

    @property
    def notes(self) -> list[str]:
        """How the figures were measured and how the precision was chosen, a paragraph each."""
        search = "greedy search" if self.beam_size == 1 else f"beam {self.beam_size}"
        threads = {0: "as many threads as are useful", 1: "1 thread"}.get(self.threads, f"{self.threads} threads")
        rule = (
            f"the smallest of those at most {TIE:.0%} slower than the fastest"
            if self.optimize == "latency"
            else "the smallest"
        )
        chosen = next(entry for entry in self.candidates if entry.precision == self.chosen)
        notes = [
            f"Measured on {self.text}, {self.sentences:,} sentences, {search}, {threads}; BLEU {self.bleu_signature}. "
            "`drop` is fp32's BLEU minus this one, `same` the share of sentences with fp32's translation. `ms` is the "
            "median time of a sentence alone, `× fp32` the median ratio to fp32's time for the same sentence "
            f"in the same round. {self.engine} on {self.machine}.",
            f"Chosen: {self.chosen}, {rule} whose measured drop is at most {self.max_bleu_drop:g}.",
        ]
        if chosen.drop_interval.high > self.max_bleu_drop:
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
                f"{entry.identical / self.sentences:.0%}",
                f"{entry.bytes / 1e6:.2f}",
                f"{entry.milliseconds:#.3g}",
                f"{entry.ratio:.2f}",
                self._result(entry),
            )
            for entry in self.candidates
        ]

    def _result(self, entry: Candidate) -> str:
        if entry.precision in self.failed:
            return "failed"
        if entry.drop > self.max_bleu_drop:
            return "over budget"
        return "chosen" if entry.precision == self.chosen else ""


def choose(
    candidates: Sequence[Candidate], max_drop: float, optimize: Objective, failed: Collection[Precision] = ()
) -> Precision:
    """Choose among the candidates whose measured drop is within the budget.

    A drop counts as measured. If every drop within the noise were accepted, a short text would admit any candidate; if
    the whole confidence interval had to be within the budget, a text of usual length would admit none.

    Args:
        candidates: measured candidates; one at least, fp32, is always admissible.
        max_drop: quality budget, in BLEU, at least 0.
        optimize: what to minimize. For ``latency``, candidates whose times are equal (:data:`TIE`) are judged by size.
        failed: those that the model cannot have.
    """
    allowed = [entry for entry in candidates if entry.drop <= max_drop and entry.precision not in failed]
    if optimize == "latency":
        fastest = min(entry.ratio for entry in allowed)
        allowed = [entry for entry in allowed if entry.ratio <= (1 + TIE) * fastest]
    return min(allowed, key=lambda entry: (entry.bytes, entry.ratio)).precision
