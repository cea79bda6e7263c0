"""Candidates for the automatic choice of a precision, and how their bundles are made."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx_ir as ir
from onnxruntime.quantization import QuantType, quantize_dynamic

from edgeformer_export.export import write_graphs, write_parts
from edgeformer_export.model_graphs import ModelGraphs
from edgeformer_export.passes.patterns import constant, find_linears, replace
from edgeformer_export.passes.strip import Strip
from edgeformer_export.quantize.assignment import higher
from edgeformer_export.quantize.layers import Layer
from edgeformer_export.tracing.to_onnx import Graphs
from edgeformer_export.writer import atomic_folder
from edgeformer_runtime.bundle.choice import Sensitivity
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.precision import PRECISIONS, Precision


@dataclass(frozen=True)
class Candidate:
    """One way to make a bundle."""

    name: str
    """Name in tables and folders; ``int4+2`` is int4 with the two most sensitive layers kept at a higher precision."""
    precision: Precision
    """The precision of the bundle."""
    keep: Mapping[str, Precision] = field(default_factory=dict)
    """Layers kept at another precision."""
    dynamic: bool = False
    """Whether ONNX Runtime's own tool quantizes the fp32 graphs, with activation scales computed at run time."""


def pure(target: Target) -> list[Candidate]:
    """List the candidates with one precision for all layers; fp32 is first, since the others are compared with it."""
    names = [
        name
        for name, traits in PRECISIONS.items()
        if traits.optimized_for == "cpu" and (traits.portable or target == "ort")
    ]
    return [*(Candidate(name, name) for name in names), Candidate("int8-dyn", "int8", dynamic=True)]


def mixed(base: Precision, count: int, layers: Sequence[Layer], order: Sequence[Sensitivity]) -> Candidate:
    """Make a candidate whose most sensitive layers are kept at a higher precision.

    Args:
        base: precision of the other layers.
        count: number of layers to keep at a higher precision.
        layers: all layers.
        order: their sensitivities, the most sensitive first.
    """
    known = {layer.name: layer for layer in layers}
    keep = {entry.layer: higher(known[entry.layer], base) for entry in order[:count]}
    return Candidate(f"{base}+{count}", base, keep)


def build(model_graphs: ModelGraphs, candidate: Candidate, folder: Path) -> None:
    """Write a candidate's bundle, without examples, card or comparison with PyTorch, unless it already exists."""
    if folder.is_dir():
        return
    with atomic_folder(folder, overwrite=False) as staged:
        if candidate.dynamic:
            fp32 = model_graphs.quantized("fp32", {})
            write_parts(model_graphs, staged, candidate.precision, _dynamic(fp32.graphs), fp32.passes)
        else:
            write_graphs(model_graphs, staged, candidate.precision, candidate.keep)


def _dynamic(graphs: Graphs) -> Graphs:
    """Quantize graphs with ``onnxruntime.quantization.quantize_dynamic``, with one scale per column."""
    quantized = {}
    with TemporaryDirectory() as folder, _quiet():
        for file, graph in graphs.items():
            before, after = Path(folder) / f"before.{file}", Path(folder) / file
            _untie(graph.graph)
            Strip()(graph)  # removes shapes that the tool's own inference would contradict
            ir.save(graph, before)
            # The tool does not know the output types of ONNX Runtime's own operators.
            options = {"DefaultTensorType": ir.DataType.FLOAT.value}
            quantize_dynamic(before, after, per_channel=True, weight_type=QuantType.QInt8, extra_options=options)
            quantized[file] = ir.from_proto(ir.to_proto(ir.load(after)))
    return quantized


def _untie(graph: ir.Graph) -> None:
    """Give matrix products with a transposed table their own copy of it: the tool transposes it in place, but lookups
    read it too."""
    for linear in list(find_linears(graph)):
        if linear.nodes[0].op_type == "Gemm":
            weight = constant(graph, f"{linear.output.name}.weight", np.ascontiguousarray(linear.weight))
            added = [ir.node("MatMul", [linear.activation, weight])]
            if linear.bias is not None:
                added.append(ir.node("Add", [added[0].outputs[0], linear.bias]))
            replace(graph, linear.nodes, linear.nodes[0], added)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the advice that the tool logs to the root logger."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
