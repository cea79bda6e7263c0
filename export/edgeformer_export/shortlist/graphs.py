"""The graphs of a shortlist: the weights of listed tokens, and a step decoder that scores only these tokens."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from edgeformer_export.passes.patterns import Linear, constant, constant_array, find_linears
from edgeformer_export.writer import ExportError
from edgeformer_runtime import contract


def output_projection(decoder: ir.Model) -> Linear:
    """Find the matrix product that computes the logits of a decoder that is not quantized.

    Raises:
        ExportError: the logits are computed in another way.
    """
    for linear in find_linears(decoder.graph):
        if linear.output.name == contract.LOGITS:
            return linear
    raise ExportError(
        "The model's logits are not the product of a trained matrix and one vector per row, which a shortlist needs; "
        "export it without --shortlist."
    )


def weight_graph(decoder: ir.Model) -> ir.Model:
    """Make the graph that reads the weights of listed tokens, from ``listed (C,)`` to ``listed_weight (C, D)`` and
    ``projection_bias (C,)``.

    The weights are looked up as those of an embedding are, so that a pass can quantize both alike.

    Args:
        decoder: the step decoder, before it is quantized.

    Raises:
        ExportError: see :func:`output_projection`.
    """
    linear = output_projection(decoder)
    width = linear.weight.shape[0]
    listed = _value(contract.LISTED, ir.DataType.INT64, (contract.LISTED_AXIS,))
    graph = ir.Graph([listed], [], nodes=[], opset_imports=dict(decoder.graph.opset_imports), name="shortlist_weight")
    table = constant(graph, linear.constant, np.ascontiguousarray(linear.weight.T))
    rows = ir.node("Gather", [table, listed])
    bias = linear.bias
    if bias is None:
        shape = ir.node("Shape", [listed])
        biases = ir.node("ConstantOfShape", [shape.outputs[0]], {"value": ir.tensor(np.zeros(1, np.float32))})
        nodes = [rows, shape, biases]
    else:
        biases = ir.node("Gather", [constant(graph, "bias", constant_array(bias)), listed])
        nodes = [rows, biases]
    graph.extend(nodes)
    for node, name, axes in (
        (rows, contract.LISTED_WEIGHT, (contract.LISTED_AXIS, width)),
        (biases, contract.PROJECTION_BIAS, (contract.LISTED_AXIS,)),
    ):
        output = node.outputs[0]
        output.name, output.shape, output.type = name, ir.Shape(axes), ir.TensorType(ir.DataType.FLOAT)
        graph.outputs.append(output)
    return ir.Model(graph, ir_version=decoder.ir_version)


def restricted(decoder: ir.Model, features: str, width: int) -> ir.Model:
    """Make a step decoder that scores listed tokens only, with the weights that it is given.

    Args:
        decoder: the step decoder, quantized or not, without attention weights.
        features: name of the tensor that its output projection reads, ``(R, D)``.
        width: D.
    """
    model = decoder.clone()
    graph = model.graph
    x = next(value for node in graph for value in node.outputs if value.name == features)
    weight = _value(contract.LISTED_WEIGHT, ir.DataType.FLOAT, (contract.LISTED_AXIS, width))
    bias = _value(contract.LISTED_BIAS, ir.DataType.FLOAT, (contract.ROWS, contract.LISTED_AXIS))
    graph.inputs.extend([weight, bias])
    product = ir.node("Gemm", [x, weight, bias], {"transB": 1})
    graph.append(product)
    index = [value.name for value in graph.outputs].index(contract.LOGITS)
    graph.outputs[index].name = "logits.whole"
    logits = product.outputs[0]
    logits.name, logits.type = contract.LOGITS, ir.TensorType(ir.DataType.FLOAT)
    logits.shape = ir.Shape([contract.ROWS, contract.LISTED_AXIS])
    graph.outputs[index] = logits
    common.RemoveUnusedNodesPass()(model)
    return model


def _value(name: str, dtype: ir.DataType, axes: tuple[str | int, ...]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(axes))
