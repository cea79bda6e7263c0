"""The sample of training text that a run keeps: what an export calibrates with and compares on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from edgeformer.model.base import EncoderDecoder
from edgeformer.train.run import Run
from edgeformer_export.writer import ExportError


@dataclass(frozen=True)
class SamplePair:
    """One pair of the run's sample of training text, as text and as ids."""

    text: str
    source: list[int]
    """Source ids with end token."""
    target: list[int]
    """Target ids without special tokens."""


def sample_pairs(run: Run, model: EncoderDecoder) -> list[SamplePair]:
    """The run's sample, without pairs that are too long for the model or blank.

    Raises:
        ExportError: nothing is left.
    """
    sources = run.source_tokenizer.encode_batch([source for source, _ in run.sample], end_token=True)
    targets = run.target_tokenizer.encode_batch([target for _, target in run.sample])
    pairs = [
        SamplePair(text, source, target)
        for (text, _), source, target in zip(run.sample, sources, targets, strict=True)
        if text.strip() and len(source) <= model.max_source_length and len(target) < model.max_target_length
    ]
    if not pairs:
        raise ExportError(f"Run `{run.path}` has no sample of its training text; train it again with this version.")
    return pairs


T = TypeVar("T")


def spread(items: Sequence[T], count: int) -> list[T]:
    """At most ``count`` items at even distances, the first and the last among them."""
    count = min(count, len(items))
    return [items[round(index * (len(items) - 1) / max(1, count - 1))] for index in range(count)]
