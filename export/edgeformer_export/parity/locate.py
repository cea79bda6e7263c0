"""Matches tensors of a graph to outputs of parts of the torch model, and finds where the two first differ."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from edgeformer.model.base import EncoderDecoder
from edgeformer.model.session import TorchSession
from edgeformer_export.parity.inner_graphs import InnerGraphs, Stage, padded, true_part
from edgeformer_export.tracing.to_onnx import Graphs
from edgeformer_export.weights import open_graph
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.bundle.report import LayerOutput
from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE, LOGITS, StateTensor
from edgeformer_runtime.errors import ModelError
from edgeformer_runtime.precision import PRECISIONS, Precision
from edgeformer_runtime.search.forced_steps import forced_steps

MATCHING = {str(traits.dtype): traits.tolerances.matching_tensor for traits in PRECISIONS.values()}
"""For each floating-point type, the maximum difference between matching tensors, relative to their largest value."""
GROWTH = 2.0
"""Factor by which the error on another sentence may exceed the error measured at export."""

Modules = dict[str, dict[str, list[str]]]
"""For each graph and each of its tensors, the parts of the model whose output it is."""


class Location(msgspec.Struct, kw_only=True, frozen=True):
    """The first tensor that differs by more than its tolerance."""

    part: str
    """The part of the model in words, or the graph and the tensor."""
    module: str | None
    """Path of the PyTorch module; ``None`` if only the graph is known."""
    step: int
    """Decoder step, from 1; 0 in the encoder."""
    difference: float | None
    """Root mean square of the difference, relative to that of the expected tensor; ``None`` if not finite."""
    tolerance: float
    """Largest relative difference that is not reported."""

    def __str__(self) -> str:
        path = f"`{self.module}`, " if self.module is not None else ""
        difference = "not finite" if self.difference is None else f"relative difference {self.difference:.2g}"
        step = f", step {self.step}" if self.step else ""
        return f"{self.part} ({path}{difference}, tolerance {self.tolerance:.2g}){step}"


class ForcedSentence(NamedTuple):
    """Tokens to feed to a model."""

    source: tuple[int, ...]
    """Source token ids, end token included, without padding."""
    target: tuple[int, ...]
    """Tokens fed to the decoder steps, start token first."""


class Deviation(NamedTuple):
    """Difference of one tensor from PyTorch's."""

    step: int
    """0 for the encoder, ``i`` for decoder step ``i``."""
    tensor: str
    """Name of the tensor."""
    difference: float
    """Root mean square of the difference, relative to that of PyTorch's tensor."""

    @property
    def file(self) -> str:
        """File name of the graph that the tensor belongs to."""
        return DECODER_FILE if self.step else ENCODER_FILE


def match_modules(
    model: EncoderDecoder,
    graphs: Graphs,
    table: Sequence[StateTensor],
    special: SpecialTokens,
    sentence: ForcedSentence,
) -> Modules:
    """Find the outputs of the model's parts in its graphs by value; empty if the engine cannot return them.

    Args:
        model: the torch model.
        graphs: its graphs before quantization.
        table: the state table of the graphs.
        special: special token ids.
        sentence: what to feed.
    """
    names = {file: _inner_names(graphs[file]) for file in (ENCODER_FILE, DECODER_FILE)}
    source, length = padded(sentence.source, special.pad, model.max_source_length)
    try:
        inner = InnerGraphs({file: open_graph(file, graphs[file], names[file]) for file in names}, table)
        graph_tensors = _by_tensor(inner.stages(source, length, sentence.target), len(sentence.source), source.shape[1])
    except ModelError:  # a tensor is not an array but, for example, a sequence
        return {file: {} for file in names}
    torch_tensors = _by_tensor(
        (parts for parts, _ in torch_stages(model, special, source, length, sentence.target)),
        len(sentence.source),
        source.shape[1],
    )
    plain = {name for name, module in model.named_modules() if isinstance(module, nn.Dropout | nn.Identity)}
    result: Modules = {}
    for file in names:
        modules = {name: values for name, values in torch_tensors[file].items() if name not in plain}
        result[file] = {
            tensor: same
            for tensor in names[file]
            if (same := [name for name, values in modules.items() if _same(graph_tensors[file][tensor], values)])
        }
    return result


