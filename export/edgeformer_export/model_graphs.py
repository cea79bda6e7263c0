"""A model traced and optimized once, from which graphs of any precision are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

import onnx_ir as ir

from edgeformer.model.base import EncoderDecoder
from edgeformer.model.check import check_model
from edgeformer.run.folder import Run
from edgeformer_export.passes.half import HalfPrecisionPass
from edgeformer_export.passes.heads import FuseHeadsPass
from edgeformer_export.passes.merge import MergeLinearsPass
from edgeformer_export.passes.norms import FuseSkipNormPass, VectorNormPass
from edgeformer_export.passes.patterns import Linear
from edgeformer_export.passes.pipeline import PassRecord, operator_counts, run_passes
from edgeformer_export.passes.simplify import SimplifyPass
from edgeformer_export.quantize.calibration import CalibrationData, QuantizationRange, calibrate
from edgeformer_export.quantize.layers import Layer, find_layers, imported_activation, model_parameters
from edgeformer_export.quantize.moments import Matrix, weight_moments
from edgeformer_export.quantize.static import QuantizeStaticPass, activations
from edgeformer_export.quantize.strategies import STRATEGIES, Table, make_table
from edgeformer_export.sample import sample_pairs, spread
from edgeformer_export.stages import CALIBRATE, CHECK, OPTIMIZE, QUANTIZE, TRACE, WEIGH, StageProgress, silent
from edgeformer_export.tracing.mistakes import unsupported
from edgeformer_export.tracing.to_onnx import Graphs, TracedGraphs, to_onnx
from edgeformer_export.writer import ExportError
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import Target
from edgeformer_runtime.precision import PRECISIONS, Precision
from edgeformer_runtime.search.shortlist import Shortlist

CALIBRATION_PAIRS = 256

Passes = Mapping[str, tuple[PassRecord, ...]]
"""Records of the passes run on each graph, by graph file."""


@dataclass(frozen=True)
class OptimizedGraphs:
    """Graphs before quantization."""

    graphs: Graphs
    """Encoder and decoder; use :func:`copies` to change them."""
    passes: Passes
    """Records of the passes that optimized them."""
    layers: tuple[Layer, ...]
    """Weights that can be quantized."""


@dataclass(frozen=True)
class QuantizedGraphs:
    """Graphs of one precision."""

    graphs: Graphs
    """Encoder and decoder, which may be modified."""
    passes: Passes
    """Records of all passes, optimization included."""
    table: Table
    """Every weight that can be quantized, as the graphs have it; empty in fp32 and fp16."""
    static: Mapping[str, QuantizeStaticPass]
    """The passes that have made integer products, by graph file."""


class ModelGraphs:
    """The graphs of a run's model, with text for calibration; each part is created on first use.

    Args:
        run: an opened run folder.
        target: which operators may be used.
        for_cuda: trace for CUDA in half precision.
        shortlist: target tokens by source token, written into bundles.
        progress: called during the work.

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
        shortlist: Shortlist | None = None,
        progress: StageProgress = silent,
    ) -> None:
        self.run, self.target, self.shortlist = run, target, shortlist
        self._for_cuda, self._progress = for_cuda, progress
        self.special = run.special
        self.model = run.load_model()
        check_model(self.model, full_length=True, progress=partial(progress, CHECK))
        self.pairs = sample_pairs(run, self.model)
        self._parameters = model_parameters(self.model, run.info.quantization)
        self._optimized = cache(self._optimize)
        self._calibrated = cache(self._calibrate)

    @cached_property
    def traced(self) -> TracedGraphs:
        """The graphs as traced, and the state table."""
        return to_onnx(self.model, self.target, for_cuda=self._for_cuda, progress=partial(self._progress, TRACE))

    def optimized(self, precision: Precision) -> OptimizedGraphs:
        """Return the optimized graphs, ready to be quantized to a precision.

        Raises:
            ValueError: the graphs were traced for a device other than the one the precision is optimized for.
        """
        traits = PRECISIONS[precision]
        if (traits.optimized_for == "cuda") != self._for_cuda:
            raise ValueError(f"graphs with for_cuda={self._for_cuda} have no {precision}")
        return self._optimized(traits.in_blocks)

    def ranges(self, precision: Precision) -> dict[str, dict[str, QuantizationRange]]:
        """Return the range of each activation by graph and name, in the optimized graphs for a precision."""
        return self._calibrated(PRECISIONS[precision].in_blocks)

    def quantized(self, precision: Precision) -> QuantizedGraphs:
        """Return copies of the graphs with weights in a precision.

        Raises:
            ExportError: there is nothing to quantize.
        """
        optimized = self.optimized(precision)
        graphs, passes = copies(optimized.graphs), dict(optimized.passes)
        static: dict[str, QuantizeStaticPass] = {}
        if not PRECISIONS[precision].is_quantized:
            return QuantizedGraphs(graphs, passes, (), static)
        if not optimized.layers:
            raise ExportError("This model has no weights worth quantizing; export it with --precision fp32.")
        ranges = self.ranges(precision)
        table = make_table(optimized.layers, precision, lambda: self.moments, partial(self._progress, QUANTIZE))
        for file in graphs:
            for name, strategy in STRATEGIES.items():
                weights = {
                    reader.name: weight
                    for weight in table
                    if weight.precision == name
                    for reader in weight.readers
                    if reader.file == file
                }
                if weights:
                    quantize = strategy.make_pass(weights, ranges[file], self.target)
                    graphs[file], records = run_passes(graphs[file], [quantize])
                    passes[file] = (*passes[file], *records)
                    if isinstance(quantize, QuantizeStaticPass):
                        static[file] = quantize
        return QuantizedGraphs(graphs, passes, table, static)

    def _optimize(self, in_blocks: bool) -> OptimizedGraphs:
        merge = MergeLinearsPass(self._imported_activation) if self.run.info.quantization else None
        chosen = partial(optimizations, target=self.target, in_blocks=in_blocks, for_cuda=self._for_cuda, merge=merge)
        graphs, passes = optimized_graphs(copies(self.traced.graphs), chosen, partial(self._progress, OPTIMIZE))
        layers = () if self._for_cuda else tuple(find_layers(self._parameters, graphs))
        return OptimizedGraphs(graphs, passes, layers)

    def _imported_activation(self, linear: Linear) -> float | None:
        """Scale of a product's inputs in a model that was quantized elsewhere."""
        return imported_activation(self._parameters, linear.constant)

    def _calibrate(self, in_blocks: bool) -> dict[str, dict[str, QuantizationRange]]:
        graphs = self._optimized(in_blocks).graphs
        names = {file: activations(graph.graph) for file, graph in graphs.items()}
        return calibrate(self._calibration_data(graphs), names, partial(self._progress, CALIBRATE))

    @cached_property
    def moments(self) -> dict[str, Matrix]:
        """Second moments of what reads each weight, by the name of the layer."""
        optimized = self._optimized(True)
        return weight_moments(
            self.model, optimized.layers, self._calibration_data(optimized.graphs), partial(self._progress, WEIGH)
        )

    def _calibration_data(self, graphs: Graphs) -> CalibrationData:
        pairs = [(pair.source, pair.target) for pair in spread(self.pairs, CALIBRATION_PAIRS)]
        return CalibrationData(graphs, self.traced.table, pairs, self.special)


