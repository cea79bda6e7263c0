"""Weights to int8 per output channel, activations to uint8 with calibrated ranges."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes import common

from edgeformer_export.calibrate import QuantizationRange
from edgeformer_runtime.manifest import Target

MICROSOFT = "com.microsoft"
MIN_ELEMENTS = 256
"""Smaller weights stay in fp32: they save nothing."""
MIN_WIDTH = 8
"""Weights with fewer columns stay in fp32: an integer product would not be faster."""
STORED_ONLY = {"LSTM": ((1, 2), 2), "GRU": ((1, 2), 2), "Conv": ((1,), 1)}
"""Operators whose arithmetic stays in fp32: places of their weights, and leading axes that have a scale for each index
(direction and unit of a gate; output channel)."""


@dataclass(frozen=True)
class Linear:
    """A matrix product with a constant weight, and the bias addition behind it, if any."""

    activation: ir.Value
    weight: NDArray[np.float32]
    """``(in, out)``."""
    bias: ir.Value | None
    output: ir.Value
    nodes: tuple[ir.Node, ...]


class QuantizeStatic(ir.passes.InPlacePass):
    """Replace matrix products and embedding look-ups by integer ones.

    The activation's scale is fixed at export, so a row's result does not depend on the other rows of its batch.

    - ``MatMul(x, W) [+ b]``, ``Gemm(x, W, b)`` become ``QuantizeLinear`` (uint8) and ``MatMulIntegerToFloat`` (target
      ``ort``) or ``MatMulInteger``, ``Cast``, ``Mul``, ``Add`` (``portable``).
    - ``Gather(table, ids)`` reads int8 rows and scales what it read. A table that is an output projection too is stored
      once, as the projection's ``(D, V)``, and gathered along its second axis.
    - ``LSTM``, ``GRU`` and ``Conv`` keep their arithmetic, since no integer operator for them has fixed scales and is
      fast: their weights are stored as int8, and the engine makes floats of them when it opens the graph.
    """

    def __init__(self, ranges: Mapping[str, QuantizationRange], target: Target, projections: frozenset[str]) -> None:
        """Set up.

        Args:
            ranges: range of each activation by its name, for every name of :func:`activations`.
            target: which operators may be used.
            projections: :func:`projection_digests` of both graphs.
        """
        super().__init__()
        self._ranges, self._target, self._projections = ranges, target, projections

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the graph in place."""
        graph = model.graph
        quantized_inputs: dict[str, ir.Value] = {}
        linears, lookups, stored = list(find_linears(graph)), list(find_lookups(graph)), list(find_stored(graph))
        for linear in linears:
            self._replace_linear(graph, linear, quantized_inputs)
        for node in lookups:
            self._replace_lookup(graph, node)
        for node, index in stored:
            _store_as_integers(graph, node, index)
        if self._target == "ort" and linears:
            model.opset_imports.setdefault(MICROSOFT, 1)
        common.RemoveUnusedNodesPass()(model)
        return ir.passes.PassResult(model, modified=bool(linears or lookups or stored))

    def _replace_linear(self, graph: ir.Graph, linear: Linear, quantized_inputs: dict[str, ir.Value]) -> None:
        name = str(linear.output.name)
        bounds = self._ranges[str(linear.activation.name)]
        weight, weight_scale = quantize_columns(linear.weight)
        scale = _constant(graph, f"{linear.activation.name}.scale", np.array(bounds.scale, np.float32))
        zero_point = _constant(graph, f"{linear.activation.name}.zero_point", np.array(bounds.zero_point, np.uint8))
        anchor, added = linear.nodes[0], []
        activation = quantized_inputs.get(str(linear.activation.name))
        if activation is None:
            node = ir.node("QuantizeLinear", [linear.activation, scale, zero_point])
            activation = quantized_inputs[str(linear.activation.name)] = node.outputs[0]
            activation.name = f"{linear.activation.name}.uint8"
            added.append(node)
        packed = _constant(graph, f"{name}.weight.int8", weight)
        if self._target == "ort":
            inputs = [
                activation,
                packed,
                scale,
                _constant(graph, f"{name}.weight.scale", weight_scale),
                zero_point,
                None,
            ]
            added.append(ir.node("MatMulIntegerToFloat", [*inputs, linear.bias], domain=MICROSOFT))
        else:
            product = ir.node("MatMulInteger", [activation, packed, zero_point])
            cast = ir.node("Cast", [product.outputs[0]], {"to": ir.DataType.FLOAT})
            scales = _constant(graph, f"{name}.scale", weight_scale * np.float32(bounds.scale))
            added += [product, cast, ir.node("Mul", [cast.outputs[0], scales])]
            if linear.bias is not None:
                added.append(ir.node("Add", [added[-1].outputs[0], linear.bias]))
        _replace(graph, linear.nodes, anchor, added)

    def _replace_lookup(self, graph: ir.Graph, node: ir.Node) -> None:
        table, ids = _array(node.inputs[0]), node.inputs[1]
        name = str(node.outputs[0].name)
        values, scale = quantize_columns(table.T)
        tied = _digest(table) in self._projections
        packed = _constant(graph, f"{name}.table.int8", values if tied else np.ascontiguousarray(values.T))
        scales = _constant(graph, f"{name}.table.scale", scale[:, None])
        gathered = ir.node("Gather", [packed, ids], {"axis": int(tied)})
        added = [gathered]
        if tied:
            # (D, …) -> (…, D)
            rank = len(node.outputs[0].shape) if node.outputs[0].shape is not None else None
            if rank is None:
                raise ValueError(f"the rank of `{name}` is unknown")
            added.append(ir.node("Transpose", [gathered.outputs[0]], {"perm": [*range(1, rank), 0]}))
        cast = ir.node("Cast", [added[-1].outputs[0]], {"to": ir.DataType.FLOAT})
        row_scale = ir.node("Gather", [scales, ids], {"axis": 0})
        added += [cast, row_scale, ir.node("Mul", [cast.outputs[0], row_scale.outputs[0]])]
        _replace(graph, (node,), node, added)


