"""Is the bundle the model? Step logits against teacher-forced torch logits, and output token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from edgeformer.model.base import EncoderDecoder
from edgeformer.model.session import TorchSession
from edgeformer_runtime.attention import attention_weights
from edgeformer_runtime.decoding.forced_steps import Pair, forced_batch, forced_steps
from edgeformer_runtime.decoding.loop import decode
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.decoding.session import AttentiveSession, StepSession
from edgeformer_runtime.selfcheck.golden import first_difference

BATCH = 32
MAX_LOGIT_DIFFERENCE = 1e-4
"""Bound for fp32 graphs, of logits up to 10: both sides compute in fp32, and differ in the order of additions and in
the last digits of tanh and exp. It grows with the largest logit, as rounding does; output must be equal at any size."""
MAX_HALF_LOGIT_DIFFERENCE = 5e-2
"""The same for fp16 graphs, whose every tensor is rounded to 11 bits: a logit of 10 by up to 0.004, and what it is made
of on the way. Models at hand differed by up to 0.013. Output may differ where two tokens are that close."""
MAX_ATTENTION_DIFFERENCE = {"fp32": 1e-4, "fp16": 1e-2}
"""Bound of an attention weight, likewise; fp16 models at hand differed by up to 0.002."""
MIN_TOP1_AGREEMENT = 0.9
"""Bound for int8 graphs: share of teacher-forced positions with the same most probable token. A sound int8 model of a
trained network is well above; a dropped mask or a wrong weight is well below."""


@dataclass(frozen=True, kw_only=True)
class LogitParity:
    """Teacher-forced torch logits against step-by-step logits of the bundle."""

    positions: int
    """Target positions compared."""
    max_difference: float
    """Largest absolute difference of a logit."""
    mean_difference: float
    """Mean absolute difference."""
    top1_agreement: float
    """Share of positions with the same most probable token."""
    largest: float
    """Largest absolute value of torch's logits."""
    worst_sentence: int
    """Index of the sentence with the largest difference, from 0."""
    worst_step: int
    """Step of that difference, from 0."""


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """The first step at which two outputs of a sentence differ."""

    sentence: int
    """Index of the sentence, from 0."""
    step: int
    """Step, from 0."""
    torch_token: int | None
    """Torch's token there; none if its output had ended."""
    bundle_token: int | None
    """The bundle's token there; none if its output had ended."""


@dataclass(frozen=True, kw_only=True)
class TokenParity:
    """Output of torch against output of the bundle under the same search."""

    beam_size: int
    """Hypotheses kept; 1 is greedy search."""
    sentences: int
    """Sentences compared."""
    identical: int
    """Sentences with the same tokens."""
    first: Divergence | None
    """The first sentence that differs; none if all agree."""


@dataclass(frozen=True, kw_only=True)
class ParityReport:
    """Everything compared."""

    precision: str
    """Lowest precision of the graphs, which sets the bounds."""
    logits: LogitParity
    """Logits over torch's greedy output."""
    tokens: tuple[TokenParity, ...]
    """One entry per beam size."""
    attention_difference: float | None = None
    """Largest absolute difference of an attention weight over torch's greedy output; none if the model has none."""

    @property
    def problems(self) -> list[str]:
        """One sentence for each bound that is broken; empty if the bundle is the model."""
        problems, logits = [], self.logits
        if logits.positions == 0:
            return ["there was nothing to compare"]
        where = f"sentence {logits.worst_sentence + 1}, step {logits.worst_step + 1}"
        if not np.isfinite(logits.max_difference):
            problems.append(f"logits are not finite, first at {where}")
        if self.attention_difference is not None and not np.isfinite(self.attention_difference):
            problems.append("attention weights are not finite")
        if self.precision not in MAX_ATTENTION_DIFFERENCE:
            if not logits.top1_agreement >= MIN_TOP1_AGREEMENT:
                problems.append(
                    f"the most probable token agrees at {logits.top1_agreement:.1%} of positions, less than "
                    f"{MIN_TOP1_AGREEMENT:.0%}; logits differ most, by {logits.max_difference:.3g}, at {where}"
                )
            return problems
        bound = MAX_HALF_LOGIT_DIFFERENCE if self.precision == "fp16" else MAX_LOGIT_DIFFERENCE
        bound *= max(1.0, logits.largest / 10)
        if not logits.max_difference <= bound:
            problems.append(f"logits differ by up to {logits.max_difference:.3g}, more than {bound:.1e}, at {where}")
        bound = MAX_ATTENTION_DIFFERENCE[self.precision]
        if not (self.attention_difference or 0.0) <= bound:
            problems.append(f"attention weights differ by up to {self.attention_difference:.3g}, more than {bound:.0e}")
        if self.precision == "fp16":
            return problems
        problems += [
            f"beam {entry.beam_size}: {entry.sentences - entry.identical} of {entry.sentences} outputs differ, first "
            f"sentence {first.sentence + 1} at step {first.step + 1}: torch has token {first.torch_token}, the bundle "
            f"{first.bundle_token}"
            for entry in self.tokens
            if (first := entry.first) is not None
        ]
        return problems


