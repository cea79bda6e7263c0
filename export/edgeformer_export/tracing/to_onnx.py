"""From a torch model to its two ONNX graphs, before any optimisation."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir
import torch
from onnx_ir.passes import common
from torch import nn
from torch.export import Dim

from edgeformer.model.base import EncoderDecoder
from edgeformer.traceback_summary import describe
from edgeformer_export.tracing.graphs import EncoderGraph, StepDecoderGraph
from edgeformer_export.tracing.kernels import scaled_queries, use_kernels
from edgeformer_export.writer import ExportError
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.contract import StateTensor

OPSET = 20
"""Version of the ONNX operator set; known to onnxruntime since 1.17."""

# Sizes of the example inputs. All differ and none is 0 or 1, so that the tracer takes none of them for a constant.
_EXAMPLE_SIZES = {
    contract.SENTENCES: 2,
    contract.BEAMS: 3,
    contract.ROWS: 6,
    contract.SOURCE_AXIS: 5,
    contract.PAST_AXIS: 4,
    contract.CAPACITY_AXIS: 7,
}


Graphs = dict[str, ir.Model]
"""Graphs by the names of their files in a bundle."""


@dataclass(frozen=True)
class Traced:
    """A model's graphs, and the state that they pass on."""

    graphs: Graphs
    table: tuple[StateTensor, ...]
    """The model's state table, with the caches as the target keeps them."""


def to_onnx(model: EncoderDecoder, target: Target, *, for_cuda: bool = False) -> Traced:
    """Trace the encoder and the step decoder with dynamic batch, source and past axes.

    If the model has attention weights, they are the decoder's last output; see :func:`split_attention`.

    Args:
        model: a trained model; it is left in evaluation mode.
        target: ``ort`` emits ONNX Runtime's fused operators, ``portable`` only the standard's.
        for_cuda: use no operator that lacks a CUDA kernel.

    Raises:
        ExportError: the model cannot be traced.
    """
    model = model.eval()
    sentences, length = _EXAMPLE_SIZES[contract.SENTENCES], _EXAMPLE_SIZES[contract.SOURCE_AXIS]
    source = (torch.ones((sentences, length), dtype=torch.int64), torch.full((sentences,), length))
    with use_kernels(model, target, for_cuda=for_cuda):
        table = model.state_table()
        encoder = _trace(
            "encode",
            EncoderGraph(model),
            source,
            ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC}),
            inputs={contract.SOURCE: ("N", "S"), contract.SOURCE_LENGTH: ("N",)},
            outputs={tensor.name: _as_sentences(tensor) for tensor in table if tensor.from_encoder},
        )
        inputs = _decoder_inputs(table)
        outputs: dict[str, tuple[str | int, ...]] = {contract.LOGITS: (contract.ROWS, model.target_vocab_size)}
        outputs |= {tensor.output_name: _grown(tensor) for tensor in table if tensor.kind != "constant"}
        if model.has_attention:
            outputs[contract.ATTENTION] = (contract.ROWS, contract.SOURCE_AXIS)
        token, position, *others = (_dynamic_axes(axes) for axes, _ in inputs.values())
        with scaled_queries(model) if target == "ort" else contextlib.nullcontext():
            decoder = _trace(
                "step",
                StepDecoderGraph(model),
                tuple(_example(name, axes, dtype) for name, (axes, dtype) in inputs.items()),
                (token, position, tuple(others)),
                inputs={name: axes for name, (axes, _) in inputs.items()},
                outputs=outputs,
            )
    return Traced({contract.ENCODER_FILE: encoder, contract.DECODER_FILE: decoder}, table)


def split_attention(decoder: ir.Model) -> Graphs:
    """Take apart a decoder that has attention weights for an output.

    The step decoder loses them and all that only they need, so that decoding does not pay for them. A second graph has
    the attention and the state, and lacks the output projection.
    """
    attention = ir.from_proto(ir.to_proto(decoder))
    for model, unwanted in ((decoder, contract.ATTENTION), (attention, contract.LOGITS)):
        outputs = model.graph.outputs
        kept = [value for value in outputs if value.name != unwanted]
        outputs.clear()
        outputs.extend(kept)
        common.RemoveUnusedNodesPass()(model)
    return {contract.DECODER_FILE: decoder, contract.ATTENTION_FILE: attention}


def _trace(
    method: str,
    module: nn.Module,
    example: tuple[torch.Tensor, ...],
    dynamic_shapes: tuple[object, ...],
    inputs: dict[str, tuple[str | int, ...]],
    outputs: dict[str, tuple[str | int, ...]],
) -> ir.Model:
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
                verbose=False,
            )
    except RuntimeError as error:  # OnnxExporterError and torch.export's own among them
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise ExportError(
            f"The model's `{method}` cannot be traced: {describe(cause)}. Shapes may steer Python, values may not: "
            "see the rules in docs/your-own-model.md."
        ) from error
    if program is None:
        raise RuntimeError("torch.onnx.export returned no program")
    model = program.model
    # The tracer numbers its axes; give them the contract's letters.
    for values, axes in ((model.graph.inputs, inputs), (model.graph.outputs, outputs)):
        for value in values:
            value.shape = ir.Shape(axes[str(value.name)])
    return model


def _decoder_inputs(table: tuple[StateTensor, ...]) -> dict[str, tuple[tuple[str | int, ...], str]]:
    """Axes and dtype of every input of the decoder, in order."""
    known: dict[str, tuple[tuple[str | int, ...], str]] = {
        contract.TOKEN: ((contract.ROWS,), "int64"),
        contract.POSITION: ((), "int64"),
        contract.CACHE_INDIRECTION: ((contract.SENTENCES, contract.BEAMS, contract.CAPACITY_AXIS), "int32"),
        contract.BEAM_WIDTH: ((1,), "int32"),
        **{tensor.input_name: (tensor.axes, tensor.dtype) for tensor in table},
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
    """Keep the tracer's notes about its own internals from the user; errors pass."""
    loggers = [logging.getLogger(name) for name in ("torch", "torch.onnx")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        # Where it fails, it prints all it has traced.
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
