"""From a torch model to its two ONNX graphs, before any optimisation."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir
import torch
from torch import nn
from torch.export import Dim

from edgeformer.model.base import EncoderDecoder
from edgeformer_export.graphs import EncoderGraph, StepDecoderGraph
from edgeformer_export.kernels import ort_attention, portable_attention, use_kernel
from edgeformer_runtime import contract
from edgeformer_runtime.contract import StateTensor
from edgeformer_runtime.manifest import Target

OPSET = 20
"""Version of the ONNX operator set; known to onnxruntime since 1.17."""

# Sizes of the example inputs. All differ and none is 0 or 1, so that the tracer takes none of them for a constant.
_EXAMPLE_SIZES = {contract.SENTENCES: 2, contract.ROWS: 6, contract.SOURCE_AXIS: 5, contract.PAST_AXIS: 4}


@dataclass(frozen=True)
class Graphs:
    """The encoder and the step decoder."""

    encoder: ir.Model
    decoder: ir.Model


def to_onnx(model: EncoderDecoder, target: Target) -> Graphs:
    """Trace both graphs with dynamic batch, source and past axes.

    Args:
        model: a trained model; it is left in evaluation mode.
        target: ``ort`` emits ONNX Runtime's fused operators, ``portable`` only the standard's.
    """
    model = model.eval()
    table = model.state_table()
    sentences, length = _EXAMPLE_SIZES[contract.SENTENCES], _EXAMPLE_SIZES[contract.SOURCE_AXIS]
    source = (torch.ones((sentences, length), dtype=torch.int64), torch.full((sentences,), length))
    token = (
        torch.ones(_EXAMPLE_SIZES[contract.ROWS], dtype=torch.int64),
        torch.tensor(_EXAMPLE_SIZES[contract.PAST_AXIS]),
    )
    encoder, decoder = EncoderGraph(model), StepDecoderGraph(model)
    with use_kernel(model, ort_attention if target == "ort" else portable_attention):
        return Graphs(
            encoder=_trace(
                encoder,
                source,
                ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC}),
                inputs={contract.SOURCE: ("N", "S"), contract.SOURCE_LENGTH: ("N",)},
                outputs={tensor.name: _as_sentences(tensor) for tensor in table if tensor.from_encoder},
            ),
            decoder=_trace(
                decoder,
                (*token, *(_example(tensor) for tensor in table)),
                ({0: Dim.DYNAMIC}, {}, tuple(_dynamic_axes(tensor) for tensor in table)),
                inputs={contract.TOKEN: ("R",), contract.POSITION: (), **{t.input_name: t.axes for t in table}},
                outputs={contract.LOGITS: ("R", model.target_vocab_size)}
                | {t.output_name: _grown(t) for t in table if t.kind != "constant"},
            ),
        )


def _trace(
    module: nn.Module,
    example: tuple[torch.Tensor, ...],
    dynamic_shapes: tuple[object, ...],
    inputs: dict[str, tuple[str | int, ...]],
    outputs: dict[str, tuple[str | int, ...]],
) -> ir.Model:
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
    if program is None:
        raise RuntimeError("torch.onnx.export returned no program")
    model = program.model
    # The tracer numbers its axes; give them the contract's letters.
    for values, axes in ((model.graph.inputs, inputs), (model.graph.outputs, outputs)):
        for value in values:
            value.shape = ir.Shape(axes[str(value.name)])
    return model


def _example(tensor: StateTensor) -> torch.Tensor:
    sizes = [_EXAMPLE_SIZES[axis] if isinstance(axis, str) else axis for axis in tensor.axes]
    return torch.ones(sizes, dtype=getattr(torch, tensor.dtype))


def _dynamic_axes(tensor: StateTensor) -> dict[int, object]:
    return {index: Dim.DYNAMIC for index, axis in enumerate(tensor.axes) if isinstance(axis, str)}


def _as_sentences(tensor: StateTensor) -> tuple[str | int, ...]:
    return (contract.SENTENCES, *tensor.axes[1:])


def _grown(tensor: StateTensor) -> tuple[str | int, ...]:
    return tuple(f"{axis} + 1" if axis == contract.PAST_AXIS else axis for axis in tensor.axes)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the tracer's notes about its own internals from the user; errors pass."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
