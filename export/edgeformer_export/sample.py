"""The sample of training text stored in a run, which export uses for calibration and comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from edgeformer.model.base import EncoderDecoder
from edgeformer.run.folder import Run
from edgeformer_export.writer import ExportError
from edgeformer_runtime.search.forced_steps import Pair


@dataclass(frozen=True)
class SamplePair:
    """A pair from the run's sample of training text, as text and as token ids."""

    text: str
    source: list[int]
    """Source ids with end token."""
    target: list[int]
    """Target ids without special tokens."""


def sample_pairs(run: Run, model: EncoderDecoder) -> list[SamplePair]:
    """Load the run's sample, without pairs that are blank or too long for the model.

    Raises:
        ExportError: no pairs remain.
    """
    sources = run.source_tokenizer.encode_batch([source for source, _ in run.sample], special_tokens=True)
    targets = run.target_tokenizer.encode_batch([target for _, target in run.sample])
    longest = model.max_target_length - len(run.special.prefix)
    pairs = [
        SamplePair(text, source, target)
        for (text, _), source, target in zip(run.sample, sources, targets, strict=True)
        if text.strip() and len(source) <= model.max_source_length and len(target) < longest
    ]
    if not pairs:
        raise ExportError(f"Run `{run.path}` has no sample of its training text; train it again with this version.")
    return pairs


def grouped(pairs: Sequence[Pair], count: int, tokens: int) -> Iterator[tuple[int, Sequence[Pair]]]:
    """Divide pairs into batches, in order.

    Args:
        pairs: sources and targets.
        count: maximum number of pairs in a batch.
        tokens: maximum number of tokens in a batch, padding included, on the longer side; bounds the memory. A longer
            pair is a batch of its own.

    Yields:
        Index of a batch's first pair, and the batch.
    """
    start = longest = 0
    for index, pair in enumerate(pairs):
        longest = max(longest, *map(len, pair))
        if index > start and (index - start == count or (index - start + 1) * longest > tokens):
            yield start, pairs[start:index]
            start, longest = index, max(map(len, pair))
    if pairs:
        yield start, pairs[start:]


T = TypeVar("T")


def spread(items: Sequence[T], count: int) -> list[T]:
    """Pick at most ``count`` evenly spaced items, including the first and the last."""
    count = min(count, len(items))
    return [items[round(index * (len(items) - 1) / max(1, count - 1))] for index in range(count)]
