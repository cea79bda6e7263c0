"""How a bundle compares with the PyTorch model that it was exported from, and whether that is close enough."""

from __future__ import annotations

from math import isfinite

import msgspec

from edgeformer_runtime.precision import PRECISIONS, Precision


class LogitParity(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """PyTorch's teacher-forced logits against the bundle's step-by-step logits."""

    positions: int
    """Target positions compared."""
    max_difference: float
    """Largest absolute difference of a logit."""
    mean_difference: float
    """Mean absolute difference."""
    top1_agreement: float
    """Share of positions with the same most probable token."""
    largest: float
    """Largest absolute value of PyTorch's logits."""
    worst_sentence: int
    """Index of the sentence with the largest difference, from 0."""
    worst_step: int
    """Step of that difference, from 0."""


class Divergence(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The first step at which two outputs of a sentence differ."""

    sentence: int
    """Index of the sentence, from 0."""
    step: int
    """Step, from 0."""
    torch_token: int | None
    """PyTorch's token there; ``None`` if its output had ended."""
    bundle_token: int | None
    """The bundle's token there; ``None`` if its output had ended."""


class TokenParity(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """PyTorch's output against the bundle's under the same search."""

    beam_size: int
    """Hypotheses kept; 1 is greedy search."""
    sentences: int
    """Sentences compared."""
    identical: int
    """Sentences with the same tokens."""
    first: Divergence | None
    """The first sentence that differs; ``None`` if all agree."""


class ParityReport(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Everything compared."""

    precision: Precision
    """Lowest precision of the graphs, which sets the tolerances."""
    logits: LogitParity
    """Logits over PyTorch's greedy output."""
    tokens: tuple[TokenParity, ...]
    """One entry per beam size."""
    attention_difference: float | None = None
    """Largest absolute difference of an attention weight over PyTorch's greedy output; ``None`` if the model has no
    attention weights."""

    @property
    def problems(self) -> list[str]:
        """One sentence for each tolerance of :data:`~edgeformer_runtime.precision.PRECISIONS` that is exceeded; empty
        if the bundle is the model."""
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

    def _difference_problems(self) -> list[str]:
        tolerances, logits, problems = PRECISIONS[self.precision].tolerances, self.logits, []
        where = f"sentence {logits.worst_sentence + 1}, step {logits.worst_step + 1}"
        if not logits.top1_agreement >= tolerances.top1_agreement:
            problems.append(
                f"the most probable token agrees at {logits.top1_agreement:.1%} of positions, less than "
                f"{tolerances.top1_agreement:.0%}; logits differ most, by {logits.max_difference:.3g}, at {where}"
            )
        bound = tolerances.logits * max(1.0, logits.largest / 10)
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
