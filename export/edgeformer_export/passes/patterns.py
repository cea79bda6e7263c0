"""Finds constant weights in a graph, and replaces the operators that read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

MICROSOFT = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""
MIN_ELEMENTS = 256
"""Smaller weights stay in fp32, since quantizing them saves nothing."""
MIN_WIDTH = 8
"""Weights with fewer columns stay in fp32, since an integer product would not be faster."""


@dataclass(frozen=True)
class Linear:
    """A matrix product with a constant weight, and the bias addition that follows it, if any.

    Its tensors are looked up when they are asked for, since replacing one linear layer replaces the input of the next.
    """

    weight: NDArray[np.float32]
    """``(in, out)``."""
    constant: str
    """Name of the constant that holds it, ``(in, out)`` or ``(out, in)``."""
    nodes: tuple[ir.Node, ...]
    """The product, followed by the addition if that is a node of its own."""
    bias_index: int | None
    """Index of the bias among the inputs of the last node; ``None`` without a bias."""

    @property
    def activation(self) -> ir.Value:
        """The input, ``(…, in)``."""
        value = self.nodes[0].inputs[0]
        assert value is not None
        return value

    @property
    def bias(self) -> ir.Value | None:
        """The bias, broadcast to the output."""
        return None if self.bias_index is None else self.nodes[-1].inputs[self.bias_index]

    @property
    def output(self) -> ir.Value:
        """The result, ``(…, out)``."""
        return self.nodes[-1].outputs[0]


def find_linears(graph: ir.Graph) -> Iterator[Linear]:
    """Yield every matrix product with a constant weight that is large enough to quantize."""
    for node in graph:
        if node.op_type not in {"MatMul", "Gemm"} or node.domain != "" or node.inputs[0] is None:
            continue
        matrix = _matrix(node.inputs[1])
        if matrix is None:
            continue
        array, name = matrix
        if node.op_type == "Gemm":
            attributes = node.attributes
            if (
                attributes.get_float("alpha", 1.0) != 1
                or attributes.get_float("beta", 1.0) != 1
                or attributes.get_int("transA")
            ):
                continue
            bias_index = 2 if len(node.inputs) > 2 and node.inputs[2] is not None else None
            array = array.T if attributes.get_int("transB", 0) else array
            if array.shape[1] >= MIN_WIDTH:
                yield Linear(array, name, (node,), bias_index)
            continue
        if array.shape[1] < MIN_WIDTH:
            continue
        consumers = list(node.outputs[0].uses())
        follower = consumers[0].node if len(consumers) == 1 and not node.outputs[0].is_graph_output() else None
        if follower is not None and follower.op_type == "Add":
            biases = [index for index, value in enumerate(follower.inputs) if _is_bias(value, array.shape[1])]
            if biases:
                yield Linear(array, name, (node, follower), biases[0])
                continue
        yield Linear(array, name, (node,), None)


def find_lookups(graph: ir.Graph) -> Iterator[ir.Node]:
    """Yield every lookup of many rows in a constant table. Position tables are read one row at a time, so they stay in
    fp32."""
    for node in graph:
        if node.op_type == "Gather" and is_weight(node.inputs[0]) and not node.attributes.get_int("axis", 0):
            ids = node.inputs[1]
            if ids is not None and ids.shape is not None and len(ids.shape) > 0:
                yield node


def is_weight(value: ir.Value | None, rank: int | None = 2) -> bool:
    """Return whether a value is a float32 constant large enough to quantize; ``rank`` is not checked if ``None``."""
    tensor = value.const_value if value is not None else None
    return (
        tensor is not None
        and tensor.dtype == ir.DataType.FLOAT
        and rank in (None, len(tensor.shape))
        and tensor.size >= MIN_ELEMENTS
    )


def constant_array(value: ir.Value | None) -> NDArray[np.float32]:
    """Return the content of a constant.

    Raises:
        ValueError: the value is not constant.
    """
    if value is None or value.const_value is None:
        raise ValueError("the tensor is not constant")
    return value.const_value.numpy()


def constant(graph: ir.Graph, name: str, array: NDArray[np.generic]) -> ir.Value:
    """Return the graph's initializer with this name and content; add it if it does not exist.

    Raises:
        ValueError: there is an initializer with this name and another content.
    """
    if name not in graph.initializers:
        tensor = ir.tensor(array, name=name)
        kind = ir.TensorType(tensor.dtype)
        graph.register_initializer(ir.Value(name=name, type=kind, shape=ir.Shape(array.shape), const_value=tensor))
    elif not np.array_equal(constant_array(graph.initializers[name]), array):
        raise ValueError(f"two constants of the graph would be named `{name}`")
    return graph.initializers[name]


def replace(graph: ir.Graph, old: tuple[ir.Node, ...], anchor: ir.Node, new: list[ir.Node]) -> None:
    """Replace the nodes ``old`` with ``new``; the last output keeps its name, type and consumers."""
    graph.insert_before(anchor, new)
    before, after = old[-1].outputs[0], new[-1].outputs[0]
    name, after.shape, after.type = before.name, before.shape, before.type
    before.replace_all_uses_with(after, replace_graph_outputs=True)
    graph.remove(list(reversed(old)), safe=True)
    after.name = name


def _matrix(value: ir.Value | None) -> tuple[NDArray[np.float32], str] | None:
    """Return a constant weight as ``(in, out)``, even if the graph transposes a shared table, and its name; ``None`` if
    the value is not a constant weight."""
    producer = value.producer() if value is not None else None
    if value is not None and producer is not None and producer.op_type == "Transpose":
        table = producer.inputs[0]
        return (constant_array(table).T, str(table.name)) if table is not None and is_weight(table) else None
    return (constant_array(value), str(value.name)) if value is not None and is_weight(value) else None


def _is_bias(value: ir.Value | None, width: int) -> bool:
    tensor = value.const_value if value is not None else None
    return tensor is not None and tuple(tensor.shape) == (width,)
