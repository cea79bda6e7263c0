"""Quantizes weights to int8 per output channel, and activations to uint8 with calibrated ranges."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes import common

from edgeformer_export.passes.patterns import (
    MICROSOFT,
    Linear,
    constant,
    constant_array,
    find_linears,
    find_lookups,
    is_chosen,
    is_weight,
    replace,
)
from edgeformer_export.quantize.calibration import QuantizationRange
from edgeformer_export.weights import digest, row_slices
from edgeformer_runtime.bundle.manifest import Target

SYMMETRIC_ZERO = 127
"""Zero point of activations whose integers are in -127 … 127, stored as uint8."""
STORED_ONLY = {"LSTM": ((1, 2), 2), "GRU": ((1, 2), 2), "Conv": ((1,), 1)}
"""Operators whose arithmetic stays in fp32: indices of their weights among the inputs, and the number of leading axes
with one scale per index (direction and unit of a gate; output channel)."""


@dataclass(frozen=True)
class GivenScales:
    """Scales of a weight that was quantized elsewhere, whose integers are to be kept."""

    rows: NDArray[np.float32]
    """Scale of each output, or of each row of a table, ``(out,)``."""
    activation: float | None
    """Scale of the inputs of a matrix product, whose integers are in -127 … 127; ``None`` if they are calibrated."""


class _QuantizedInput(NamedTuple):
    """The input of integer products, with the constants that it was rounded by."""

    integers: ir.Value
    scale: ir.Value
    zero_point: ir.Value


class QuantizeStatic(ir.passes.InPlacePass):
    """Replace matrix products and embedding lookups with integer operators.

    The activation's scale is fixed at export, so a row's result is independent of the other rows in its batch.

    - ``MatMul(x, W) [+ b]``, ``Gemm(x, W, b)`` become ``QuantizeLinear`` (uint8) and ``MatMulIntegerToFloat``, or
      ``QGemm`` where the weight is transposed (target ``ort``); ``MatMulInteger``, ``Cast``, ``Mul``, ``Add``
      (``portable``).
    - ``Relu`` before ``QuantizeLinear`` is removed, since the integers are never negative.
    - ``Gather(table, ids)`` reads int8 rows and scales them; a factor applied to the result is folded into the scale. A
      table that is also the output projection is stored once: for ``QGemm``, as the table's rows; for ``portable``, as
      the ``(D, V)`` matrix of the projection, which is gathered along its second axis.
    - ``LSTM``, ``GRU`` and ``Conv`` keep their arithmetic, since they have no integer operator that is fast and has
      fixed scales: their weights are stored as int8, and the engine converts them to float when it opens the graph.
    """

    def __init__(
        self,
        ranges: Mapping[str, QuantizationRange],
        target: Target,
        projections: frozenset[str],
        only: Container[str] | None = None,
        given: Mapping[str, GivenScales] | None = None,
    ) -> None:
        """Set up the pass.

        Args:
            ranges: range of each activation by name, for every name in :func:`activations`.
            target: which operators may be used.
            projections: combined :func:`projection_digests` of both graphs.
            only: names of :class:`~edgeformer_export.quantize.layers.Use` to replace; ``None`` for all.
            given: scales that are kept, by the same names.
        """
        super().__init__()
        self._given = given or {}
        self._ranges, self._target, self._projections = ranges, target, projections
        self._only = only

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the graph in place."""
        graph = model.graph
        quantized_inputs: dict[tuple[str, QuantizationRange], _QuantizedInput] = {}
        linears = [linear for linear in find_linears(graph) if is_chosen(linear.output.name, self._only)]
        lookups = [node for node in find_lookups(graph) if is_chosen(node.outputs[0].name, self._only)]
        stored = [weight for weight in find_stored(graph) if is_chosen(stored_name(*weight), self._only)]
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

    def _replace_linear(
        self, graph: ir.Graph, linear: Linear, quantized_inputs: dict[tuple[str, QuantizationRange], _QuantizedInput]
    ) -> None:
        given = self._given.get(str(linear.output.name))
        source, bounds = linear.activation, self._ranges[str(linear.activation.name)]
        if is_symmetric := given is not None and given.activation is not None:
            bounds = QuantizationRange(given.activation, SYMMETRIC_ZERO)
        relu = source.producer()
        if relu is not None and relu.op_type == "Relu" and bounds.zero_point == 0 and relu.inputs[0] is not None:
            source = relu.inputs[0]  # negative values become zero anyway
        added = []
        name = str(linear.activation.name)
        key = name, bounds
        if key not in quantized_inputs:
            suffix = f".{len(quantized_inputs) + 1}" * is_symmetric
            scale = constant(graph, f"{name}.scale{suffix}", np.array(bounds.scale, np.float32))
            zero_point = constant(graph, f"{name}.zero_point{suffix}", np.array(bounds.zero_point, np.uint8))
            added.append(ir.node("QuantizeLinear", [source, scale, zero_point]))
            if is_symmetric:
                highest = constant(graph, "highest_symmetric_integer", np.array(2 * SYMMETRIC_ZERO, np.uint8))
                added.append(ir.node("Clip", [added[-1].outputs[0], None, highest]))
            added[-1].outputs[0].name = f"{name}.uint8{suffix}"
            quantized_inputs[key] = _QuantizedInput(added[-1].outputs[0], scale, zero_point)
        added += self._product(graph, linear, quantized_inputs[key])
        replace(graph, linear.nodes, linear.nodes[0], added)

    def _product(self, graph: ir.Graph, linear: Linear, quantized: _QuantizedInput) -> list[ir.Node]:
        """Make the nodes of an integer matrix product, including rescaling and bias."""
        activation, scale, zero_point = quantized
        name = f"{linear.output.name}.weight"
        weight, weight_scale = quantize_columns(linear.weight, self._given_rows(linear.output))
        if self._target == "portable":
            packed = constant(graph, f"{name}.int8", weight)
            product = ir.node("MatMulInteger", [activation, packed, zero_point])
            cast = ir.node("Cast", [product.outputs[0]], {"to": ir.DataType.FLOAT})
            scales = constant(graph, f"{name}.scale", weight_scale * constant_array(scale))
            nodes = [product, cast, ir.node("Mul", [cast.outputs[0], scales])]
        elif linear.nodes[0].op_type == "Gemm" and linear.nodes[0].attributes.get_int("transB"):
            rows = constant(graph, f"{name}.int8", np.ascontiguousarray(weight.T))
            zeros = constant(graph, f"{name}.zero_point", np.zeros(len(weight_scale), np.int8))
            scales = constant(graph, f"{name}.scale", weight_scale)
            inputs = [activation, scale, zero_point, rows, scales, zeros]
            nodes = [ir.node("QGemm", inputs, {"transB": 1}, domain=MICROSOFT)]  # its own bias would be in integers
        else:
            packed, scales = constant(graph, f"{name}.int8", weight), constant(graph, f"{name}.scale", weight_scale)
            operands = [activation, packed, scale, scales, zero_point, None, linear.bias]
            return [ir.node("MatMulIntegerToFloat", operands, domain=MICROSOFT)]
        if linear.bias is not None:
            nodes.append(ir.node("Add", [nodes[-1].outputs[0], linear.bias]))
        return nodes

    def _replace_lookup(self, graph: ir.Graph, node: ir.Node) -> None:
        table, ids = constant_array(node.inputs[0]), node.inputs[1]
        name = str(node.outputs[0].name)
        values, scale = quantize_columns(table.T, self._given_rows(node.outputs[0]))
        transposed = self._target == "portable" and digest(table) in self._projections
        factor = _factor(node)
        nodes = (node,) if factor is None else (node, factor[0])
        packed = constant(graph, f"{name}.table.int8", values if transposed else np.ascontiguousarray(values.T))
        scale = scale if factor is None else scale * factor[1]
        scales = constant(graph, f"{name}.table.scale", scale[:, None])
        gathered = ir.node("Gather", [packed, ids], {"axis": int(transposed)})
        added = [gathered]
        if transposed:
            # (D, …) -> (…, D)
            rank = len(node.outputs[0].shape) if node.outputs[0].shape is not None else None
            if rank is None:
                raise ValueError(f"the rank of `{name}` is unknown")
            added.append(ir.node("Transpose", [gathered.outputs[0]], {"perm": [*range(1, rank), 0]}))
        cast = ir.node("Cast", [added[-1].outputs[0]], {"to": ir.DataType.FLOAT})
        row_scale = ir.node("Gather", [scales, ids], {"axis": 0})
        added += [cast, row_scale, ir.node("Mul", [cast.outputs[0], row_scale.outputs[0]])]
        replace(graph, nodes, node, added)

    def _given_rows(self, output: ir.Value) -> NDArray[np.float32] | None:
        given = self._given.get(str(output.name))
        return None if given is None else given.rows


