"""From a torch model to its two ONNX graphs, before any optimization."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir.passes import common
from torch import nn
from torch.export import Dim

from edgeformer.model.base import EncoderDecoder
from edgeformer.model.transformer.self_attention import CausalSelfAttention
from edgeformer_export.passes.names import fold
from edgeformer_export.passes.patterns import constant
from edgeformer_export.tracing.graphs import EncoderGraph, StepDecoderGraph
from edgeformer_export.tracing.kernels import OPSET, scaled_queries, use_kernels
from edgeformer_export.tracing.mistakes import mistranslation, why_untraceable
from edgeformer_export.tracing.state import bundle_state, in_place_caches
from edgeformer_export.writer import ExportError
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.contract import StateTensor

# Sizes of the example inputs. All differ and none is 0 or 1, so that the tracer does not treat any as a constant.
_EXAMPLE_SIZES = {
    contract.SENTENCES: 2,
    contract.BEAMS: 3,
    contract.ROWS: 6,
    contract.SOURCE_AXIS: 5,
    contract.PAST_AXIS: 4,
    contract.CAPACITY_AXIS: 7,
}
RECURRENT = {"GRU", "LSTM", "RNN"}

Graphs = dict[str, ir.Model]
"""Graphs by the names of their files in a bundle."""


@dataclass(frozen=True)
class TracedGraphs:
    """A model's graphs in float32, and the state table of the bundle that is made from them."""

    graphs: Graphs
    table: tuple[StateTensor, ...]


def to_onnx(
    model: EncoderDecoder,
    target: Target,
    *,
    for_cuda: bool = False,
    progress: Callable[[float], None] = lambda fraction: None,
) -> TracedGraphs:
    """Trace the encoder and the step decoder with dynamic batch, source and past axes.

    If the model has attention weights, they are the decoder's last output; see :func:`split_attention`.

    Args:
        model: a trained model; it is left in evaluation mode.
        target: ``ort`` emits ONNX Runtime's fused operators, ``portable`` those of the ONNX standard only.
        for_cuda: use no operator without a CUDA kernel; the table is that of half precision.
        progress: called with the fraction done, 0 … 1.

    Raises:
        ExportError: the model cannot be traced.
    """
    progress(0.0)
    model = model.eval()
    table = bundle_state(model, target, for_cuda=for_cuda)
    with use_kernels(model, target):
        encoder = _trace_encoder(model, table)
        progress(0.5)
        with scaled_queries(model) if target == "ort" else contextlib.nullcontext():
            decoder = _trace_decoder(model, table, in_place_caches(model, target, for_cuda=for_cuda))
    return TracedGraphs({contract.ENCODER_FILE: encoder, contract.DECODER_FILE: decoder}, table)


def split_attention(decoder: ir.Model) -> Graphs:
    """Split a decoder whose last output is the attention weights into two graphs.

    The step decoder loses the weights and every node that only they need, so that decoding does not pay for them. The
    attention graph has the weights and the state, but no output projection.
    """
    attention = decoder.clone()
    for model, unwanted in ((decoder, contract.ATTENTION), (attention, contract.LOGITS)):
        outputs = model.graph.outputs
        kept = [value for value in outputs if value.name != unwanted]
        outputs.clear()
        outputs.extend(kept)
        common.RemoveUnusedNodesPass()(model)
    return {contract.DECODER_FILE: decoder, contract.ATTENTION_FILE: attention}


def _trace_encoder(model: EncoderDecoder, table: tuple[StateTensor, ...]) -> ir.Model:
    sentences, length = _EXAMPLE_SIZES[contract.SENTENCES], _EXAMPLE_SIZES[contract.SOURCE_AXIS]
    return _trace(
        "encode",
        EncoderGraph(model, table),
        (torch.ones((sentences, length), dtype=torch.int64), torch.full((sentences,), length)),
        ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC}),
        inputs={contract.SOURCE: ("N", "S"), contract.SOURCE_LENGTH: ("N",)},
        outputs={tensor.name: _as_sentences(tensor) for tensor in table if tensor.from_encoder},
    )


def _trace_decoder(
    model: EncoderDecoder, table: tuple[StateTensor, ...], in_place: list[CausalSelfAttention]
) -> ir.Model:
    inputs = _decoder_inputs(model, table)
    outputs: dict[str, tuple[str | int, ...]] = {contract.LOGITS: (contract.ROWS, model.target_vocab_size)}
    outputs |= {tensor.output_name: _grown(tensor) for tensor in table if tensor.kind != "constant"}
    if model.has_attention:
        outputs[contract.ATTENTION] = (contract.ROWS, contract.SOURCE_AXIS)
    token, position, *tensors = (_dynamic_axes(axes) for axes, _ in inputs.values())
    return _trace(
        "step",
        StepDecoderGraph(model, table, in_place),
        tuple(_example(name, axes, dtype) for name, (axes, dtype) in inputs.items()),
        (token, position, tuple(tensors)),
        inputs={name: axes for name, (axes, _) in inputs.items()},
        outputs=outputs,
    )