def layer_outputs(
    model: EncoderDecoder, bundle: Bundle, sentences: Sequence[ForcedSentence], modules: Modules, device: str
) -> tuple[LayerOutput, ...]:
    """Measure the error, relative to PyTorch, of the tensors of a bundle's graphs that are outputs of layers.

    Args:
        model: the torch model.
        bundle: the bundle; tensors no longer present in its graphs are skipped.
        sentences: what to feed.
        modules: see :func:`match_modules`.
        device: ``cpu`` or ``cuda``.
    """
    chosen = {file: _one_each(bundle, file, tensors) for file, tensors in modules.items()}
    inner = InnerGraphs.of_bundle(bundle, {file: list(names) for file, names in chosen.items()}, device)
    errors: dict[tuple[str, str], float] = defaultdict(float)
    for sentence in sentences:
        for deviation in torch_deviations(model, inner, bundle.manifest.special, sentence, chosen):
            key = deviation.file, deviation.tensor
            errors[key] = max(errors[key], deviation.difference)
    return tuple(
        LayerOutput(
            file=file,
            tensor=name,
            module=chosen[file].get(name),
            error=float(f"{max(error, 1e-6):.2g}"),  # smaller errors are not reproducible
        )
        for (file, name), error in errors.items()
        if np.isfinite(error)
    )


def locate(model: EncoderDecoder, bundle: Bundle, device: str, sentence: ForcedSentence) -> Location | None:
    """Find the first tensor of a bundle whose difference from PyTorch exceeds that at export.

    Args:
        model: the torch model.
        bundle: the bundle.
        device: ``cpu`` or ``cuda``.
        sentence: what to feed.

    Raises:
        ModelError: the engine fails.
    """
    manifest = bundle.manifest
    modules = modules_of(manifest.report.layers)
    errors = {(layer.file, layer.tensor): layer.error for layer in manifest.report.layers}
    try:
        inner = InnerGraphs.of_bundle(bundle, {file: list(names) for file, names in modules.items()}, device)
    except ModelError:  # the graphs lack such a tensor, so only their outputs can be compared
        inner = InnerGraphs.of_bundle(bundle, {}, device)
    for deviation in torch_deviations(model, inner, manifest.special, sentence, modules):
        precisions = manifest.precision[ENCODER_FILE], manifest.precision[deviation.file]
        tolerance = _tolerance(precisions, errors.get((deviation.file, deviation.tensor)))
        if deviation.difference > tolerance:
            return _location(deviation, tolerance, modules)
    return None


def modules_of(layers: Sequence[LayerOutput]) -> dict[str, dict[str, str]]:
    """For each graph file, map tensors to the paths of the PyTorch modules that produce them."""
    modules: dict[str, dict[str, str]] = {ENCODER_FILE: {}, DECODER_FILE: {}}
    for layer in layers:
        if layer.module is not None:
            modules[layer.file][layer.tensor] = layer.module
    return modules


def _location(deviation: Deviation, tolerance: float, modules: Mapping[str, Mapping[str, str]]) -> Location:
    """Describe where a deviation is; ``modules`` is the result of :func:`modules_of`."""
    graph, difference = deviation.file.removesuffix(".onnx"), deviation.difference
    module = modules[deviation.file].get(deviation.tensor)
    return Location(
        part=f"the {graph}'s `{deviation.tensor}`" if module is None else in_words(module),
        module=module,
        step=deviation.step,
        difference=float(f"{difference:.3g}") if np.isfinite(difference) else None,
        tolerance=tolerance,
    )


def in_words(module: str) -> str:
    """Describe a module path: ``encoder_layers.0.feed_forward.3`` becomes "encoder layer 1, feed-forward"."""
    words: list[str] = []
    for name in module.split("."):
        if not name.isdigit():
            words.append(name.replace("feed_forward", "feed-forward").replace("_", " "))
        elif words and words[-1].endswith("s"):
            words[-1] = f"{words[-1].removesuffix('s')} {int(name) + 1}"
    return ", ".join(words)


def _tolerance(precisions: Iterable[Precision], error: float | None) -> float:
    """Return the largest relative difference to expect of a tensor.

    Args:
        precisions: precisions of the graphs that compute the tensor.
        error: the tensor's error at export, if known.
    """
    tolerances = [PRECISIONS[precision].tolerances for precision in precisions]
    if error is None:
        return max(row.unknown_tensor for row in tolerances)
    return max(GROWTH * error, *(row.inner_tensor for row in tolerances))


def torch_deviations(
    model: EncoderDecoder,
    inner: InnerGraphs,
    special: SpecialTokens,
    sentence: ForcedSentence,
    modules: Mapping[str, Mapping[str, str]],
) -> Iterator[Deviation]:
    """Yield how much each tensor of the graphs differs from PyTorch's, in order of stages and tensors.

    Args:
        model: the torch model.
        inner: the graphs.
        special: special token ids.
        sentence: what to feed.
        modules: for each graph, the part of the model whose output each inner tensor is.
    """
    source, length = padded(sentence.source, special.pad, model.max_source_length)
    pairs = zip(
        inner.stages(source, length, sentence.target),
        torch_stages(model, special, source, length, sentence.target),
        strict=True,
    )
    for number, (tensors, (parts, outputs)) in enumerate(pairs):
        names = modules[DECODER_FILE if number else ENCODER_FILE]
        for tensor, value in tensors.items():
            expected = parts.get(names[tensor]) if tensor in names else outputs.get(tensor)
            if expected is not None and expected.size == value.size:
                # Of one shape, since an axis of a layer may by chance be as long as the padded source.
                alike = (array.reshape(expected.shape) for array in (value, expected))
                both = (true_part(array, len(sentence.source), source.shape[1]) for array in alike)
                yield Deviation(number, tensor, relative_error(*both))


