"""Writes the small graphs that the runtime uses in addition to those of bundles.

Usage: ``python -m edgeformer_export.runtime_graphs``
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgeformer_runtime.contract import DType
from edgeformer_runtime.engine.graphs import BEST_TOKENS, BEST_TOKENS_PADDED, INTEGER_PRODUCT, rows_graph


def runtime_graphs() -> Iterator[tuple[Path, onnx.ModelProto]]:
    """Yield every graph with the path that the runtime reads it from."""
    yield BEST_TOKENS, best_tokens(padded=False)
    yield BEST_TOKENS_PADDED, best_tokens(padded=True)
    yield INTEGER_PRODUCT, integer_product()
    for dtype in get_args(DType):
        yield rows_graph(dtype), rows(dtype)


def integer_product() -> onnx.ModelProto:
    """Build an integer matrix product: ``a (m, k)``, uint8, and ``b (k, n)``, int8, to ``y (m, n)``, int32."""
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        "integer_product",
        [
            helper.make_tensor_value_info("a", TensorProto.UINT8, ["m", "k"]),
            helper.make_tensor_value_info("b", TensorProto.INT8, ["k", "n"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["m", "n"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=5)


def rows(dtype: DType) -> onnx.ModelProto:
    """Build a row selection: from ``x`` of any shape and ``i (n,)``, int64, to ``y``, the rows ``i`` of ``x``."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["y"])],
        "rows",
        [
            helper.make_tensor_value_info("x", kind, None),
            helper.make_tensor_value_info("i", TensorProto.INT64, ["n"]),
        ],
        [helper.make_tensor_value_info("y", kind, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def _best_token_nodes(*, padded: bool) -> list[onnx.NodeProto]:
    """List the nodes of :func:`best_tokens`."""
    node = helper.make_node
    rows = "padded" if padded else "all"
    return [
        node("LogSoftmax", ["logits"], ["all"], axis=-1),
        *([node("Pad", ["all", "padding", "nothing"], ["padded"])] if padded else []),
        node("Reshape", [rows, "chunks"], ["grid"]),
        node("ReduceMax", ["grid", "two"], ["peak"], keepdims=0),
        # the best chunks of each row, in their original order
        node("TopK", ["peak", "chunk_count"], ["best_peak", "best_chunk"], axis=1),
        node("TopK", ["best_chunk", "chunk_count"], ["chunk", "rank"], axis=1, largest=0),
        # their contents: (R, chunk_count, size)
        node("Unsqueeze", ["chunk", "two"], ["chunk_index"]),
        node("GatherND", ["grid", "chunk_index"], ["inside"], batch_dims=1),
        node("Flatten", ["inside"], ["candidates"]),
        node("TopK", ["candidates", "count"], ["value", "found"], axis=1),
    ]


def best_tokens(*, padded: bool) -> onnx.ModelProto:
    """Build log-softmax followed by a search for the most probable tokens of each row within its best chunks.

    The best ``count`` tokens are in the ``count`` chunks with the largest maxima. These chunks keep their original
    order, so that the first of several equal tokens wins.

    Inputs: ``logits (R, V)``; ``chunks (3,)``: R, chunks per row, chunk size; ``chunk_count (1,)``: number of chunks to
    scan, the smaller of ``count`` and the chunks per row; ``count (1,)``: number of tokens; if padded, ``padding (4,)``
    of the logits at the ends of their axes.

    Outputs: ``value (R, count)``, log-probabilities, NaN if the row contains NaN or no finite value; ``chunk (R,
    chunk_count)``, the chunks scanned; ``found (R, count)``, positions among the contents of these chunks.
    """
    constants = {"two": np.array([2])}
    inputs: list[tuple[str, int, list[str | int]]] = [
        ("logits", TensorProto.FLOAT, ["R", "V"]),
        ("chunks", TensorProto.INT64, [3]),
        ("chunk_count", TensorProto.INT64, [1]),
        ("count", TensorProto.INT64, [1]),
    ]
    if padded:
        constants["nothing"] = np.array(-np.inf, np.float32)
        inputs.append(("padding", TensorProto.INT64, [4]))
    outputs: list[tuple[str, int, list[str | int]]] = [
        ("value", TensorProto.FLOAT, ["R", "count"]),
        ("chunk", TensorProto.INT64, ["R", "chunk_count"]),
        ("found", TensorProto.INT64, ["R", "count"]),
    ]
    made = helper.make_graph(
        _best_token_nodes(padded=padded),
        "best_tokens",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


if __name__ == "__main__":
    for path, model in runtime_graphs():
        path.write_bytes(model.SerializeToString(deterministic=True))
