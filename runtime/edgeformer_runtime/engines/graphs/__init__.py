"""Small graphs that the runtime uses in addition to those of bundles; written by
``edgeformer_export.runtime_graphs``."""

from __future__ import annotations

from pathlib import Path

from edgeformer_runtime.contract import DType

FOLDER = Path(__file__).parent
BEST_TOKENS = FOLDER / "best_tokens.onnx"
"""Finds the most probable extensions of each sentence's hypotheses."""
BEST_TOKENS_CHUNKED = FOLDER / "best_tokens_chunked.onnx"
"""Like :data:`BEST_TOKENS`, but scans each row in chunks: faster for large vocabularies."""
BEST_TOKENS_PADDED = FOLDER / "best_tokens_padded.onnx"
"""Like :data:`BEST_TOKENS_CHUNKED`, for vocabularies that cannot be divided into chunks of equal size; makes one more
copy of the logits."""
INTEGER_PRODUCT = FOLDER / "integer_product.onnx"
"""``MatMulInteger``: ``a (m, k)``, uint8, and ``b (k, n)``, int8, to ``y (m, n)``, int32."""


def rows_graph(dtype: DType) -> Path:
    """Graph of ``Gather``: ``x`` of any shape and ``i (n,)``, int64, to ``y``, the rows ``i`` of ``x``."""
    return FOLDER / f"rows_{dtype}.onnx"