def compare(
    model: EncoderDecoder,
    session: AttentiveSession,
    sources: Sequence[Sequence[int]],
    options: Sequence[DecodeOptions],
    precision: str,
    progress: Callable[[float], None] = lambda fraction: None,
    *,
    attention: bool = True,
) -> ParityReport:
    """Compare a model with a session on the same sources.

    Args:
        model: the torch model.
        session: the exported graphs.
        sources: source token ids, end token included.
        options: searches whose output to compare.
        precision: lowest precision of the graphs.
        progress: called with the fraction done, 0 … 1.
        attention: compare attention weights too, if the model has any.
    """
    special = session.special
    reference = TorchSession(model, special)
    total, done = (2 * len(options) + 2) * len(sources), 0

    def decoded(engine: StepSession, search: DecodeOptions) -> list[tuple[int, ...]]:
        nonlocal done
        output = []
        for start in range(0, len(sources), BATCH):
            block = sources[start : start + BATCH]
            output += [best.ids for best, *_ in decode(engine, block, search)]
            done += len(block)
            progress(done / total)
        return output

    tokens = [
        _compare_tokens(decoded(reference, search), decoded(session, search), search.beam_size) for search in options
    ]
    targets = decoded(reference, DecodeOptions(beam_size=1, return_scores=False))
    logits = compare_logits(model, session, list(zip(sources, targets, strict=True)))
    attention_difference = None
    if attention and model.has_attention:
        pairs = [
            (source, [*target, special.eos][: session.max_target_length])
            for source, target in zip(sources, targets, strict=True)
        ]
        attention_difference = _attention_difference(reference, session, pairs)
    progress(1.0)
    return ParityReport(
        precision=precision, logits=logits, tokens=tuple(tokens), attention_difference=attention_difference
    )


def _attention_difference(
    reference: AttentiveSession,
    session: AttentiveSession,
    pairs: Sequence[Pair],
) -> float:
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    expected, found = (attention_weights(one, sources, targets) for one in (reference, session))
    differences = [float(np.abs(a - b).max(initial=0.0)) for a, b in zip(expected, found, strict=True)]
    return float(np.max(differences, initial=0.0))  # a difference that is no number stays one


def _compare_tokens(expected: list[tuple[int, ...]], found: list[tuple[int, ...]], beam_size: int) -> TokenParity:
    different = [index for index, (a, b) in enumerate(zip(expected, found, strict=True)) if a != b]
    first = None
    if different:
        a, b = expected[different[0]], found[different[0]]
        step = first_difference(a, b)
        first = Divergence(
            sentence=different[0],
            step=step,
            torch_token=a[step] if step < len(a) else None,
            bundle_token=b[step] if step < len(b) else None,
        )
    return TokenParity(
        beam_size=beam_size, sentences=len(expected), identical=len(expected) - len(different), first=first
    )


@torch.inference_mode()
def compare_logits(model: EncoderDecoder, session: StepSession, pairs: Sequence[Pair]) -> LogitParity:
    """Feed the same targets to torch, all positions at once, and to the session, step by step.

    Args:
        model: the torch model.
        session: the exported graphs.
        pairs: source ids (with end token) and target ids (without special tokens).
    """
    device, limit = next(model.parameters()).device, session.max_target_length
    positions, agreeing, total, elements, largest_logit = 0, 0, 0.0, 0, 0.0
    worst, worst_sentence, worst_step = 0.0, 0, 0
    for start in range(0, len(pairs), BATCH):
        block = [(source, target[: limit - 1]) for source, target in pairs[start : start + BATCH]]
        batch = forced_batch(block, session.special)
        arrays = (torch.from_numpy(array).to(device) for array in (batch.source, batch.source_length, batch.target))
        expected = model.eval()(*arrays).float().cpu().numpy()  # (N, T, V)
        state = session.start(batch.source, batch.source_length)
        for step, logits in enumerate(forced_steps(state, batch.target)):
            valid = np.flatnonzero(step < batch.target_length)
            difference = np.abs(logits[valid] - expected[valid, step])
            by_row = difference.max(axis=1)
            row = int(np.argmax(np.where(np.isnan(by_row), np.inf, by_row)))
            # A difference that is no number counts as infinite.
            largest = float(np.nan_to_num(by_row[row], nan=np.inf))
            if largest > worst:
                worst, worst_sentence, worst_step = largest, start + int(valid[row]), step
            positions += len(valid)
            agreeing += int((logits[valid].argmax(axis=1) == expected[valid, step].argmax(axis=1)).sum())
            total += float(difference.sum(dtype=np.float64))
            elements += difference.size
            largest_logit = max(largest_logit, float(np.abs(expected[valid, step]).max()))
    return LogitParity(
        positions=positions,
        max_difference=worst,
        mean_difference=total / max(1, elements),
        top1_agreement=agreeing / max(1, positions),
        largest=largest_logit,
        worst_sentence=worst_sentence,
        worst_step=worst_step,
    )
