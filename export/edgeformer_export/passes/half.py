"""Converts weights, state and activations to half precision, for CUDA devices."""

from __future__ import annotations

import onnx_ir as ir
from onnxruntime.transformers.float16 import convert_float_to_float16

from edgeformer_runtime.contract import ATTENTION, LOGITS


class HalfPrecision(ir.passes.FunctionalPass):
    """Convert float32 to float16, except in the outputs that the host reads.

    - Constants are rounded. Those outside the range of float16 become its largest or smallest numbers, so that masks
      stay finite and constants that prevent division by zero stay positive.
    - ``Cast`` to float32, and every other operator with float32 as its output type, produces float16.
    - Operators without float16 support stay in float32, between two ``Cast`` nodes.
    - Logits and attention weights are cast to float32.

    ONNX Runtime's CUDA kernels accumulate products, softmax and the statistics of norms in float32 in either case. The
    conversion uses ONNX Runtime's own tool.
    """

    may_grow = True
    """Casts may enlarge a graph without weights."""

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
        before = ir.to_proto(model)
        constants = {tensor.name for tensor in before.graph.initializer}
        # The converter casts every value that it takes for the output of a node, even a constant.
        types = [value for value in before.graph.value_info if value.name not in constants]
        del before.graph.value_info[:]
        before.graph.value_info.extend(types)
        # Types were inferred during tracing; the converter's own inference does not know ONNX Runtime's operators.
        after = convert_float_to_float16(before, keep_io_types=[LOGITS, ATTENTION], disable_shape_infer=True)
        converted = ir.from_proto(after)
        converted.graph.sort()  # the converter appends its casts
        return ir.passes.PassResult(converted, modified=True)
