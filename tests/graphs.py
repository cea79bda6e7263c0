"""Creates and runs small ONNX graphs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from numpy.typing import NDArray

from edgeformer_runtime.engine.integer_products import EXACT_PRODUCTS, products_saturate


def constant(name: str, array: NDArray[np.float32]) -> ir.Value:
    kind = ir.TensorType(ir.DataType.FLOAT)
    return ir.Value(name=name, const_value=ir.tensor(array), shape=ir.Shape(array.shape), type=kind)


def linear_model(weight: NDArray[np.float32], bias: NDArray[np.float32] | None, op: str) -> ir.Model:
    """Build ``y = x W + b`` as the tracer does: MatMul and Add, or Gemm with the weight transposed."""
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["R", weight.shape[0]]))
    stored = weight if op == "MatMul" else np.ascontiguousarray(weight.T)
    w = constant("w", stored)
    initializers = [w]
    inputs: list[ir.Value | None] = [x, w]
    if bias is not None:
        b = constant("b", bias)
        initializers.append(b)
    if op == "MatMul":
        nodes = [ir.node("MatMul", inputs)]
        if bias is not None:
            nodes.append(ir.node("Add", [nodes[0].outputs[0], b]))
    else:
        nodes = [ir.node("Gemm", [*inputs, b] if bias is not None else inputs, {"transB": 1})]
    y = nodes[-1].outputs[0]
    y.name, y.type, y.shape = "y", ir.TensorType(ir.DataType.FLOAT), ir.Shape(["R", weight.shape[1]])
    for index, node in enumerate(nodes[:-1]):
        node.outputs[0].name = f"inner{index}"
    graph = ir.Graph([x], [y], nodes=nodes, initializers=initializers, opset_imports={"": 20}, name="linear")
    return ir.Model(graph, ir_version=10)


def run(model: ir.Model, **feeds: NDArray[np.generic]) -> NDArray[np.float32]:
    """Run a model and return its first output."""
    return next(iter(run_all(model, **feeds).values()))


def run_all(model: ir.Model, **feeds: NDArray[np.generic]) -> dict[str, NDArray[np.float32]]:
    """Run a model and return all outputs by name, computed with exact integer products as in the runtime."""
    options = ort.SessionOptions()
    if products_saturate():
        options.add_session_config_entry(*EXACT_PRODUCTS)
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, feeds), strict=True))