def _trace(
    method: str,
    module: nn.Module,
    example: tuple[torch.Tensor, ...],
    dynamic_shapes: tuple[object, ...],
    inputs: dict[str, tuple[str | int, ...]],
    outputs: dict[str, tuple[str | int, ...]],
) -> ir.Model:
    for operator in (torch.ops.aten.gru.input, torch.ops.aten.lstm.input):
        # `torch.onnx.export` exchanges the kernels of these, but an earlier trace left the exchanged ones in the cache.
        operator._dispatch_cache.clear()
    try:
        with torch.no_grad(), _quiet():
            program = torch.onnx.export(
                module.eval(),
                example,
                dynamo=True,
                input_names=list(inputs),
                output_names=list(outputs),
                dynamic_shapes=dynamic_shapes,
                opset_version=OPSET,
                optimize=False,
                verbose=False,
            )
            if program is not None:
                fold(program.model, program.optimize)
    except RuntimeError as error:  # OnnxExporterError and torch.export's own among them
        cause: BaseException = error
        while inner := cause.__cause__ or cause.__context__:
            if isinstance(inner, KeyboardInterrupt):  # which fails torch's own handlers while its modules are imported
                raise inner from None
            cause = inner
        raise ExportError(f"The model's `{method}` cannot be traced: {why_untraceable(error)}") from error
    if program is None:
        raise RuntimeError("torch.onnx.export returned no program")
    if program.exported_program is not None and (problem := mistranslation(program.exported_program)):
        raise ExportError(f"The model's `{method}` cannot be exported: {problem}")
    model = program.model
    _free_length_of_recurrent_layers(model)
    # Replace the tracer's numbered axes by the contract's letters.
    for values, axes in ((model.graph.inputs, inputs), (model.graph.outputs, outputs)):
        for value in values:
            value.shape = ir.Shape(axes[str(value.name)])
    return model


def _free_length_of_recurrent_layers(model: ir.Model) -> None:
    """Let recurrent layers of torch's, such as ``nn.GRU``, read sources of any length, and drop the shapes in a graph.

    The tracer takes the length of such a layer's output from the example. The simplifier infers all shapes again.
    """
    sequence_lens = 4  # the input that such a layer does not have
    if any(node.op_type in RECURRENT and node.inputs[sequence_lens] is None for node in model.graph):
        for node in model.graph:
            for value in node.outputs:
                value.shape = None
            if node.op_type == "Reshape" and _is_recurrent_output(node.inputs[0]):
                # (S, N, directions, U) -> (S, N, directions * U)
                node.replace_input_with(1, constant(model.graph, "joined_directions", np.array([0, 0, -1])))
                node.attributes["allowzero"] = ir.AttrInt64("allowzero", 0)


def _is_recurrent_output(value: ir.Value | None) -> bool:
    """Whether a value is the outputs of a recurrent layer at all positions, with axes of directions and units last."""
    transpose = value.producer() if value is not None else None
    if transpose is None or transpose.op_type != "Transpose" or transpose.inputs[0] is None:
        return False
    layer = transpose.inputs[0].producer()
    is_output = layer is not None and layer.op_type in RECURRENT and transpose.inputs[0] is layer.outputs[0]
    return is_output and tuple(transpose.attributes["perm"].as_ints()[2:]) == (1, 3)


def _decoder_inputs(
    model: EncoderDecoder, table: tuple[StateTensor, ...]
) -> dict[str, tuple[tuple[str | int, ...], str]]:
    """Axes, as in the bundle, and dtype, as in the model, of every input of the decoder, in order."""
    known: dict[str, tuple[tuple[str | int, ...], str]] = {
        contract.TOKEN: ((contract.ROWS,), "int64"),
        contract.POSITION: ((), "int64"),
        contract.CACHE_INDIRECTION: ((contract.SENTENCES, contract.BEAMS, contract.CAPACITY_AXIS), "int32"),
        contract.BEAM_WIDTH: ((1,), "int32"),
        **{
            tensor.input_name: (tensor.axes, traced.dtype)
            for tensor, traced in zip(table, model.state_table(), strict=True)
        },
    }
    return {name: known[name] for name in contract.decoder_inputs(table)}


def _example(name: str, axes: tuple[str | int, ...], dtype: str) -> torch.Tensor:
    value = _EXAMPLE_SIZES[contract.PAST_AXIS] if name == contract.POSITION else 1
    return torch.full(contract.shape_of(axes, _EXAMPLE_SIZES), value, dtype=getattr(torch, dtype))


def _dynamic_axes(axes: tuple[str | int, ...]) -> dict[int, object]:
    return {index: Dim.DYNAMIC for index, axis in enumerate(axes) if isinstance(axis, str)}


def _as_sentences(tensor: StateTensor) -> tuple[str | int, ...]:
    return (contract.SENTENCES, *tensor.axes[1:])


def _grown(tensor: StateTensor) -> tuple[str | int, ...]:
    return tuple(f"{axis} + 1" if axis == contract.PAST_AXIS else axis for axis in tensor.axes)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide the tracer's messages about its own internals; errors are raised as usual."""
    loggers = [logging.getLogger(name) for name in ("torch", "torch.onnx")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        # When it fails, it prints everything it has traced so far.
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