def _factor(lookup: ir.Node) -> tuple[ir.Node, np.float32] | None:
    """Return the only operator that uses a lookup if it multiplies by a scalar, together with the scalar."""
    uses = list(lookup.outputs[0].uses())
    if len(uses) != 1 or lookup.outputs[0].is_graph_output() or uses[0].node.op_type != "Mul":
        return None
    product = uses[0].node
    for value in product.inputs:
        tensor = value.const_value if value is not None else None
        if tensor is not None and tensor.size == 1:
            return product, np.float32(tensor.numpy().item())
    return None


def quantize_columns(
    weight: NDArray[np.float32], scale: NDArray[np.float32] | None = None
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantize to int8 symmetrically, with one scale per column.

    Args:
        weight: ``(in, out)``.
        scale: scales ``(out,)``; by default, those that map the largest weight of a column to 127.

    Returns:
        Integers ``(in, out)`` in -127 … 127 and scales ``(out,)``, so that ``weight ≈ integers * scales``.
    """
    if scale is None:
        scale = (np.maximum(weight.max(axis=0), -weight.min(axis=0)) / 127).astype(np.float32)
        scale[scale == 0] = 1.0
    integers = np.empty(weight.shape, np.int8)
    for columns in row_slices(weight.T):
        integers[:, columns] = np.clip(np.rint(weight[:, columns] / scale[columns]), -127, 127)
    return integers, scale


def activations(graph: ir.Graph) -> list[str]:
    """List the names of all tensors that need a calibrated range."""
    return sorted({str(linear.activation.name) for linear in find_linears(graph)})


def projection_digests(graph: ir.Graph) -> frozenset[str]:
    """Compute digests of the weights of matrix products as ``(out, in)``, including that of a tied embedding table."""
    return frozenset(digest(linear.weight.T) for linear in find_linears(graph))


def find_stored(graph: ir.Graph) -> Iterator[tuple[ir.Node, int]]:
    """Yield every operator whose constant weights are only stored as integers, with the index of each weight."""
    for node in graph:
        if node.domain == "" and node.op_type in STORED_ONLY:
            for index in STORED_ONLY[node.op_type][0]:
                if is_weight(node.inputs[index], rank=None):
                    yield node, index


def stored_name(node: ir.Node, index: int) -> str:
    """Return the name of a weight that is only stored as integers."""
    return f"{node.outputs[0].name}.weight.{index}"


def stored_rows(node: ir.Node, index: int) -> NDArray[np.float32]:
    """Return a weight that is only stored as integers as ``(rows, values)``; each row has its own scale."""
    weight, leading = constant_array(node.inputs[index]), STORED_ONLY[node.op_type][1]
    return weight.reshape(int(np.prod(weight.shape[:leading])), -1)


def _store_as_integers(graph: ir.Graph, node: ir.Node, index: int) -> None:
    """Replace a weight with its computation from int8 values, with one scale per index of its leading axes."""
    weight, leading = constant_array(node.inputs[index]), STORED_ONLY[node.op_type][1]
    name = stored_name(node, index)
    values, scale = quantize_columns(stored_rows(node, index).T)
    packed = constant(graph, f"{name}.int8", np.ascontiguousarray(values.T).reshape(weight.shape))
    scale_shape = (*weight.shape[:leading], *[1] * (weight.ndim - leading))
    scales = constant(graph, f"{name}.scale", scale.reshape(scale_shape))
    cast = ir.node("Cast", [packed], {"to": ir.DataType.FLOAT})
    product = ir.node("Mul", [cast.outputs[0], scales])
    cast.outputs[0].name, product.outputs[0].name = f"{name}.cast", name
    graph.insert_before(node, [cast, product])
    node.replace_input_with(index, product.outputs[0])
