"""Constant folding and node elimination with onnxsim."""

from __future__ import annotations

import contextlib
import io
import sys
from functools import partial

import onnx
import onnx_ir as ir
import onnxsim
from onnxscript.optimizer import fold_constants

from edgeformer_export.passes.names import fold
from edgeformer_export.weights import rewritten

_SKIPPED = [
    # Puts a Reshape before and after every Gemm whose input has three axes.
    "fuse_matmul_add_bias_into_gemm",
    "fuse_matmul_add_bias_into_gemm_batched",
    # Merges products but not their biases, even in the encoder: see MergeLinearsPass.
    "fuse_qkv",
]


class SimplifyPass(ir.passes.FunctionalPass):
    """Run onnxsim: constant folding, shape inference, and the eliminations and fusions of ``onnxoptimizer``.

    Torch's tracer leaves little to simplify. In the graphs of this project's families, these rules apply:

    - ``Reshape(Reshape(x, a), b)`` becomes ``Reshape(x, b)``, and the computation of ``a`` is removed.
    - ``Concat(Concat(x, y), z)`` becomes ``Concat(x, y, z)``.
    - Equal constants are merged.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Simplify a copy of the model."""
        model = model.clone()
        # onnxsim does not see large weights, so what is computed from them is folded first.
        fold(model, partial(fold_constants, model, should_fold=_is_worth_folding, output_size_limit=sys.maxsize))
        with contextlib.redirect_stdout(io.StringIO()):  # it prints that it does not know onnxruntime's own operators
            simplified = rewritten(model, _simplified)
        return ir.passes.PassResult(simplified, modified=True)


def _is_worth_folding(node: ir.Node) -> bool:
    """Whether a node's result may become a constant: not if that would store a weight twice, which others read."""
    weights = [value for value in node.inputs if value is not None and value.is_initializer()]
    return all({use.node for use in weight.uses()} == {node} for weight in weights)


def _simplified(model: onnx.ModelProto) -> onnx.ModelProto:
    simplified: onnx.ModelProto
    simplified, valid = onnxsim.simplify(model, skipped_optimizers=_SKIPPED)
    if not valid:
        raise RuntimeError("onnxsim's own check of the simplified graph failed")
    return simplified
