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
from edgeformer_runtime.engine.graphs import (
    BEST_TOKENS,
    BEST_TOKENS_CHUNKED,
    BEST_TOKENS_PADDED,
    INTEGER_PRODUCT,
    rows_graph,
)


def runtime_graphs() -> Iterator[tuple[Path, onnx.ModelProto]]:
    """Yield every graph with the path that the runtime reads it from."""
    yield BEST_TOKENS, best_tokens()
    yield BEST_TOKENS_CHUNKED, best_tokens(chunked=True)
    yield BEST_TOKENS_PADDED, best_tokens(chunked=True, padded=True)
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


def _scanned_nodes(*, padded: bool) -> list[onnx.NodeProto]:
    """List the nodes that find the most probable tokens of each row, ``row_value`` and ``found``, in its best chunks.

    The best ``row_count`` tokens are in the ``row_count`` chunks with the largest maxima. These chunks keep their
    original order, so that the first of several equal tokens wins.
    """
    node = helper.make_node
    rows = "padded" if padded else "all"
    return [
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
        node("TopK", ["candidates", "row_count"], ["row_value", "found"], axis=1),
    ]


def _token_nodes(*, padded: bool) -> list[onnx.NodeProto]:
    """List the nodes that compute tokens, from positions ``place`` among the contents of the chunks scanned."""
    node = helper.make_node
    return [
        node("Div", ["place", "size"], ["rank_of_chunk"]),
        node("Mul", ["parent", "chunk_count"], ["first_chunk"]),
        node("Add", ["first_chunk", "rank_of_chunk"], ["chunk_place"]),
        node("Reshape", ["chunk", "by_sentence"], ["chunk_of_sentence"]),
        node("GatherElements", ["chunk_of_sentence", "chunk_place"], ["chunk_number"], axis=1),
        # place in the chunk + chunk * size, where the place in the chunk is place - rank_of_chunk * size
        node("Sub", ["chunk_number", "rank_of_chunk"], ["moved"]),
        node("Mul", ["moved", "size"], ["offset"]),
        node("Add", ["place", "offset"], ["token_or_padding" if padded else "token"]),
        # Padding has probability 0, so it is found only if no other token is left.
        *([node("Min", ["token_or_padding", "last_token"], ["token"])] if padded else []),
    ]


def best_tokens(*, chunked: bool = False, padded: bool = False) -> onnx.ModelProto:
    """Build log-softmax followed by a search for the most probable extensions of each sentence's hypotheses.

    Inputs: ``logits (R, V)``, of N sentences with K rows each; ``log_probability (R, 1)``, float64, of each hypothesis;
    ``row_count (1,)``: number of tokens to find in each row; ``count (1,)``: number of extensions of each sentence;
    ``by_sentence (2,)``: N and -1.

    If chunked, each row is searched within its best chunks only, and there are three more inputs: ``chunks (3,)``: R,
    chunks per row, chunk size; ``size (1,)``: chunk size; ``chunk_count (1,)``: number of chunks to scan, the smaller
    of ``row_count`` and the chunks per row. If padded, also ``padding (4,)`` of the logits at the ends of their axes,
    and ``last_token (1,)``, V - 1.

    Outputs: ``row_value (R, row_count)``, log-probabilities of the tokens of each row, NaN if it contains NaN or no
    finite value; ``value (N, count)``, float64, log-probabilities of the extensions, best first; ``token (N, count)``
    and ``parent (N, count)``, the hypothesis that each extends, from 0 to K - 1.
    """
    node = helper.make_node
    found = _scanned_nodes(padded=padded) if chunked else [node("TopK", ["all", "row_count"], ["row_value", "found"])]
    nodes = [
        node("LogSoftmax", ["logits"], ["all"], axis=-1),
        *found,
        node("Cast", ["row_value"], ["row_value_64"], to=TensorProto.DOUBLE),
        node("Add", ["log_probability", "row_value_64"], ["total"]),
        node("Reshape", ["total", "by_sentence"], ["total_of_sentence"]),
        node("TopK", ["total_of_sentence", "count"], ["value", "index"], axis=1),
        node("Div", ["index", "row_count"], ["parent"]),
        node("Reshape", ["found", "by_sentence"], ["found_of_sentence"]),
        node("GatherElements", ["found_of_sentence", "index"], ["place" if chunked else "token"], axis=1),
        *(_token_nodes(padded=padded) if chunked else []),
    ]
    constants = {"two": np.array([2])} if chunked else {}
    inputs: list[tuple[str, int, list[str | int]]] = [
        ("logits", TensorProto.FLOAT, ["R", "V"]),
        ("log_probability", TensorProto.DOUBLE, ["R", 1]),
        ("row_count", TensorProto.INT64, [1]),
        ("count", TensorProto.INT64, [1]),
        ("by_sentence", TensorProto.INT64, [2]),
    ]
    if chunked:
        inputs.append(("chunks", TensorProto.INT64, [3]))
        inputs += [("size", TensorProto.INT64, [1]), ("chunk_count", TensorProto.INT64, [1])]
    if padded:
        constants["nothing"] = np.array(-np.inf, np.float32)
        inputs += [("padding", TensorProto.INT64, [4]), ("last_token", TensorProto.INT64, [1])]
    outputs: list[tuple[str, int, list[str | int]]] = [
        ("row_value", TensorProto.FLOAT, ["R", "row_count"]),
        ("value", TensorProto.DOUBLE, ["N", "count"]),
        ("token", TensorProto.INT64, ["N", "count"]),
        ("parent", TensorProto.INT64, ["N", "count"]),
    ]
    made = helper.make_graph(
        nodes,
        "best_tokens",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


if __name__ == "__main__":
    for path, model in runtime_graphs():
        path.write_bytes(model.SerializeToString(deterministic=True))
