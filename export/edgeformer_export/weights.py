"""Weights apart from their graphs: graphs are passed on without them, and bundles have one file with each once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from edgeformer_export.parity.inner_graphs import InnerGraph

ALIGNMENT = 4096
"""Alignment of large tensors in bytes: the page size, so that they can be memory-mapped in place."""
SMALL_ALIGNMENT = 64
LARGE = 65_536
MIN_BYTES = 1024
"""Smaller tensors stay in the graph files."""
CHUNK = 1 << 24
"""Number of bytes that are worked on at a time; bounds the memory of temporary arrays."""


def rewritten(model: ir.Model, rewrite: Callable[[onnx.ModelProto], onnx.ModelProto]) -> ir.Model:
    """Rewrite a model by a function of serialized models, which gets large initializers as inputs.

    They would be copied several times, and a message can hold 2 GiB.

    Args:
        model: the model; not modified.
        rewrite: the function; it keeps the names of inputs.
    """
    message, weights = _without_weights(model)
    large = [tensor for tensor in message.graph.initializer if tensor.name in weights]
    small = [tensor for tensor in message.graph.initializer if tensor.name not in weights]
    inner = [value for value in message.graph.value_info if value.name not in weights]
    inputs = [onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in large]
    for field, values in (("initializer", small), ("value_info", inner)):
        message.graph.ClearField(field)
        getattr(message.graph, field).extend(values)
    message.graph.input.extend(inputs)
    result = ir.from_proto(rewrite(message))
    for value in [value for value in result.graph.inputs if value.name in weights]:
        result.graph.inputs.remove(value)
        if value.uses():
            value.const_value = weights[str(value.name)]
            result.graph.register_initializer(value)
    return result


def open_graph(file: str, model: ir.Model, names: Iterable[str] = ()) -> InnerGraph:
    """Open a graph on the CPU, using every available thread.

    Args:
        file: the graph's file name.
        model: the graph.
        names: tensors to return, inner tensors or outputs.

    Raises:
        ModelError: the engine cannot open the graph, or the graph lacks a tensor.
    """
    outputs = {value.name for value in model.graph.outputs}
    inner = [name for name in names if name not in outputs]
    message, weights = _without_weights(model)
    arrays = {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in weights.items()}
    return InnerGraph(file, message.SerializeToString(), inner, weights=arrays, threads=0)


class WeightsFile:
    """The file with the weights of all graphs of a bundle, each once.

    Args:
        path: file to write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offsets: dict[tuple[str, int], int] = {}
        path.write_bytes(b"")

    def place(self, array: NDArray[Any]) -> int:
        """Return where an array is in the file, and write it there if it is not."""
        key = digest(array), array.nbytes
        if key not in self._offsets:
            with self.path.open("ab") as stream:
                alignment = ALIGNMENT if array.nbytes >= LARGE else SMALL_ALIGNMENT
                stream.write(b"\0" * (-stream.tell() % alignment))
                self._offsets[key] = stream.tell()
                stream.writelines(_parts(array))
        return self._offsets[key]

    def move(self, models: Iterable[ir.Model]) -> None:
        """Move the weights of graphs into the file, and make the graphs refer to it.

        Args:
            models: graphs to modify in place; save them next to the file afterwards.
        """
        for model in models:
            for value in model.graph.initializers.values():
                tensor = value.const_value
                if tensor is None or tensor.nbytes < MIN_BYTES:
                    continue
                value.const_value = ir.ExternalTensor(
                    self.path.name,
                    offset=self.place(tensor.numpy()),
                    length=tensor.nbytes,
                    dtype=tensor.dtype,
                    shape=ir.Shape(tensor.shape.numpy()),
                    name=str(value.name),
                    base_dir=self.path.parent,
                )


def digest(array: NDArray[Any]) -> str:
    """Compute the SHA-256 of an array's content in row-major order, regardless of its memory layout."""
    content = hashlib.sha256()
    for part in _parts(array):
        content.update(part)
    return content.hexdigest()


def row_slices(array: NDArray[Any]) -> Iterator[slice]:
    """Divide the rows of an array into parts of about :data:`CHUNK` bytes."""
    step = max(1, CHUNK * len(array) // max(1, array.nbytes))
    for start in range(0, len(array), step):
        yield slice(start, start + step)


def _parts(array: NDArray[Any]) -> Iterator[memoryview]:
    """Yield the content of an array in row-major order."""
    rows = array.reshape(1) if array.ndim == 0 else array
    for part in row_slices(rows):
        yield np.ascontiguousarray(rows[part]).reshape(-1).view(np.uint8).data


def _without_weights(model: ir.Model) -> tuple[onnx.ModelProto, dict[str, ir.TensorProtocol]]:
    """Serialize a model, but for its large initializers.

    Args:
        model: the model; not modified.

    Returns:
        The message, in which these initializers are external data of a file that does not exist, and their tensors.
    """
    model, weights = model.clone(), {}
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and tensor.nbytes >= MIN_BYTES:
            weights[name] = tensor
            value.const_value = ir.ExternalTensor(
                "weights", None, tensor.nbytes, tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=name
            )
    return ir.to_proto(model), weights
