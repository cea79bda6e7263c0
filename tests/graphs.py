"""Creates and runs small ONNX graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
from numpy.typing import NDArray

from edgeformer_export.quantize.calibration import QuantizationRange
from edgeformer_export.quantize.layers import ImportedScales, find_layers
from edgeformer_export.quantize.static import activations
from edgeformer_export.quantize.strategies import STRATEGIES, make_table
from edgeformer_export.quantize.table import QuantizedWeight
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.contract import DECODER_FILE
from edgeformer_runtime.engines.onnx_graphs import EXACT_PRODUCTS, products_saturate
from edgeformer_runtime.precision import Precision

RANGE = QuantizationRange(0.05, 128)
"""A range of activations."""


def model_of(text: str, **constants: NDArray[np.generic]) -> ir.Model:
    """A graph in ONNX's text form, with shapes inferred; constants are weights by name."""
    proto = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]> ' + text)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    for name, array in constants.items():
        model.graph.initializers[name].const_value = ir.tensor(array)
    return model


def linear_model(weight: NDArray[np.float32], bias: NDArray[np.float32] | None, op: str) -> ir.Model:
    """Build ``y = x W + b`` as the tracer does: MatMul and Add, or Gemm with the weight transposed."""
    body = {
        ("MatMul", False): "y = MatMul(x, w)",
        ("MatMul", True): "inner = MatMul(x, w) y = Add(inner, b)",
        ("Gemm", False): "y = Gemm<transB = 1>(x, w)",
        ("Gemm", True): "y = Gemm<transB = 1>(x, w, b)",
    }[op, bias is not None]
    constants = {"w": weight if op == "MatMul" else np.ascontiguousarray(weight.T)}
    if bias is not None:
        constants["b"] = bias
    return model_of(f"linear (float[R, {len(weight)}] x) => (float[R, {weight.shape[1]}] y) {{ {body} }}", **constants)


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


def stored_weights(
    graphs: Mapping[str, ir.Model], precision: Precision, scales: Mapping[str, ImportedScales] | None = None
) -> dict[str, dict[str, QuantizedWeight[Any]]]:
    """Round the weights of graphs, some by scales of their own; returns them by graph file and operator."""
    layers = [
        replace(layer, imported=(scales or {}).get(layer.readers[0].name)) for layer in find_layers({}, dict(graphs))
    ]
    table = make_table(layers, precision, dict)
    return {
        file: {
            reader.name: weight
            for weight in table
            if weight.precision == precision
            for reader in weight.readers
            if reader.file == file
        }
        for file in graphs
    }


def quantized(
    model: ir.Model,
    precision: Precision = "int8",
    target: Target = "ort",
    ranges: QuantizationRange | Mapping[str, QuantizationRange] = RANGE,
    scales: Mapping[str, ImportedScales] | None = None,
) -> ir.Model:
    """Quantize the weights of a decoder's graph, in place; one range is that of all activations."""
    if isinstance(ranges, QuantizationRange):
        ranges = dict.fromkeys(activations(model.graph), ranges)
    weights = stored_weights({DECODER_FILE: model}, precision, scales)[DECODER_FILE]
    STRATEGIES[precision].make_pass(weights, ranges, target)(model)
    return model
