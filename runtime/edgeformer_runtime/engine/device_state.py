"""The decoder's state on a CUDA device: it is made, stepped, reordered and thinned out there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnxruntime as ort

from edgeformer_runtime import contract
from edgeformer_runtime.contract import StateTensor
from edgeformer_runtime.decoding.session import IntArray
from edgeformer_runtime.engine.graphs import rows_graph
from edgeformer_runtime.engine.onnx_state import OnnxState, rows_of
from edgeformer_runtime.errors import ModelError


class DeviceRows:
    """Picks rows of tensors where they are. Safe to use from many threads.

    Args:
        dtypes: element types of the tensors.
        device: where they are.
        options: of the sessions.
        providers: of the device, with their settings.
    """

    def __init__(
        self,
        dtypes: Iterable[contract.DType],
        device: str,
        options: ort.SessionOptions,
        providers: list[tuple[str, dict[str, str]]],
    ) -> None:
        self._device = device
        self._graphs = {
            dtype: ort.InferenceSession(rows_graph(dtype), options, providers=providers) for dtype in set(dtypes)
        }

    def __call__(self, value: ort.OrtValue, dtype: contract.DType, index: IntArray) -> ort.OrtValue:
        """A new tensor of the rows ``index``, ``(n,)``, of ``value``.

        Raises:
            ModelError: the device has no memory left.
        """
        graph = self._graphs[dtype]
        binding = graph.io_binding()
        binding.bind_ortvalue_input("x", value)
        binding.bind_cpu_input("i", np.ascontiguousarray(index))
        binding.bind_output("y", self._device)
        try:
            graph.run_with_iobinding(binding)
        except Exception as error:  # onnxruntime's own exceptions share no base class
            raise ModelError(f"onnxruntime {ort.__version__} failed to move rows of the state: {error}") from None
        return binding.get_outputs()[0]


class DeviceState(OnnxState):
    """State tensors in the memory of a device.

    In a step, tokens, the position and (with beams) the cache indirection go to the device, and the logits come back:
    nothing else. Caches that are written in place have their full capacity from the start: CUDA keeps a layout of its
    own in them, which depends on it. Beams change places as on the CPU. When sentences are dropped, those that stay are
    copied, from one place of the device to another.

    Args:
        tensors: what the encoder emitted, with one row per sentence.
        table: the state table.
        device: where the tensors are.
        rows: picks rows there.
        sizes: see :class:`OnnxState`.
    """

    grows = False

    def __init__(
        self,
        tensors: Mapping[str, ort.OrtValue],
        table: tuple[StateTensor, ...],
        device: str,
        *,
        rows: DeviceRows,
        **sizes: Any,
    ) -> None:
        self._rows = rows
        self._host: dict[str, ort.OrtValue] = {}
        super().__init__(tensors, table, device, **sizes)

    def _allocate(self, tensor: StateTensor) -> None:
        self.tensors[tensor.name] = ort.OrtValue.ortvalue_from_shape_and_type(
            self._shape(tensor), np.dtype(tensor.dtype).type, self._device
        )

    def _take(self, tensor: StateTensor, index: IntArray) -> None:
        self.tensors[tensor.name] = self._rows(self.tensors[tensor.name], tensor.dtype, index)

    def _repeat(self, tensor: StateTensor, rows: IntArray) -> None:
        self._take(tensor, rows)

    def _move(self, tensor: StateTensor, sentences: IntArray, block: int) -> None:
        self._take(tensor, rows_of(sentences, block))

    def _bind_host(self, binding: ort.IOBinding) -> None:
        self._host = self._host_values()
        for name, value in self._host.items():
            binding.bind_ortvalue_input(name, value)

    def _feed(self, binding: ort.IOBinding) -> None:
        # To bind a value again is to copy it again, to the device or to where else the graph wants it. Writing to a
        # buffer of the device takes as long, and is not seen by a graph that wants the input on the host.
        changed = [contract.TOKEN, contract.POSITION]
        if self._in_place and self._beams > 1:
            changed.append(contract.CACHE_INDIRECTION)
        for name in changed:
            binding.bind_ortvalue_input(name, self._host[name])
