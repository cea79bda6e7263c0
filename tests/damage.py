"""Bundles with wrong results but correct hashes: damage that only shows when they are run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, numpy_helper

from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE, WEIGHTS_FILE
from tests.bundles import rehash

PARTS = [
    (ENCODER_FILE, "linear_5", "encoder layer 1, feed-forward (`encoder_layers.0.feed_forward.3`"),
    (ENCODER_FILE, "linear_9", "encoder layer 2, attention, output (`encoder_layers.1.attention.output`"),
    (DECODER_FILE, "linear_7", "decoder layer 1, feed-forward (`decoder_layers.0.feed_forward.3`"),
    (DECODER_FILE, "linear_13", "decoder layer 2, cross attention, output (`decoder_layers.1.cross_attention.output`"),
]
"""Graph, the tensor computed from a weight, and its name in ``verify``. The tracer numbers tensors in its own order."""


def scale_block(bundle: Path, file: str, output: str, factor: float = 1.5, *, whole: bool = False) -> Path:
    """Scale one block, or the ``whole``, of the weight of the matrix product that computes a tensor.

    Integer weights are changed through their scales. For float weights, and with one scale per column, a block is a
    column.
    """
    model = onnx.load(bundle / file, load_external_data=False)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    node = _product(model.graph, output)
    place = {"MatMulIntegerToFloat": 3, "QGemm": 4, "MatMulNBits": 2}.get(node.op_type, 1)
    tensor = tensors[node.input[place]]

    def change(array: NDArray[np.float32]) -> None:
        block = array if whole else array[:, 0] if node.op_type == "MatMul" else array.reshape(-1)[:1]
        block *= factor

    _change(bundle, tensor, change)
    onnx.save(model, bundle / file)
    return rehash(bundle)


def drop_mask(bundle: Path, file: str) -> Path:
    """Let attention to source positions see padding as well; the graph keeps its inputs."""
    model = onnx.load(bundle / file, load_external_data=False)
    dropped = 0
    for node in model.graph.node:
        if node.op_type == "MultiHeadAttention" and len(node.input) > 4 and node.input[4]:
            node.input[4], dropped = "", dropped + 1
    assert dropped
    onnx.save(model, bundle / file)
    return rehash(bundle)


def _product(graph: GraphProto, output: str) -> NodeProto:
    """Find the matrix product that computes a tensor, skipping the addition of a bias."""
    makers: dict[str, NodeProto] = {name: node for node in graph.node for name in node.output}
    node = makers[output]
    while node.op_type in {"Add", "Split", "Relu"}:
        node = next(makers[name] for name in node.input if name in makers)
    return node


def _change(bundle: Path, tensor: TensorProto, change: Callable[[NDArray[np.float32]], None]) -> None:
    """Change a tensor where it is stored: in the graph, or in the weight file."""
    place = {entry.key: entry.value for entry in tensor.external_data}
    if not place:
        array = numpy_helper.to_array(tensor).copy()
        change(array)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
        return
    weights, start = bytearray((bundle / WEIGHTS_FILE).read_bytes()), int(place.get("offset", 0))
    part = slice(start, start + int(place["length"]))
    array = np.frombuffer(bytes(weights[part]), np.float32).reshape(tuple(tensor.dims)).copy()
    change(array)
    weights[part] = array.tobytes()
    (bundle / WEIGHTS_FILE).write_bytes(weights)
