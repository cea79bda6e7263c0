"""A model traced and optimised once, from which graphs of any precision are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

import onnx_ir as ir
from onnx_ir.passes import common

from edgeformer.model.check import check_model
from edgeformer.train.run import Run
from edgeformer_export.passes.half import HalfPrecision, half_table
from edgeformer_export.passes.heads import FuseHeads
from edgeformer_export.passes.merge import MergeLinears
from edgeformer_export.passes.norms import FuseSkipNorm, VectorNorm
from edgeformer_export.passes.pipeline import PassRecord, run_passes
from edgeformer_export.passes.simplify import Simplify
from edgeformer_export.quantize.assignment import BLOCK_BITS, Assigned
from edgeformer_export.quantize.blocks import QuantizeBlocks
from edgeformer_export.quantize.calibration import QuantizationRange, calibrate
from edgeformer_export.quantize.layers import Layer, find_layers
from edgeformer_export.quantize.static import QuantizeStatic, activations, projection_digests
from edgeformer_export.sample import sample_pairs, spread
from edgeformer_export.tracing.to_onnx import Graphs, Traced, to_onnx
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import Precision, SpecialTokens, Target

CALIBRATION_PAIRS = 256

Progress = Callable[[str, float], None]
"""Called with the stage's name and the fraction of it done, 0 … 1."""


@dataclass(frozen=True)
class Optimised:
    """Graphs before quantization."""

    graphs: Graphs
    """Encoder and decoder; take :func:`copies` to change them."""
    passes: Mapping[str, list[PassRecord]]
    """Passes by graph file."""
    layers: tuple[Layer, ...]
    """Their weights that can be quantized."""


class Prepared:
    """A run's model, its graphs and the text to calibrate with; each is made when it is first needed.

    Args:
        run: an opened run folder.
        target: which operators may be used.
        for_cuda: trace for CUDA, which is half precision.
        progress: called as the work goes on.

    Raises:
        ConfigError: the model breaks the contract of model families.
        ExportError: the run has no sample, or the model cannot be traced.
    """

    def __init__(
        self,
        run: Run,
        target: Target = "ort",
        *,
        for_cuda: bool = False,
        progress: Progress = lambda stage, fraction: None,
    ) -> None:
        self.run, self.target = run, target
        self._for_cuda, self._progress = for_cuda, progress
        self.special = SpecialTokens()
        self.model = run.load_model()
        check_model(self.model)
        self.pairs = sample_pairs(run, self.model)
        self._optimised = cache(self._optimise)
        self._ranges = cache(self._calibrate)

    @cached_property
    def traced(self) -> Traced:
        """The graphs as traced, and the state table."""
        self._progress("trace", 0.0)
        traced = to_onnx(self.model, self.target, for_cuda=self._for_cuda)
        return replace(traced, table=half_table(traced.table)) if self._for_cuda else traced

    def optimised(self, precision: Precision) -> Optimised:
        """The graphs as they are before they are quantized to a precision.

        Raises:
            ValueError: they were prepared for CUDA and are wanted in another precision than fp16, or the reverse.
        """
        if (precision == "fp16") != self._for_cuda:
            raise ValueError(f"graphs with for_cuda={self._for_cuda} have no {precision}")
        kind: Precision = "int8-block" if precision in BLOCK_BITS else "fp16" if precision == "fp16" else "fp32"
        return self._optimised(kind)

    def quantized(self, precision: Precision, assigned: Assigned) -> tuple[Graphs, dict[str, list[PassRecord]]]:
        """Copies of the graphs with quantized weights, and what was done to them.

        Args:
            precision: of the bundle; it decides which operators are fused.
            assigned: the precision of each operator; of one that is not named, fp32.
        """
        optimised = self.optimised(precision)
        graphs = copies(optimised.graphs)
        passes = {file: list(records) for file, records in optimised.passes.items()}
        if precision in {"fp32", "fp16"}:
            return graphs, passes
        ranges = self._ranges(precision in BLOCK_BITS)
        projections = frozenset().union(*(projection_digests(graph.graph) for graph in graphs.values()))
        for file, names in assigned.items():
            chosen = {one: {name for name, given in names.items() if given == one} for one in set(names.values())}
            quantization: list[ir.passes.PassBase] = [
                QuantizeBlocks(bits, only=chosen[one]) for one, bits in BLOCK_BITS.items() if one in chosen
            ]
            if "int8" in chosen:
                quantization.append(QuantizeStatic(ranges[file], self.target, projections, only=chosen["int8"]))
            graphs[file], more = run_passes(graphs[file], quantization)
            passes[file] += more
        return graphs, passes

    def _optimise(self, precision: Precision) -> Optimised:
        graphs, passes = copies(self.traced.graphs), {}
        self._progress("optimise", 0.0)
        for file in graphs:
            graphs[file], passes[file] = run_passes(graphs[file], optimisations(file, self.target, precision))
        layers = () if precision == "fp16" else tuple(find_layers(self.model, graphs))
        return Optimised(graphs, passes, layers)

    def _calibrate(self, in_blocks: bool) -> dict[str, dict[str, QuantizationRange]]:
        graphs = self.optimised("int8-block" if in_blocks else "int8").graphs
        return calibrate(
            graphs,
            {file: activations(graph.graph) for file, graph in graphs.items()},
            self.traced.table,
            [(pair.source, pair.target) for pair in spread(self.pairs, CALIBRATION_PAIRS)],
            self.special,
            lambda fraction: self._progress("calibrate", fraction),
        )


def copies(graphs: Graphs) -> Graphs:
    """The same graphs, to be changed."""
    return {file: ir.from_proto(ir.to_proto(graph)) for file, graph in graphs.items()}


def optimisations(file: str, target: Target, precision: Precision) -> list[ir.passes.PassBase]:
    """Passes that leave results as they are but for rounding, in their order.

    Args:
        file: the graph's name in a bundle: the encoder has a row for each source token, a step has few.
        target: which operators may be used.
        precision: of the decoder; with weights in blocks it is for one row at a time, in half precision for CUDA.
    """
    step = file != contract.ENCODER_FILE
    passes: list[ir.passes.PassBase] = [
        *([MergeLinears()] if step else []),
        Simplify(),
        common.CommonSubexpressionEliminationPass(),
        common.DeduplicateInitializersPass(),
        common.RemoveUnusedNodesPass(),
        common.RemoveUnusedOpsetsPass(),
    ]
    if target == "ort":
        fused_norm = precision == "fp16" or (step and precision in BLOCK_BITS)
        passes += [FuseHeads(), FuseSkipNorm() if fused_norm else VectorNorm()]
    if precision == "fp16":
        passes.append(HalfPrecision())
    return passes
