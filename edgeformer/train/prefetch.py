"""Batches as tensors, prepared one ahead of their use."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from edgeformer.data.batches import Batch


class TensorBatch(NamedTuple):
    """A batch, and its tensors."""

    batch: Batch
    """The arrays."""
    inputs: list[Tensor]
    """Arguments of :class:`~edgeformer.train.loss.Objective`."""


def prefetched_batches(batches: Iterator[Batch]) -> Generator[TensorBatch]:
    """Yield batches in order; a thread prepares the next one."""

    def prepare() -> TensorBatch:
        batch = next(batches)
        arrays = (batch.source, batch.source_length, batch.target, batch.labels, np.flatnonzero(batch.labels >= 0))
        return TensorBatch(batch, [torch.from_numpy(array) for array in arrays])

    with ThreadPoolExecutor(1) as worker:
        following = worker.submit(prepare)
        while True:
            prepared, following = following.result(), worker.submit(prepare)
            yield prepared
