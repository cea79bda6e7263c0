"""Runs recorded traces again and finds the first tensor that differs from the record: first among the graphs' outputs,
then inside the graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE, SOURCE_AXIS
from edgeformer_runtime.errors import ModelError
from edgeformer_runtime.precision import PRECISIONS
from edgeformer_runtime.selfcheck.inner_graphs import InnerGraphs, inner_fingerprints
from edgeformer_runtime.selfcheck.location import InnerTensor, Location, finite, graph_of, location_of, modules_of
from edgeformer_runtime.selfcheck.trace import Deviation, Trace, deviations, session_fingerprints
from edgeformer_runtime.translator import Translator

OVERALL = 0.25
"""Fraction of a precision's tolerance allowed for the root mean square over all tensors of a graph. Between an x86
processor and emulated ARM64 processors, the root mean square was 0.0035 (int8) and 0.02 (int4); with saturating integer
products, it is 0.023 or more."""
INSIDE = {True: 0.1, False: 0.25}
"""Fraction of a precision's tolerance above which a tensor inside the graphs counts as different, since differences may
grow downstream of their origin. The key is whether the same kernels run."""


class GraphResult(msgspec.Struct, kw_only=True, frozen=True):
    """Comparison of one graph's tensors with the record."""

    file: str
    """File name of the graph."""
    tensors: int
    """Number of tensors compared."""
    max_difference: float | None
    """Largest relative difference; ``None`` if not finite."""
    tolerance: float
    """Largest relative difference allowed."""
    overall_difference: float | None
    """Root mean square of the relative differences; ``None`` if not finite."""
    overall_tolerance: float
    """Largest :attr:`overall_difference` allowed."""

    @property
    def passed(self) -> bool:
        """Whether both differences are within tolerance."""
        if self.max_difference is None or self.overall_difference is None:
            return False
        return self.max_difference <= self.tolerance and self.overall_difference <= self.overall_tolerance


class TraceResult(msgspec.Struct, kw_only=True, frozen=True):
    """Comparison of all traces with the record."""

    graphs: tuple[GraphResult, ...]
    """Results for encoder and decoder; empty if nothing was compared."""
    same_kernels: bool
    """Whether this machine runs the same kernels as the machine that recorded the examples."""
    first: Location | None
    """Location of the first difference; ``None`` if no difference was found."""
    problems: tuple[str, ...]
    """One sentence per problem."""


def check_traces(
    translator: Translator,
    traces: Sequence[Trace],
    inner: Trace | None,
    tensors: Sequence[InnerTensor],
    *,
    same_kernels: bool,
) -> TraceResult:
    """Run traces again and compare them with the record.

    Args:
        translator: translator of the bundle.
        traces: one trace per text.
        inner: trace that includes inner tensors, if any.
        tensors: the inner tensors of that trace.
        same_kernels: whether this machine runs the same kernels as the machine that recorded the traces.
    """
    tolerances = _tolerances(translator.bundle, same_kernels)
    numbered: list[tuple[int, Deviation]] = []
    """Deviations with the numbers of their examples."""
    problems, location = [], None
    for number, trace in enumerate(traces, 1):
        try:
            actual = session_fingerprints(translator.session.onnxruntime, translator.bundle.manifest.state, trace)
        except ModelError as error:
            problems.append(f"example {number}: {error}".removesuffix("."))
        else:
            numbered += [(number, deviation) for deviation in deviations(actual, trace)]
    numbered.sort(key=lambda entry: entry[1].stage)
    by_graph = {file: [entry for entry in numbered if graph_of(entry[1]) == file] for file in tolerances}
    graphs = [
        _graph_result(file, [deviation for _, deviation in entries], tolerances[file])
        for file, entries in by_graph.items()
        if numbered
    ]
    failed = next((graph for graph in graphs if not graph.passed), None)
    if failed is not None:
        single = failed.max_difference is None or failed.max_difference > failed.tolerance
        bound = failed.tolerance if single else failed.overall_tolerance
        number, deviation = next(entry for entry in by_graph[failed.file] if entry[1].difference > bound)
        location = location_of(deviation, bound, {})
        no_mask = _agrees_without_padding(translator, traces[number - 1], tolerances)
        if inner is not None:
            bounds = {file: tolerance * INSIDE[same_kernels] for file, tolerance in tolerances.items()}
            part = _inside(translator, inner, tensors, bounds)
            if part is not None:
                number = next((index for index, trace in enumerate(traces, 1) if trace.source == inner.source), number)
                location = part
        problems.append(f"first difference in example {number}: {location}")
        if no_mask:
            problems[-1] += "; without padding all agrees, so a padding mask has no effect"
    return TraceResult(graphs=tuple(graphs), same_kernels=same_kernels, first=location, problems=tuple(problems))


def _graph_result(file: str, compared: Sequence[Deviation], tolerance: float) -> GraphResult:
    differences = np.array([deviation.difference for deviation in compared])
    return GraphResult(
        file=file,
        tensors=len(compared),
        max_difference=finite(float(differences.max(initial=0.0))),
        tolerance=tolerance,
        overall_difference=finite(float(np.sqrt(np.square(differences).sum() / max(1, len(compared))))),
        overall_tolerance=tolerance * OVERALL,
    )


def _tolerances(bundle: Bundle, same_kernels: bool) -> dict[str, float]:
    """Largest relative difference allowed for each graph. The decoder's is at least the encoder's, since the decoder
    reads the encoder's tensors."""
    tolerances = {file: PRECISIONS[name].tolerances for file, name in bundle.manifest.precision.items()}
    encoder, decoder = (
        tolerances[file].same_kernels if same_kernels else tolerances[file].other_kernels
        for file in (ENCODER_FILE, DECODER_FILE)
    )
    return {ENCODER_FILE: encoder, DECODER_FILE: max(encoder, decoder)}


def _inside(
    translator: Translator, inner: Trace, tensors: Sequence[InnerTensor], bounds: Mapping[str, float]
) -> Location | None:
    """Location of the first inner tensor that differs; ``None`` if all match or the graphs cannot be run this way."""
    bundle, modules = translator.bundle, modules_of(tensors)
    names = {file: list(known) for file, known in modules.items()}
    try:
        graphs = InnerGraphs.of_bundle(bundle, names, translator.session.device)
        actual = inner_fingerprints(graphs, bundle.manifest, inner)
    except ModelError:
        return None
    for deviation in deviations(actual, inner):
        bound = bounds[graph_of(deviation)]
        if deviation.difference > bound:
            return location_of(deviation, bound, modules)
    return None


def _agrees_without_padding(translator: Translator, trace: Trace, tolerances: Mapping[str, float]) -> bool:
    """Whether the sentence matches the record when run without padding, ignoring masks ``(N, S)``."""
    table = [tensor for tensor in translator.bundle.manifest.state if tensor.axes[1:] != (SOURCE_AXIS,)]
    try:
        actual = session_fingerprints(translator.session.onnxruntime, table, trace, padding=0)
    except ModelError:
        return False
    rest = tuple({name: stage[name] for name in seen} for stage, seen in zip(trace.stages, actual, strict=True))
    compared = deviations(actual, msgspec.structs.replace(trace, stages=rest))
    return all(deviation.difference <= OVERALL * tolerances[graph_of(deviation)] for deviation in compared)
