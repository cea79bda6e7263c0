"""The sample of training text stored in a run, which export uses for calibration and comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from edgeformer.model.base import EncoderDecoder
from edgeformer.train.run import Run
from edgeformer_export.writer import ExportError


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


T = TypeVar("T")


def spread(items: Sequence[T], count: int) -> list[T]:
    """Pick at most ``count`` evenly spaced items, including the first and the last."""
    count = min(count, len(items))
    return [items[round(index * (len(items) - 1) / max(1, count - 1))] for index in range(count)]
