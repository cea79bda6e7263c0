"""Small graphs that the runtime computes with beside those of bundles; ``edgeformer_export.runtime_graphs`` writes
them."""

from __future__ import annotations

from pathlib import Path

from edgeformer_runtime.contract import DType

FOLDER = Path(__file__).parent
BEST_TOKENS = FOLDER / "best_tokens.onnx"
"""Scans logits in chunks for the most probable extensions of hypotheses."""
BEST_TOKENS_PADDED = FOLDER / "best_tokens_padded.onnx"
"""The same for vocabularies that cannot be divided into chunks of equal size; it copies the logits once more."""
INTEGER_PRODUCT = FOLDER / "integer_product.onnx"
"""``MatMulInteger``: ``a (m, k)``, uint8, and ``b (k, n)``, int8, to ``y (m, n)``, int32."""


def rows_graph(dtype: DType) -> Path:
    """``Gather``: ``x`` of any shape, and ``i (n,)``, int64, to ``y``, the rows ``i`` of ``x``."""
    return FOLDER / f"rows_{dtype}.onnx"
