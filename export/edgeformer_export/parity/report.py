"""Comparison of a bundle with the PyTorch model that it was exported from, and whether they match closely enough."""

from __future__ import annotations

from math import isfinite

import msgspec

from edgeformer_runtime.precision import PRECISIONS, Precision

ROUNDING_FACTOR = 4.0
"""Logits in fp32 may differ from PyTorch's by this many times the error of PyTorch's own rounding."""

MAX_EMPTY = 0.1
"""Fraction of empty outputs above which a comparison is doubtful."""


class LogitParity(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Comparison of PyTorch's teacher-forced logits with the bundle's step-by-step logits."""

    positions: int
    """Number of target positions compared."""
    max_difference: float
    """Largest absolute difference of a logit."""
    mean_difference: float
    """Mean absolute difference of the logits."""
    top1_agreement: float
    """Fraction of positions with the same most probable token."""
    largest: float
    """Largest absolute value of PyTorch's logits."""
    worst_sentence: int
    """Zero-based index of the sentence with the largest difference."""
    worst_step: int
    """Zero-based step of the largest difference."""
    torch_rounding: float = 0.0
    """Largest absolute difference of PyTorch's own logits between float32 and float64; 0 if it was not measured."""


class Divergence(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The first step at which the two outputs of a sentence differ."""

    sentence: int
    """Zero-based index of the sentence."""
    step: int
    """Zero-based step."""
    torch_token: int | None
    """PyTorch's token at that step; ``None`` if its output had ended."""
    bundle_token: int | None
    """The bundle's token at that step; ``None`` if its output had ended."""


class TokenParity(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Comparison of PyTorch's output with the bundle's, using the same search."""

    beam_size: int
    """Hypotheses kept per sentence; 1 is greedy search."""
    sentences: int
    """Number of sentences compared."""
    identical: int
    """Number of sentences with identical tokens."""
    first: Divergence | None
    """The first difference; ``None`` if all sentences match."""
    empty: int = 0
    """Number of sentences for which PyTorch's output is empty."""


class ParityReport(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """All comparisons of a bundle with its PyTorch model."""

    precision: Precision
    """Lowest precision among the graphs, which determines the tolerances."""
    logits: LogitParity
    """Comparison of logits on PyTorch's greedy output."""
    tokens: tuple[TokenParity, ...]
    """Comparison of output, one entry per beam size."""
    attention_difference: float | None = None
    """Largest absolute difference of an attention weight on PyTorch's greedy output; ``None`` if the model has no
    attention weights."""

    @property
    def problems(self) -> list[str]:
        """One sentence for each exceeded tolerance of :data:`~edgeformer_runtime.precision.PRECISIONS`; empty if the
        bundle matches the model."""
        if self.logits.positions == 0:
            return ["there was nothing to compare"]
        problems = []
        if not isfinite(self.logits.max_difference):
            problems.append(
                f"logits are not finite, first at sentence {self.logits.worst_sentence + 1}, "
                f"step {self.logits.worst_step + 1}"
            )
        if self.attention_difference is not None and not isfinite(self.attention_difference):
            problems.append("attention weights are not finite")
        return [*problems, *self._difference_problems(), *self._output_problems()]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Results of the comparison for people: names and values."""
        logits = self.logits
        return [
            ("precision", self.precision),
            ("target positions", f"{logits.positions:,}"),
            ("largest logit difference", f"{logits.max_difference:.2e}"),
            ("mean logit difference", f"{logits.mean_difference:.2e}"),
            ("same most probable token", f"{logits.top1_agreement:.2%}"),
            *(
                (
                    f"identical output, {'greedy' if entry.beam_size == 1 else f'beam {entry.beam_size}'}",
                    f"{entry.identical:,} of {entry.sentences:,}",
                )
                for entry in self.tokens
            ),
        ]

    @property
    def warnings(self) -> list[str]:
        """Reasons why the comparison is weaker than it looks, in sentences; usually empty."""
        return [
            f"{entry.empty} of {entry.sentences} outputs compared with beam size {entry.beam_size} are empty, so that "
            "their agreement means little; compare on text that the model translates."
            for entry in self.tokens
            if entry.empty > MAX_EMPTY * entry.sentences
        ]

    def _difference_problems(self) -> list[str]:
        tolerances, logits, problems = PRECISIONS[self.precision].tolerances, self.logits, []
        where = f"sentence {logits.worst_sentence + 1}, step {logits.worst_step + 1}"
        if not logits.top1_agreement >= tolerances.top1_agreement:
            problems.append(
                f"the most probable token agrees at {logits.top1_agreement:.1%} of positions, less than "
                f"{tolerances.top1_agreement:.0%}; logits differ most, by {logits.max_difference:.3g}, at {where}"
            )
        bound = max(tolerances.logits * max(1.0, logits.largest / 10), ROUNDING_FACTOR * logits.torch_rounding)
        if not logits.max_difference <= bound:
            problems.append(f"logits differ by up to {logits.max_difference:.3g}, more than {bound:.1e}, at {where}")
        if (self.attention_difference or 0.0) > tolerances.attention:
            problems.append(
                f"attention weights differ by up to {self.attention_difference:.3g}, more than "
                f"{tolerances.attention:.0e}"
            )
        return problems

    def _output_problems(self) -> list[str]:
        if not PRECISIONS[self.precision].tolerances.identical_output:
            return []
        return [
            f"beam {entry.beam_size}: {entry.sentences - entry.identical} of {entry.sentences} outputs differ, first "
            f"sentence {first.sentence + 1} at step {first.step + 1}: torch has token {first.torch_token}, the bundle "
            f"{first.bundle_token}"
            for entry in self.tokens
            if (first := entry.first) is not None
        ]
