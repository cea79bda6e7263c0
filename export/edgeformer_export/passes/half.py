"""Weights, state and activations in half precision, for CUDA devices."""

from __future__ import annotations

import onnx_ir as ir
from onnxruntime.transformers.float16 import convert_float_to_float16

from edgeformer_runtime.contract import ATTENTION, LOGITS


class HalfPrecision(ir.passes.FunctionalPass):
    """Turn float32 into float16 everywhere but in the outputs that the host reads.

    - Constants are rounded. Those out of float16's range become its largest or smallest numbers, so a mask's fill stays
      finite, and what guards against a division by zero stays above it.
    - ``Cast`` to float32, and whatever else is told to yield float32, yields float16.
    - Operators that take no float16 keep float32, between two ``Cast``.
    - Logits and attention weights come out of a ``Cast`` to float32.

    Products, softmax and the statistics of norms add up in float32 inside ONNX Runtime's CUDA kernels, whatever they
    are given. The conversion is ONNX Runtime's own.
    """

    may_grow = True
    """By casts, in a graph without weights."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Convert a copy of the model."""
        before = ir.to_proto(model)
        constants = {tensor.name for tensor in before.graph.initializer}
        # What it takes for the result of a node, it casts, even where it leaves a constant as it is.
        types = [value for value in before.graph.value_info if value.name not in constants]
        del before.graph.value_info[:]
        before.graph.value_info.extend(types)
        # The types were inferred when the graph was traced: its own inference does not know ONNX Runtime's operators.
        after = convert_float_to_float16(before, keep_io_types=[LOGITS, ATTENTION], disable_shape_infer=True)
        converted = ir.from_proto(after)
        converted.graph.sort()  # it puts its casts at the end
        return ir.passes.PassResult(converted, modified=True)