def check_exportable(model: EncoderDecoder) -> None:
    """Trace and optimize a model, trained or not, as an export does; an entry point of ``edgeformer.pretrain_checks``.

    Args:
        model: a model that satisfies the contract; it is left in evaluation mode.

    Raises:
        ExportError: the model cannot be exported.
    """
    optimized_graphs(
        to_onnx(model, "ort").graphs, partial(optimizations, target="ort", in_blocks=False, for_cuda=False)
    )


def optimized_graphs(
    graphs: Graphs,
    passes_of: Callable[[str], Sequence[ir.passes.PassBase]],
    progress: Callable[[float], None] = lambda fraction: None,
) -> tuple[Graphs, Passes]:
    """Run optimization passes, and make sure that bundles may use the operators of the result.

    Args:
        graphs: the graphs as traced; modified in place.
        passes_of: the passes of a graph, by its file; see :func:`optimizations`.
        progress: called with the fraction done, 0 … 1.

    Raises:
        ExportError: an operator may not be used.
    """
    passes = {}
    for number, file in enumerate(graphs):
        progress(number / len(graphs))
        graphs[file], records = run_passes(graphs[file], passes_of(file))
        passes[file] = tuple(records)
        if problem := unsupported(operator_counts(graphs[file])):
            method = "encode" if file == contract.ENCODER_FILE else "step"
            raise ExportError(f"The model's `{method}` needs {problem}")
    return graphs, passes


def copies(graphs: Graphs) -> Graphs:
    """Copy graphs, so that the copies can be modified."""
    return {file: graph.clone() for file, graph in graphs.items()}


def optimizations(
    file: str, target: Target, *, in_blocks: bool, for_cuda: bool, merge: MergeLinearsPass | None = None
) -> list[ir.passes.PassBase]:
    """List the optimization passes in order; they change results only by rounding.

    The tracer has already folded constants, merged equal subexpressions and removed unused nodes.

    Args:
        file: the graph's file name in a bundle: the encoder has one row per source token, a decoder step few rows.
        target: which operators may be used.
        in_blocks: weights will be quantized in blocks, for one row at a time.
        for_cuda: optimize for CUDA, in half precision.
        merge: merges matrix products of decoder steps; by default, all with the same input.
    """
    step = file != contract.ENCODER_FILE
    passes: list[ir.passes.PassBase] = [merge or MergeLinearsPass(), SimplifyPass()] if step else [SimplifyPass()]
    if target == "ort":
        fused_norm = for_cuda or (step and in_blocks)
        passes += [FuseHeadsPass(), FuseSkipNormPass() if fused_norm else VectorNormPass()]
    if for_cuda:
        passes.append(HalfPrecisionPass())
    return passes
