"""CUDA: which bundles run there, and state tensors in its memory, where they are allocated, advanced and selected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnxruntime as ort

from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import Manifest
from edgeformer_runtime.contract import DType, StateTensor
from edgeformer_runtime.engines.graphs import rows_graph
from edgeformer_runtime.engines.onnx_graphs import engine_errors
from edgeformer_runtime.engines.state_tensors import StateTensors, rows_of
from edgeformer_runtime.errors import DeviceError
from edgeformer_runtime.precision import PRECISIONS
from edgeformer_runtime.search.session import IntArray


class DeviceRows:
    """Selects rows of tensors on the device that holds them. Thread-safe.

    Args:
        dtypes: element types of the tensors.
        device: name of the device.
        options: session options of the engine.
        providers: execution providers of the device and their settings.
    """

    def __init__(
        self,
        dtypes: Iterable[DType],
        device: str,
        options: ort.SessionOptions,
        providers: list[tuple[str, dict[str, str]]],
    ) -> None:
        self._device = device
        self._graphs = {
            dtype: ort.InferenceSession(rows_graph(dtype), options, providers=providers, enable_fallback=0)
            for dtype in set(dtypes)
        }

    def __call__(self, value: ort.OrtValue, dtype: DType, index: IntArray) -> ort.OrtValue:
        """Copy the rows ``index``, ``(n,)``, of ``value`` to a new tensor.

        Raises:
            ModelError: the engine fails, for example because the device is out of memory.
        """
        graph = self._graphs[dtype]
        with engine_errors(rows_graph(dtype).name):
            binding = graph.io_binding()
            binding.bind_ortvalue_input("x", value)
            binding.bind_cpu_input("i", np.ascontiguousarray(index))
            binding.bind_output("y", self._device)
            graph.run_with_iobinding(binding)
            return binding.get_outputs()[0]


class DeviceTensors(StateTensors):
    """State tensors in device memory.

    In each step, only the tokens, the position and, with beams, the cache indirection are copied to the device, and
    only the logits are copied back. In-place caches have room for all steps of the call from the start, since their
    memory layout on CUDA depends on it. When sentences are dropped, the others are copied within the device.

    Args:
        emitted: outputs of the encoder by name, with one row per sentence.
        table: the state table.
        device: name of the device that holds the tensors.
        rows: selects rows on the device.
        sizes: see :class:`~edgeformer_runtime.engines.state_tensors.StateTensors`.
    """

    grows = False
    # Binding an input again copies it again, to wherever the graph needs it. Writing to a device buffer takes just as
    # long, and a graph that needs the input on the host would not see the change.
    read_in_place = False

    def __init__(
        self,
        emitted: Mapping[str, ort.OrtValue],
        table: tuple[StateTensor, ...],
        device: str,
        *,
        rows: DeviceRows,
        **sizes: int,
    ) -> None:
        self._pick = rows
        super().__init__(emitted, table, device, **sizes)

    def _allocate(self, tensor: StateTensor) -> None:
        dtype = np.dtype(tensor.dtype).type
        self.replace(tensor, ort.OrtValue.ortvalue_from_shape_and_type(self._shape(tensor), dtype, self.device))

    def _take(self, tensor: StateTensor, index: IntArray) -> None:
        self.replace(tensor, self._pick(self.values[tensor.name], tensor.dtype, index))

    def _repeat(self, tensor: StateTensor, rows: IntArray) -> None:
        self._take(tensor, rows)

    def _drop(self, tensor: StateTensor, sentences: IntArray, block: int) -> None:
        self._take(tensor, rows_of(sentences, block))


def check_cuda(manifest: Manifest) -> None:
    """Reject bundles that CUDA has no kernels for, and load CUDA's libraries from where pip installed them."""
    if unsupported := sorted(name for name in manifest.precision.values() if "cuda" not in PRECISIONS[name].devices):
        supported = " or ".join(sorted(name for name, row in PRECISIONS.items() if "cuda" in row.devices))
        raise DeviceError(
            f"{unsupported[0]} graphs run on the CPU only, so `cuda` would copy every tensor back and forth; export "
            f"the model with --precision {supported}."
        )
    widths = {tensor.axes[-1] for tensor in manifest.state if tensor.in_place} - {*contract.CUDA_HEAD_WIDTHS}
    if widths:
        wanted = ", ".join(map(str, contract.CUDA_HEAD_WIDTHS))
        raise DeviceError(
            f"On `cuda`, caches are written in place for heads of width {wanted} only, but this model's have width "
            f"{', '.join(map(str, sorted(widths, key=str)))}; export it with --precision fp16, which has other caches "
            "for other widths, or with --target portable."
        )
    if hasattr(ort, "preload_dlls"):
        ort.preload_dlls()