def relative_error(actual: NDArray[np.generic], expected: NDArray[np.generic]) -> float:
    """Root mean square of the difference between two tensors of equal size, relative to that of the expected tensor.

    Infinite if ``actual`` has NaN or infinite values.
    """
    reference = np.asarray(expected, np.float64).ravel()
    difference = np.asarray(actual, np.float64).ravel() - reference
    if not np.isfinite(difference).all():
        return math.inf
    error, size = float(np.linalg.norm(difference)), float(np.linalg.norm(reference))
    return 0.0 if error == 0 else error / size if size > 0 else math.inf


@torch.inference_mode()
def torch_stages(
    model: EncoderDecoder,
    special: SpecialTokens,
    source: NDArray[np.int64],
    source_length: NDArray[np.int64],
    target: Sequence[int],
) -> Iterator[tuple[Stage, Stage]]:
    """Yield what a torch model computes for one sentence: first the encoder, then each step.

    Yields:
        Outputs of the parts that are called once and return a tensor, by path; and state tensors and logits, by the
        names of the graphs' outputs.
    """
    calls: dict[str, list[Any]] = defaultdict(list)

    def hook(name: str) -> Any:
        return lambda module, inputs, output: calls[name].append(output)

    def parts() -> Stage:
        first = {name: outputs[0] for name, outputs in calls.items() if len(outputs) == 1}
        calls.clear()
        first = {name: value[0] if isinstance(value, tuple) else value for name, value in first.items()}
        return {name: value.float().cpu().numpy() for name, value in first.items() if isinstance(value, Tensor)}

    # The fast path of nn.TransformerEncoder passes nested tensors between its layers, which no graph has.
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    hooks = [module.register_forward_hook(hook(name)) for name, module in model.named_modules() if name]
    try:
        state, table = TorchSession(model, special).start(source, source_length), model.state_table()
        encoded = {tensor.name: state.tensors[tensor.name].cpu().numpy() for tensor in table if tensor.from_encoder}
        yield parts(), encoded
        recurrent = [tensor for tensor in table if tensor.kind == "recurrent"]
        for logits in forced_steps(state, np.array([target])):
            after = {tensor.output_name: state.tensors[tensor.name].cpu().numpy() for tensor in recurrent}
            yield parts(), {LOGITS: logits, **after}
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        for handle in hooks:
            handle.remove()


def _inner_names(graph: ir.Model) -> list[str]:
    """List the tensors that nodes produce and that are not graph outputs, in the graph's order."""
    outputs = {value.name for value in graph.graph.outputs}
    names = (value.name for node in graph.graph for value in node.outputs)
    return [name for name in names if name and name not in outputs]


def _by_tensor(stages: Iterator[Stage], length: int, width: int) -> dict[str, dict[str, list[NDArray[Any]]]]:
    """Collect each tensor of each graph, without padding, over all stages."""
    result: dict[str, dict[str, list[NDArray[Any]]]] = {
        file: defaultdict(list) for file in (ENCODER_FILE, DECODER_FILE)
    }
    for number, stage in enumerate(stages):
        for name, array in stage.items():
            result[DECODER_FILE if number else ENCODER_FILE][name].append(true_part(array, length, width).ravel())
    return result


def _same(graph_values: Sequence[NDArray[Any]], torch_values: Sequence[NDArray[Any]]) -> bool:
    """Return whether two tensors are equal in every stage, apart from rounding."""
    return len(graph_values) == len(torch_values) and all(
        actual.size == expected.size > 1
        and np.abs(actual - expected).max() <= MATCHING.get(actual.dtype.name, 0.0) * np.abs(expected).max() > 0
        for actual, expected in zip(graph_values, torch_values, strict=True)
    )


def _one_each(bundle: Bundle, file: str, tensors: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Choose the innermost part for each tensor present in the bundle's graph, using no part twice."""
    graph = ir.load(bundle.file(file)).graph
    names = {value.name for node in graph for value in node.outputs}
    chosen: dict[str, str] = {}
    for tensor, modules in tensors.items():
        module = max(modules, key=lambda name: name.count("."))
        if tensor in names and module not in chosen.values():
            chosen[tensor] = module
    return chosen
