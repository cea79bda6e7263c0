"""The decoder's state on ONNX Runtime: buffers that are bound once, written in place, and moved only when they must."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from edgeformer_runtime import contract
from edgeformer_runtime.contract import StateTensor
from edgeformer_runtime.decoding.session import FloatArray, IntArray

FIRST_CAPACITY = 32
"""Positions that caches hold at first; they double when they are full."""


class OnnxState:
    """State tensors of one batch on one device, and the inputs and outputs of its steps.

    A step and a selection change it in place. No tensor is copied by a step, and a selection moves only the sentences
    that fill the places of those dropped, unless the number of beams changes. That is so on the CPU; for other devices
    there is :class:`~edgeformer_runtime.engine.device_state.DeviceState`.

    Args:
        tensors: what the encoder emitted, with one row per sentence.
        table: the state table.
        device: where the tensors are.
        sentences: N, of one beam each at first.
        max_length: largest number of steps.
    """

    grows = True
    """Whether caches that are written in place begin small."""

    def __init__(
        self,
        tensors: Mapping[str, ort.OrtValue],
        table: tuple[StateTensor, ...],
        device: str,
        *,
        sentences: int,
        max_length: int,
    ) -> None:
        self.tensors: dict[str, ort.OrtValue] = dict(tensors)
        self.length = 0
        """Steps made."""
        self._table, self._device, self._max_length = table, device, max_length
        self._moving = [tensor for tensor in table if tensor.kind != "constant" and not tensor.in_place]
        """Tensors that a step replaces."""
        self._in_place = any(tensor.in_place for tensor in table)
        self._sentences = sentences
        self._capacity = min(FIRST_CAPACITY, max_length) if self.grows else max_length
        self._position = np.zeros((), np.int64)
        self._nbytes: int | None = None
        self._arrays: dict[str, NDArray[Any]] = {}
        self._set_beams(1)
        for tensor in table:
            if tensor.kind == "cache":
                self._allocate(tensor)

    @property
    def nbytes(self) -> int:
        """Bytes held by all tensors."""
        if self._nbytes is None or self._moving:
            self._nbytes = sum(
                math.prod(self.tensors[tensor.name].shape()) * np.dtype(tensor.dtype).itemsize for tensor in self._table
            )
        return self._nbytes

    def run(
        self, graph: ort.InferenceSession, output: str, width: int | None, token: IntArray, position: int
    ) -> FloatArray:
        """Run a graph that has the decoder's inputs; the state advances.

        Args:
            graph: the decoder or the attention graph.
            output: name of its output for the host.
            width: size of that output's last axis; none if it is not known.
            token: last token of each row, ``(R,)``.
            position: index of that token in the target.

        Returns:
            The output ``(R, width)``; if its width was given, the next run overwrites it.
        """
        if position >= self._capacity:
            self._widen()
        binding = self._bindings.get(output)
        if binding is None:
            binding = self._bindings[output] = self._bind(graph, output, width)
        self._token[:], self._position[...] = token, position
        self._feed(binding)
        for tensor in self._moving:
            binding.bind_ortvalue_input(tensor.input_name, self.tensors[tensor.name])
            binding.bind_output(tensor.output_name, self._device)
        if width is None:
            binding.bind_output(output, "cpu")
        graph.run_with_iobinding(binding)
        self.length = position + 1
        if self._moving or width is None:
            values = dict(zip((argument.name for argument in graph.get_outputs()), binding.get_outputs(), strict=True))
            for tensor in self._moving:
                self.tensors[tensor.name] = values[tensor.output_name]
                self._arrays.pop(tensor.name, None)
        return self._outputs[output] if width else values[output].numpy()

    def select(self, rows: IntArray, sentences: IntArray | None) -> Self:
        """Reorder, repeat and drop; see :class:`~edgeformer_runtime.decoding.session.DecoderState`."""
        count = self._sentences if sentences is None else len(sentences)
        if len(rows) != count * self._beams:
            self._spread(rows, sentences)
            return self
        if self._in_place:
            self._redirect(rows, sentences)
        for tensor in self._moving:
            self._take(tensor, rows)
        if sentences is None:
            return self
        for tensor in self._table:
            if tensor.axes[0] == contract.SENTENCES or tensor.in_place:
                self._move(tensor, sentences, 1 if tensor.axes[0] == contract.SENTENCES else self._beams)
            elif tensor.kind == "constant":
                # It holds the same value for all rows of a sentence, so only dropping sentences changes it.
                self._take(tensor, rows)
        self._sentences, self._token = len(sentences), np.zeros(len(rows), np.int64)
        self._bindings.clear()
        return self

    def _spread(self, rows: IntArray, sentences: IntArray | None) -> None:
        """Give all sentences another number of beams, each with a copy of the past of its row in ``rows``."""
        for tensor in self._table:
            if tensor.axes[0] == contract.SENTENCES:
                if sentences is not None:
                    self._move(tensor, sentences, 1)
            elif tensor.in_place:
                self._repeat(tensor, rows)
            else:
                self._take(tensor, rows)
        if sentences is not None:
            self._sentences = len(sentences)
        self._set_beams(len(rows) // self._sentences)

    def _set_beams(self, beams: int) -> None:
        """Make all that depends on the number of rows anew."""
        self._beams, self._beam_width = beams, np.array([beams], np.int32)
        self._indirection = self._own_beams(self._sentences, self._capacity)
        self._token = np.zeros(self._sentences * beams, np.int64)
        self._bindings: dict[str, ort.IOBinding] = {}
        self._outputs: dict[str, NDArray[np.float32]] = {}

    def _redirect(self, rows: IntArray, sentences: IntArray | None) -> None:
        """Let every beam find its past in the rows that wrote it."""
        kept = np.arange(self._sentences) if sentences is None else sentences
        parent = rows.reshape(len(kept), self._beams) - kept[:, None] * self._beams  # (N', K): beam that is continued
        if sentences is not None:
            self._indirection = np.ascontiguousarray(self._indirection[kept])
        if self._beams > 1 and self.length:
            past = self.length - 1
            self._indirection[:, :, :past] = self._indirection[np.arange(len(kept))[:, None], parent, :past]
            self._indirection[:, :, past] = parent

    def _move(self, tensor: StateTensor, sentences: IntArray, block: int) -> None:
        """Drop sentences, of ``block`` rows each, from a buffer; what stays moves down to the places left empty."""
        kept = set(sentences.tolist())
        moves = [(to, start) for to, start in enumerate(sentences.tolist()) if to != start]
        if any(to in kept for to, _ in moves):
            self._take(tensor, rows_of(sentences, block))
            return
        array = self._arrays[tensor.name] if tensor.name in self._arrays else self.tensors[tensor.name].numpy()
        used = self._used(tensor)
        for to, start in moves:
            array[(slice(to * block, (to + 1) * block), *used)] = array[
                (slice(start * block, (start + 1) * block), *used)
            ]
        self._keep(tensor, array[: len(sentences) * block])

    def _repeat(self, tensor: StateTensor, rows: IntArray) -> None:
        """Make a buffer that holds ``rows`` of this one."""
        array, used = self.tensors[tensor.name].numpy(), self._used(tensor)
        new = np.empty((len(rows), *array.shape[1:]), array.dtype)
        new[(slice(None), *used)] = array[(rows, *used)]
        self._keep(tensor, new)

    def _used(self, tensor: StateTensor) -> tuple[slice, ...]:
        """What of a row of a buffer has been written."""
        return tuple(slice(self.length) if axis == contract.CAPACITY_AXIS else slice(None) for axis in tensor.axes[1:])

    def _allocate(self, tensor: StateTensor) -> None:
        """Make an empty cache."""
        self._keep(tensor, np.empty(self._shape(tensor), tensor.dtype))

    def _take(self, tensor: StateTensor, index: IntArray) -> None:
        self._keep(tensor, np.take(self.tensors[tensor.name].numpy(), index, axis=0))

    def _keep(self, tensor: StateTensor, array: NDArray[Any]) -> None:
        """Let an array be a state tensor; the value uses the array's memory, but does not keep it."""
        self.tensors[tensor.name] = ort.OrtValue.ortvalue_from_numpy(array)
        self._arrays[tensor.name] = array

    def _widen(self) -> None:
        """Give all caches that are written in place twice the capacity."""
        before = self._capacity
        self._capacity = min(2 * before, self._max_length)
        for tensor in self._table:
            if tensor.in_place:
                old = self.tensors[tensor.name].numpy()
                new = np.empty(self._shape(tensor), tensor.dtype)
                new[tuple(slice(size) for size in old.shape)] = old
                self._keep(tensor, new)
        if self._in_place:
            indirection = self._own_beams(self._sentences, self._capacity)
            indirection[:, :, :before] = self._indirection
            self._indirection = indirection
            self._bindings.clear()

    def _bind(self, graph: ort.InferenceSession, output: str, width: int | None) -> ort.IOBinding:
        """Bind everything; what moves from step to step is bound again by :meth:`run`."""
        self._nbytes = None
        binding = graph.io_binding()
        self._bind_host(binding)
        produced = {tensor.output_name: tensor for tensor in self._table}
        for name in (argument.name for argument in graph.get_outputs()):
            tensor = produced.get(name)
            if tensor is not None and tensor.in_place:
                binding.bind_ortvalue_input(tensor.input_name, self.tensors[tensor.name])
                binding.bind_ortvalue_output(tensor.output_name, self.tensors[tensor.name])
            elif name == output and width:
                rows = len(self._token)
                # Rows of as many beams only ever become fewer, so the first buffer serves to the end.
                buffer = self._outputs.get(name, np.empty((rows, width), np.float32))
                self._outputs[name] = buffer[:rows]
                binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(buffer[:rows]))
            else:
                binding.bind_output(name, "cpu" if name == output else self._device)
        for tensor in self._table:
            if tensor.kind == "constant":
                binding.bind_ortvalue_input(tensor.input_name, self.tensors[tensor.name])
        return binding

    def _bind_host(self, binding: ort.IOBinding) -> None:
        """Bind the inputs that the host changes."""
        for name, value in self._host_values().items():
            binding.bind_ortvalue_input(name, value)

    def _feed(self, binding: ort.IOBinding) -> None:
        """Let a binding see what the host has changed: it does already, since it reads the host's memory."""

    def _host_values(self) -> dict[str, ort.OrtValue]:
        """Inputs that the host changes, in the host's memory."""
        host: dict[str, NDArray[Any]] = {contract.TOKEN: self._token, contract.POSITION: self._position}
        if self._in_place:
            host |= {contract.CACHE_INDIRECTION: self._indirection, contract.BEAM_WIDTH: self._beam_width}
        return {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in host.items()}

    def _shape(self, tensor: StateTensor) -> list[int]:
        """Shape of a cache, empty along P."""
        sizes = {
            contract.ROWS: self._sentences * self._beams,
            contract.PAST_AXIS: 0,
            contract.CAPACITY_AXIS: self._capacity,
        }
        return [sizes[axis] if isinstance(axis, str) else axis for axis in tensor.axes]

    def _own_beams(self, sentences: int, capacity: int) -> NDArray[np.int32]:
        """Every beam's past in its own row, ``(N, K, T)``."""
        own = np.arange(self._beams, dtype=np.int32)[None, :, None]
        return np.ascontiguousarray(np.broadcast_to(own, (sentences, self._beams, capacity)))


def rows_of(sentences: IntArray, block: int) -> IntArray:
    """Rows of these sentences, ``block`` rows each."""
    return (sentences[:, None] * block + np.arange(block)).ravel()
