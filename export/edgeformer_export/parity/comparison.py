"""Compares step-by-step logits with PyTorch's teacher-forced logits, and output token by token."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np
import torch

from edgeformer.model.base import EncoderDecoder
from edgeformer.model.session import TorchSession
from edgeformer_export.parity.report import Divergence, LogitParity, ParityReport, TokenParity
from edgeformer_export.sample import grouped
from edgeformer_runtime.attention import attention_weights
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.check.golden import first_difference
from edgeformer_runtime.precision import Precision
from edgeformer_runtime.search.forced_steps import ForcedBatch, Pair, forced_batch, forced_steps
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.requests import longest_target
from edgeformer_runtime.search.session import StepSession

BATCH = 32
LOGITS = 1 << 25
"""Maximum number of PyTorch's logits in memory."""


def compare(
    model: EncoderDecoder,
    session: StepSession,
    sources: Sequence[Sequence[int]],
    options: Sequence[DecodeOptions],
    precision: Precision,
    progress: Callable[[float], None] = lambda fraction: None,
) -> ParityReport:
    """Compare a model with a session on the same sources.

    Args:
        model: the torch model.
        session: the exported graphs.
        sources: source token ids, end token included.
        options: decoding options of each search whose output is compared.
        precision: lowest precision used in the graphs.
        progress: called with the fraction done, 0 … 1.
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
    pairs = list(zip(sources, targets, strict=True))
    logits = compare_logits(model, session, pairs)
    attention_difference = None
    if model.has_attention:
        ended = [(source, [*target, special.eos][: longest_target(session)]) for source, target in pairs]
        attention_difference = _attention_difference(reference, session, ended)
    report = ParityReport(
        precision=precision, logits=logits, tokens=tuple(tokens), attention_difference=attention_difference
    )
    if precision == "fp32" and report.problems:  # PyTorch itself may round as much
        rounding = torch_rounding(model, pairs, special)
        report = msgspec.structs.replace(report, logits=msgspec.structs.replace(logits, torch_rounding=rounding))
    progress(1.0)
    return report


def _attention_difference(
    reference: StepSession,
    session: StepSession,
    pairs: Sequence[Pair],
) -> float:
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    expected, actual = (attention_weights(engine, sources, targets) for engine in (reference, session))
    differences = [float(np.abs(a - b).max(initial=0.0)) for a, b in zip(expected, actual, strict=True)]
    return float(np.max(differences, initial=0.0))  # NaN stays NaN


def _compare_tokens(expected: list[tuple[int, ...]], actual: list[tuple[int, ...]], beam_size: int) -> TokenParity:
    different = [index for index, (a, b) in enumerate(zip(expected, actual, strict=True)) if a != b]
    first = None
    if different:
        a, b = expected[different[0]], actual[different[0]]
        step = first_difference(a, b)
        first = Divergence(
            sentence=different[0],
            step=step,
            torch_token=a[step] if step < len(a) else None,
            bundle_token=b[step] if step < len(b) else None,
        )
    return TokenParity(
        beam_size=beam_size,
        sentences=len(expected),
        identical=len(expected) - len(different),
        first=first,
        empty=expected.count(()),
    )


@torch.inference_mode()
def torch_rounding(model: EncoderDecoder, pairs: Sequence[Pair], special: SpecialTokens) -> float:
    """Return the largest difference of the model's logits between float32 and float64.

    Args:
        model: the torch model, in float32.
        pairs: source ids (with end token) and target ids (without special tokens).
        special: special token ids.

    Returns:
        The difference; 0 if the model cannot compute in float64.
    """
    exact, largest = copy.deepcopy(model).eval().double(), 0.0
    for _, batch, tensors in _batches(model, pairs, special):
        try:
            difference = (model(*tensors).double() - exact(*tensors)).abs()  # (N, T, V)
        except RuntimeError:  # the model creates tensors of a fixed type
            return 0.0
        of_rows = zip(difference, batch.target_length.tolist(), strict=True)
        largest = max(largest, *(float(row[:length].max()) for row, length in of_rows))
    return largest if math.isfinite(largest) else 0.0


def _batches(
    model: EncoderDecoder, pairs: Sequence[Pair], special: SpecialTokens
) -> Iterator[tuple[int, ForcedBatch, list[torch.Tensor]]]:
    """Yield the index of each batch's first pair, the batch, with targets cut to the model's maximum, and the arguments
    of the model's ``forward``."""
    device, limit = next(model.parameters()).device, model.max_target_length - len(special.prefix)
    cut = [(source, target[: limit - 1]) for source, target in pairs]
    for start, block in grouped(cut, BATCH, LOGITS // model.target_vocab_size):
        batch = forced_batch(block, special)
        arrays = batch.source, batch.source_length, batch.target
        yield start, batch, [torch.from_numpy(array).to(device) for array in arrays]


@torch.inference_mode()
def compare_logits(model: EncoderDecoder, session: StepSession, pairs: Sequence[Pair]) -> LogitParity:
    """Compare logits for the same targets, fed to torch all at once and to the session step by step.

    Args:
        model: the torch model.
        session: the exported graphs.
        pairs: source ids (with end token) and target ids (without special tokens).
    """
    positions, agreeing, total, elements, largest_logit = 0, 0, 0.0, 0, 0.0
    worst, worst_sentence, worst_step = 0.0, 0, 0
    for start, batch, tensors in _batches(model, pairs, session.special):
        expected = model.eval()(*tensors).float().cpu().numpy()  # (N, T, V)
        state = session.start(batch.source, batch.source_length)
        for step, logits in enumerate(forced_steps(state, batch.target)):
            valid = np.flatnonzero(step < batch.target_length)
            difference = np.abs(logits[valid] - expected[valid, step])
            by_row = difference.max(axis=1)
            row = int(np.argmax(np.where(np.isnan(by_row), np.inf, by_row)))
            # NaN counts as an infinite difference.
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
