"""Candidates of an automatic choice of precision: what they are, and how their bundles are made."""

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

from edgeformer_export.auto.sensitivity import Sensitivity
from edgeformer_export.export import write_graphs, write_parts
from edgeformer_export.model_graphs import Prepared
from edgeformer_export.passes.patterns import constant, find_linears, replace
from edgeformer_export.passes.strip import Strip
from edgeformer_export.quantize.assignment import higher
from edgeformer_export.quantize.layers import Layer
from edgeformer_export.tracing.to_onnx import Graphs
from edgeformer_export.writer import atomic_folder
from edgeformer_runtime.bundle.manifest import Precision, Target

MIXED: tuple[Precision, ...] = ("int8", "int4")
"""Precisions of which there are candidates whose most sensitive layers are kept higher."""


@dataclass(frozen=True)
class Candidate:
    """One way to make a bundle."""

    name: str
    """What tables and folders call it; ``int4+2`` is int4 with the two most sensitive layers kept higher."""
    precision: Precision
    """The precision of the bundle."""
    keep: Mapping[str, Precision] = field(default_factory=dict)
    """Layers in another one."""
    dynamic: bool = False
    """Let ONNX Runtime's own tool quantize the fp32 graphs, with scales of activations found while they run."""


def pure(target: Target) -> list[Candidate]:
    """Candidates with one precision for all layers; fp32 first, which the others are compared with."""
    names: tuple[Precision, ...] = ("fp32", "int8", "int8-block", "int4") if target == "ort" else ("fp32", "int8")
    return [*(Candidate(name, name) for name in names), Candidate("int8-dyn", "int8", dynamic=True)]


def mixed(base: Precision, count: int, layers: Sequence[Layer], order: Sequence[Sensitivity]) -> Candidate:
    """A candidate whose most sensitive layers are kept higher.

    Args:
        base: precision of the others.
        count: how many to keep.
        layers: all layers.
        order: what was measured, the most sensitive first.
    """
    known = {layer.name: layer for layer in layers}
    keep = {one.layer: higher(known[one.layer], base) for one in order[:count]}
    return Candidate(f"{base}+{count}", base, keep)


def build(prepared: Prepared, candidate: Candidate, folder: Path) -> None:
    """Write a candidate's bundle, without examples, card and comparison with torch; nothing if it is there."""
    if folder.is_dir():
        return
    with atomic_folder(folder, overwrite=False) as staged:
        if candidate.dynamic:
            graphs, passes = prepared.quantized("fp32", {})
            write_parts(prepared, staged, candidate.precision, _dynamic(graphs), passes, {})
        else:
            write_graphs(prepared, staged, candidate.precision, candidate.keep)


def _dynamic(graphs: Graphs) -> Graphs:
    """The graphs as ``onnxruntime.quantization.quantize_dynamic`` makes them, with a scale for each column."""
    found = {}
    with TemporaryDirectory() as folder, _quiet():
        for file, graph in graphs.items():
            before, after = Path(folder) / f"before.{file}", Path(folder) / file
            _untie(graph.graph)
            Strip()(graph)  # of shapes, which its own inference would find to differ
            ir.save(graph, before)
            # Nor does it know the types of what ONNX Runtime's own operators give.
            unknown = {"DefaultTensorType": ir.DataType.FLOAT.value}
            quantize_dynamic(before, after, per_channel=True, weight_type=QuantType.QInt8, extra_options=unknown)
            found[file] = ir.from_proto(ir.to_proto(ir.load(after)))
    return found


def _untie(graph: ir.Graph) -> None:
    """Give products with a transposed table one of their own: the tool transposes it in place, under look-ups too."""
    for linear in list(find_linears(graph)):
        if linear.nodes[0].op_type == "Gemm":
            weight = constant(graph, f"{linear.output.name}.weight", np.ascontiguousarray(linear.weight))
            added = [ir.node("MatMul", [linear.activation, weight])]
            if linear.bias is not None:
                added.append(ir.node("Add", [added[0].outputs[0], linear.bias]))
            replace(graph, linear.nodes, linear.nodes[0], added)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back advice that the tool logs on the root logger."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
