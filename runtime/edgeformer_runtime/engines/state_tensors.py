"""The tensors of a decoder state: where they are stored, and which of them move when rows are selected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edgeformer_runtime import contract
from edgeformer_runtime.contract import StateTensor
from edgeformer_runtime.search.session import IntArray

FIRST_CAPACITY = 32
"""Initial capacity of in-place caches, in positions; doubled whenever they are full."""


class StateTensors:
    """State tensors of one batch on the CPU, with N sentences of K rows each; K is 1 at first.

    Caches exist once :meth:`allocate` was called. Reordering the beams of a sentence leaves in-place caches and
    constants where they are. Dropping sentences moves only the sentences that fill the gaps. Changing K copies every
    tensor that has a row per beam.

    Args:
        emitted: outputs of the encoder by name, with one row per sentence.
        table: the state table.
        device: name of the device that holds the tensors.
        sentences: N.
        max_length: maximum number of steps.
    """

    grows = True
    """Whether in-place caches start small and grow."""
    read_in_place = True
    """Whether the engine reads host inputs directly from host memory, so that changes need no copy."""

    def __init__(
        self,
        emitted: Mapping[str, ort.OrtValue],
        table: tuple[StateTensor, ...],
        device: str,
        *,
        sentences: int,
        max_length: int,
    ) -> None:
        self.values: dict[str, ort.OrtValue] = dict(emitted)
        """The tensors by name."""
        self.table, self.device = table, device
        self._of_rows = [tensor for tensor in table if tensor.axes[0] in (contract.SENTENCES, contract.ROWS)]
        """Tensors that are not the same for all sentences."""
        self.replaced = [tensor for tensor in table if tensor.kind != "constant" and not tensor.in_place]
        """Tensors for which each step returns a new buffer: growing caches and recurrent tensors."""
        self.has_in_place = any(tensor.in_place for tensor in table)
        self.sentences, self.beams = sentences, 1
        self.length = 0
        """Number of steps completed, which is the number of cache entries."""
        self._has_caches = False
        self.max_length = max_length
        self.bound(max_length)
        self._arrays: dict[str, NDArray[Any]] = {}
        self._nbytes: int | None = None

    def bound(self, steps: int) -> None:
        """Reduce the maximum number of steps, unless caches exist."""
        if not self._has_caches:
            self.max_length = min(steps, self.max_length)
            self.capacity = min(FIRST_CAPACITY, self.max_length) if self.grows else self.max_length
            """Capacity of in-place caches, in positions."""

    def allocate(self) -> None:
        """Allocate empty caches before the first step, when the number of beams is known."""
        if not self._has_caches:
            self._has_caches = True
            for tensor in self.table:
                if tensor.kind == "cache":
                    self._allocate(tensor)

    @property
    def rows(self) -> int:
        """R = N * K."""
        return self.sentences * self.beams

    @property
    def nbytes(self) -> int:
        """Size of all tensors, in bytes."""
        if self._nbytes is None:
            self._nbytes = sum(
                math.prod(self.values[tensor.name].shape()) * np.dtype(tensor.dtype).itemsize for tensor in self.table
            )
        return self._nbytes

    def replace(self, tensor: StateTensor, value: ort.OrtValue) -> None:
        """Replace the buffer of a tensor."""
        self.values[tensor.name], self._nbytes = value, None
        self._arrays.pop(tensor.name, None)

    def select(self, rows: IntArray, sentences: IntArray | None) -> None:
        """Reorder, repeat and drop rows; see :meth:`~edgeformer_runtime.search.session.DecoderState.select`."""
        count = self.sentences if sentences is None else len(sentences)
        if len(rows) != count * self.beams:
            self._change_beams(rows, sentences)
            return
        self.allocate()
        for tensor in self.replaced:
            self._take(tensor, rows)
        if sentences is None:
            return
        for tensor in self._of_rows:
            if tensor.axes[0] == contract.SENTENCES:
                self._drop(tensor, sentences, 1)
            elif tensor.in_place:
                self._drop(tensor, sentences, self.beams)
            elif tensor.kind == "constant":
                # All rows of a sentence hold the same value, so only dropping sentences changes the tensor.
                self._take(tensor, rows)
        self.sentences = count

    def widen(self) -> None:
        """Double the capacity of in-place caches, up to the maximum number of steps."""
        self.capacity = min(2 * self.capacity, self.max_length)
        for tensor in self.table:
            if tensor.in_place:
                old = self._array(tensor)
                new = np.empty(self._shape(tensor), tensor.dtype)
                new[tuple(slice(size) for size in old.shape)] = old
                self._keep(tensor, new)

    def skip(self, length: int) -> None:
        """Set the number of entries in all caches, whose content is then arbitrary."""
        self.allocate()
        while self.capacity < min(length + 1, self.max_length):
            self.widen()
        sizes = {contract.ROWS: self.rows, contract.PAST_AXIS: length}
        for tensor in self.replaced:
            if tensor.kind == "cache":
                past = np.zeros(tensor.shape(sizes), tensor.dtype)
                self.replace(tensor, ort.OrtValue.ortvalue_from_numpy(past, self.device))
        self.length = length

    def _change_beams(self, rows: IntArray, sentences: IntArray | None) -> None:
        """Change K for all sentences; each new row gets a copy of the past of the row it continues."""
        for tensor in self._of_rows:
            if tensor.kind == "cache" and not self._has_caches:
                continue
            if tensor.axes[0] == contract.SENTENCES:
                if sentences is not None:
                    self._drop(tensor, sentences, 1)
            elif tensor.in_place:
                self._repeat(tensor, rows)
            else:
                self._take(tensor, rows)
        if sentences is not None:
            self.sentences = len(sentences)
        self.beams = len(rows) // self.sentences

    def _drop(self, tensor: StateTensor, sentences: IntArray, block: int) -> None:
        """Keep only the given sentences, of ``block`` rows each; kept sentences move to fill the gaps."""
        kept = set(sentences.tolist())
        moves = [(to, start) for to, start in enumerate(sentences.tolist()) if to != start]
        if any(to in kept for to, _ in moves):
            self._take(tensor, rows_of(sentences, block))
            return
        array, used = self._array(tensor), self._used(tensor)
        for to, start in moves:
            array[(slice(to * block, (to + 1) * block), *used)] = array[
                (slice(start * block, (start + 1) * block), *used)
            ]
        self._keep(tensor, array[: len(sentences) * block])

    def _repeat(self, tensor: StateTensor, rows: IntArray) -> None:
        """Copy the written part of ``rows`` of an in-place cache to a new buffer."""
        array, used = self._array(tensor), self._used(tensor)
        new = np.empty((len(rows), *array.shape[1:]), array.dtype)
        new[(slice(None), *used)] = array[(slice(None), *used)][rows]
        self._keep(tensor, new)

    def _used(self, tensor: StateTensor) -> tuple[slice, ...]:
        """The part of a row that has been written."""
        return tuple(slice(self.length) if axis == contract.CAPACITY_AXIS else slice(None) for axis in tensor.axes[1:])

    def _allocate(self, tensor: StateTensor) -> None:
        """Allocate an empty cache."""
        self._keep(tensor, np.empty(self._shape(tensor), tensor.dtype))

    def _take(self, tensor: StateTensor, index: IntArray) -> None:
        """Copy the rows ``index`` to a new buffer."""
        self._keep(tensor, self._array(tensor).take(index, axis=0))

    def _array(self, tensor: StateTensor) -> NDArray[Any]:
        """The values of a tensor: its buffer, or a copy if the engine owns the buffer."""
        array = self._arrays.get(tensor.name)
        return self.values[tensor.name].numpy() if array is None else array

    def _keep(self, tensor: StateTensor, array: NDArray[Any]) -> None:
        """Use an array as the buffer of a tensor; the engine reads and writes its memory but does not own it."""
        self.replace(tensor, ort.OrtValue.ortvalue_from_numpy(array))
        self._arrays[tensor.name] = array

    def _shape(self, tensor: StateTensor) -> tuple[int, ...]:
        """Shape of a cache without entries."""
        sizes = {contract.ROWS: self.rows, contract.PAST_AXIS: 0, contract.CAPACITY_AXIS: self.capacity}
        return tensor.shape(sizes)


def rows_of(sentences: IntArray, block: int) -> IntArray:
    """Rows of the given sentences, ``block`` rows each."""
    return (sentences[:, None] * block + np.arange(block)).ravel()
