"""Graphs that are fed reference translations token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from numpy.typing import NDArray

from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.contract import StateTensor
from edgeformer_runtime.decoding.batching import pad
from edgeformer_runtime.engine.integer_products import EXACT_PRODUCTS, products_saturate

BATCH = 16

Arrays = dict[str, NDArray[Any]]
RunGraph = Callable[[Arrays, Arrays], Arrays]
"""From inputs by name to outputs by name; outputs named in the second argument are written to those arrays."""
Pair = tuple[Sequence[int], Sequence[int]]
"""Source ids with end token, and target ids without special tokens."""


def open_graph(model: ir.Model, wanted: Iterable[str] = ()) -> RunGraph:
    """Open a graph as the runtime does.

    Args:
        model: the graph.
        wanted: names of inner float tensors to give out too.
    """
    proto = ir.to_proto(model)
    outputs = {value.name for value in proto.graph.output}
    proto.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in wanted if name not in outputs
    )
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if products_saturate():
        options.add_session_config_entry(*EXACT_PRODUCTS)
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(feeds: Arrays, shared: Arrays) -> Arrays:
        binding = session.io_binding()
        for name, array in feeds.items():
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array)))
        for name in names:
            if name in shared:
                binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(shared[name]))
            else:
                binding.bind_output(name)
        session.run_with_iobinding(binding)
        return dict(zip(names, (value.numpy() for value in binding.get_outputs()), strict=True))

    return run


def batches(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs of about the same source length together."""
    order = sorted(pairs, key=lambda pair: len(pair[0]))
    return [order[start : start + BATCH] for start in range(0, len(order), BATCH)]


def encode(encoder: RunGraph, batch: Sequence[Pair], special: SpecialTokens) -> Arrays:
    """The state that an encoder gives for a batch."""
    source, source_length = pad([source for source, _ in batch], special.pad)
    return encoder({contract.SOURCE: source, contract.SOURCE_LENGTH: source_length}, {})


def steps(
    decoder: RunGraph,
    encoded: Mapping[str, NDArray[Any]],
    table: Sequence[StateTensor],
    batch: Sequence[Pair],
    special: SpecialTokens,
) -> Iterator[Arrays]:
    """Feed a decoder the targets of a batch.

    Args:
        decoder: the decoder.
        encoded: from :func:`encode`; it is not changed.
        table: the state table.
        batch: the pairs.
        special: special token ids.

    Yields:
        The decoder's outputs for each position of the longest target, that of the start token first.
    """
    target, _ = pad([[special.bos, *target] for _, target in batch], special.pad)
    sizes = {contract.ROWS: len(batch), contract.PAST_AXIS: 0, contract.CAPACITY_AXIS: target.shape[1]}
    state = dict(encoded)
    for tensor in table:
        if tensor.kind == "cache":
            shape = [sizes[axis] if isinstance(axis, str) else axis for axis in tensor.axes]
            state[tensor.name] = np.zeros(shape, tensor.dtype)
    shared = {tensor.output_name: state[tensor.name] for tensor in table if tensor.in_place}
    for position in range(target.shape[1]):
        feeds = {tensor.input_name: state[tensor.name] for tensor in table}
        feeds |= {contract.TOKEN: target[:, position], contract.POSITION: np.array(position)}
        if shared:
            feeds[contract.CACHE_INDIRECTION] = np.zeros((len(batch), 1, target.shape[1]), np.int32)
            feeds[contract.BEAM_WIDTH] = np.ones(1, np.int32)
        outputs = decoder(feeds, shared)
        state |= {tensor.name: outputs[tensor.output_name] for tensor in table if tensor.kind != "constant"}
        yield outputs
