"""Converts weights, state and activations to half precision, for CUDA devices."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnxruntime.transformers.float16 import convert_float_to_float16, convert_np_to_float16

from edgeformer_export.weights import rewritten, row_slices
from edgeformer_runtime.contract import ATTENTION, LOGITS


class HalfPrecisionPass(ir.passes.FunctionalPass):
    """Convert float32 to float16, except in the outputs that the host reads.

    - Constants are rounded. Those outside the range of float16 become its largest or smallest numbers, so that masks
      stay finite and constants that prevent division by zero stay positive.
    - ``Cast`` to float32, and every other operator with float32 as its output type, produces float16.
    - Operators without float16 support stay in float32, between two ``Cast`` nodes.
    - Logits and attention weights are cast to float32.

    ONNX Runtime's CUDA kernels accumulate products, softmax and the statistics of norms in float32 in either case. The
    conversion uses ONNX Runtime's own tool.
    """

    def requires(self, model: ir.Model) -> None:
        """Check that the graph computes in float32."""
        if halves := [value.name for value in model.graph.inputs if value.dtype == ir.DataType.FLOAT16]:
            raise ValueError(f"the graph is in half precision already: {', '.join(map(str, halves))}")

    def ensures(self, model: ir.Model) -> None:
        """Check that only the outputs that the host reads are float32."""
        values = [
            *model.graph.inputs,
            *(value for value in model.graph.outputs if value.name not in {LOGITS, ATTENTION}),
        ]
        if floats := [value.name for value in values if value.dtype == ir.DataType.FLOAT]:
            raise ValueError(f"these are still float32: {', '.join(map(str, floats))}")

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Convert a copy of the model."""
        converted = rewritten(model, _converted)
        for value in converted.graph.initializers.values():
            if value.const_value is not None and value.dtype != value.const_value.dtype:
                value.const_value = ir.tensor(_rounded(value.const_value.numpy()), name=value.name)
        converted.graph.sort()  # the converter appends its casts
        return ir.passes.PassResult(converted, modified=True)


def _converted(model: onnx.ModelProto) -> onnx.ModelProto:
    constants = {tensor.name for tensor in model.graph.initializer}
    # The converter casts every value that it takes for the output of a node, even a constant.
    types = [value for value in model.graph.value_info if value.name not in constants]
    del model.graph.value_info[:]
    model.graph.value_info.extend(types)
    # Types were inferred during tracing; the converter's own inference does not know ONNX Runtime's operators.
    half: onnx.ModelProto = convert_float_to_float16(model, keep_io_types=[LOGITS, ATTENTION], disable_shape_infer=True)
    return half


def _rounded(array: NDArray[np.float32]) -> NDArray[np.float16]:
    """Round a weight as the converter rounds others."""
    rounded = np.empty(array.shape, np.float16)
    for rows in row_slices(array):
        rounded[rows] = convert_np_to_float16(array[rows])
    return rounded