def quantize_columns(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Symmetric int8 quantization with one scale per column.

    Returns:
        Integers ``(in, out)`` in -127 … 127 and scales ``(out,)``, so that ``weight ≈ integers * scales``.
    """
    scale = (np.abs(weight).max(axis=0) / 127).astype(np.float32)
    scale[scale == 0] = 1.0
    return np.ascontiguousarray(np.clip(np.rint(weight / scale), -127, 127).astype(np.int8)), scale


def activations(graph: ir.Graph) -> list[str]:
    """Names of all tensors that need a calibrated range."""
    return sorted({str(linear.activation.name) for linear in find_linears(graph)})


def projection_digests(graph: ir.Graph) -> frozenset[str]:
    """Digests of the weights, as ``(out, in)``, that are embedding tables of the same content if tied."""
    return frozenset(_digest(np.ascontiguousarray(linear.weight.T)) for linear in find_linears(graph))


def find_linears(graph: ir.Graph) -> Iterator[Linear]:
    """Every matrix product with a constant weight of a worthwhile size."""
    for node in graph:
        if node.op_type not in {"MatMul", "Gemm"} or node.domain != "" or node.inputs[0] is None:
            continue
        array = _matrix(node.inputs[1])
        if array is None:
            continue
        if node.op_type == "Gemm":
            attributes = node.attributes
            if (
                attributes.get_float("alpha", 1.0) != 1
                or attributes.get_float("beta", 1.0) != 1
                or attributes.get_int("transA")
            ):
                continue
            bias = node.inputs[2] if len(node.inputs) > 2 else None
            array = array.T if attributes.get_int("transB", 0) else array
            if array.shape[1] >= MIN_WIDTH:
                yield Linear(node.inputs[0], array, bias, node.outputs[0], (node,))
            continue
        if array.shape[1] < MIN_WIDTH:
            continue
        consumers = list(node.outputs[0].uses())
        follower = consumers[0].node if len(consumers) == 1 and not node.outputs[0].is_graph_output() else None
        bias = next((v for v in follower.inputs if _is_bias(v, array.shape[1])), None) if follower is not None else None
        if follower is not None and follower.op_type == "Add" and bias is not None:
            yield Linear(node.inputs[0], array, bias, follower.outputs[0], (node, follower))
        else:
            yield Linear(node.inputs[0], array, None, node.outputs[0], (node,))


def find_lookups(graph: ir.Graph) -> Iterator[ir.Node]:
    """Every look-up of many rows in a constant table. Position tables are read one row at a time and stay in fp32."""
    for node in graph:
        if node.op_type == "Gather" and _is_weight(node.inputs[0]) and not node.attributes.get_int("axis", 0):
            ids = node.inputs[1]
            if ids is not None and ids.shape is not None and len(ids.shape) > 0:
                yield node


def find_stored(graph: ir.Graph) -> Iterator[tuple[ir.Node, int]]:
    """Every operator whose constant weights are to be stored as integers only, with their places among its inputs."""
    for node in graph:
        if node.domain == "" and node.op_type in STORED_ONLY:
            for index in STORED_ONLY[node.op_type][0]:
                if _is_weight(node.inputs[index], rank=None):
                    yield node, index


def _store_as_integers(graph: ir.Graph, node: ir.Node, index: int) -> None:
    """Let a weight be computed from int8 values, with one scale for each index of its leading axes."""
    weight, leading = _array(node.inputs[index]), STORED_ONLY[node.op_type][1]
    name = f"{node.outputs[0].name}.weight.{index}"
    values, scale = quantize_columns(weight.reshape(int(np.prod(weight.shape[:leading])), -1).T)
    packed = _constant(graph, f"{name}.int8", np.ascontiguousarray(values.T).reshape(weight.shape))
    scale_shape = (*weight.shape[:leading], *[1] * (weight.ndim - leading))
    scales = _constant(graph, f"{name}.scale", scale.reshape(scale_shape))
    cast = ir.node("Cast", [packed], {"to": ir.DataType.FLOAT})
    product = ir.node("Mul", [cast.outputs[0], scales])
    cast.outputs[0].name, product.outputs[0].name = f"{name}.cast", name
    graph.insert_before(node, [cast, product])
    node.replace_input_with(index, product.outputs[0])


def _matrix(value: ir.Value | None) -> NDArray[np.float32] | None:
    """A constant weight ``(in, out)``, also where the graph transposes a table that it shares; none if neither."""
    producer = value.producer() if value is not None else None
    if producer is not None and producer.op_type == "Transpose" and _is_weight(producer.inputs[0]):
        return _array(producer.inputs[0]).T
    return _array(value) if _is_weight(value) else None


def _is_weight(value: ir.Value | None, rank: int | None = 2) -> bool:
    tensor = value.const_value if value is not None else None
    return (
        tensor is not None
        and tensor.dtype == ir.DataType.FLOAT
        and rank in (None, len(tensor.shape))
        and tensor.size >= MIN_ELEMENTS
    )


def _is_bias(value: ir.Value | None, width: int) -> bool:
    tensor = value.const_value if value is not None else None
    return tensor is not None and tuple(tensor.shape) == (width,)


def _array(value: ir.Value | None) -> NDArray[np.float32]:
    if value is None or value.const_value is None:
        raise ValueError("the tensor is not constant")
    return value.const_value.numpy()


def _digest(array: NDArray[np.float32]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _constant(graph: ir.Graph, name: str, array: NDArray[np.generic]) -> ir.Value:
    """An initializer; one made before under the same name is used again."""
    if name not in graph.initializers:
        tensor = ir.tensor(array, name=name)
        kind = ir.TensorType(tensor.dtype)
        graph.register_initializer(ir.Value(name=name, type=kind, shape=ir.Shape(array.shape), const_value=tensor))
    return graph.initializers[name]


def _replace(graph: ir.Graph, old: tuple[ir.Node, ...], anchor: ir.Node, new: list[ir.Node]) -> None:
    """Put ``new`` in the place of ``old``; the last output keeps its name, type and consumers."""
    graph.insert_before(anchor, new)
    before, after = old[-1].outputs[0], new[-1].outputs[0]
    name, after.shape, after.type = before.name, before.shape, before.type
    before.replace_all_uses_with(after, replace_graph_outputs=True)
    graph.remove(list(reversed(old)), safe=True)
    after.name = name
