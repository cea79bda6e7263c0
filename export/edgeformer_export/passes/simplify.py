"""Constant folding and node elimination by onnxsim."""

from __future__ import annotations

import onnx_ir as ir
import onnxsim

_SKIPPED = [
    # On inputs of three axes these put a Reshape before and behind every Gemm.
    "fuse_matmul_add_bias_into_gemm",
    "fuse_matmul_add_bias_into_gemm_batched",
    # Merges products but not their biases, and in the encoder too: see MergeLinears.
    "fuse_qkv",
]


class Simplify(ir.passes.FunctionalPass):
    """Run onnxsim; its rules: constant folding, shape inference, elimination and fusion of ``onnxoptimizer``.

    Names and order of inputs and outputs are the contract, so a result that changes them is an error.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Simplify a copy of the model."""
        before = ir.to_proto(model)
        after, valid = onnxsim.simplify(before, skipped_optimizers=_SKIPPED)
        if not valid:
            raise RuntimeError("onnxsim's own check of the simplified graph failed")
        simplified = ir.from_proto(after)
        if _signature(simplified) != _signature(model):
            raise RuntimeError("onnxsim changed the graph's inputs or outputs")
        return ir.passes.PassResult(simplified, modified=before.graph.node != after.graph.node)


def _signature(model: ir.Model) -> tuple[list[str | None], list[str | None]]:
    return [value.name for value in model.graph.inputs], [value.name for value in model.graph.outputs]
