"""Weights that can be quantized, named after the torch parameters they come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from torch import nn

from edgeformer.quantization import LinearScales
from edgeformer_export.passes.names import parameter_names
from edgeformer_export.passes.patterns import constant_array, find_linears, find_lookups, is_weight
from edgeformer_export.tracing.to_onnx import Graphs
from edgeformer_runtime import contract

STORED_ONLY = {"LSTM": ((1, 2), 2), "GRU": ((1, 2), 2), "Conv": ((1,), 1)}
"""Operators whose arithmetic stays in fp32: indices of their weights among the inputs, and the number of leading axes
with one scale per index (direction and unit of a gate; output channel)."""


@dataclass(frozen=True)
class WeightReader:
    """One operator that reads a weight."""

    file: str
    """The graph's file."""
    name: str
    """Name of the operator's output, followed by the index of the input if the operator has several weights."""
    kind: Literal["linear", "lookup", "stored"]
    """Matrix product; row lookup; any other operator, whose weight can only be stored as int8."""
    rows: NDArray[np.float32]
    """``(out, in)``, or the rows of a table; each row has its own scale."""


@dataclass(frozen=True)
class Parameter:
    """A matrix of the torch model."""

    name: str
    """Without ``.weight``."""
    rows: NDArray[np.float32]
    """``(out, in)``; further axes are flattened into the second."""
    scales: LinearScales | None
    """Scales of a layer that was quantized elsewhere."""


Parameters = Mapping[str, Parameter]
"""Parameters by each of their names; one that is shared has several."""


@dataclass(frozen=True)
class ImportedScales:
    """Scales of a weight that was quantized elsewhere, whose integers are to be kept."""

    rows: NDArray[np.float32]
    """Scale of each output, or of each row of a table, ``(out,)``."""
    activation: float | None
    """Scale of the inputs of a matrix product, whose integers are in -127 … 127; ``None`` if they are calibrated."""


@dataclass(frozen=True)
class Layer:
    """A weight and all operators that read it: for tied embeddings, both lookups and the output projection."""

    name: str
    """Name of the torch parameter without ``.weight``; if several are merged into one product, the parts of their names
    that differ are in braces."""
    readers: tuple[WeightReader, ...]
    """Operators that read the weight, at least one; all have the same rows."""
    parameters: tuple[Parameter, ...] = ()
    """The parameters whose rows it consists of, in their order; empty if it consists of anything else."""
    imported: ImportedScales | None = None
    """Scales of a model that was quantized elsewhere."""

    @property
    def rows(self) -> NDArray[np.float32]:
        """Rows of the weight, ``(out, in)``."""
        return self.readers[0].rows


def model_parameters(model: nn.Module, scales: Mapping[str, LinearScales]) -> Parameters:
    """Find all parameters of a model that are matrices.

    Args:
        model: the torch model.
        scales: scales of layers by the name of any of their parameters, without ``.weight``.
    """
    named = dict(model.named_parameters(remove_duplicate=False))
    given = {id(named[f"{name}.weight"]): known for name, known in scales.items()}
    matrices = {}
    for name, parameter in model.named_parameters():
        if parameter.ndim >= 2:
            rows = parameter.detach().float().cpu().numpy().reshape(parameter.shape[0], -1)
            matrices[id(parameter)] = Parameter(name.removesuffix(".weight"), rows, given.get(id(parameter)))
    return {name: matrices[id(parameter)] for name, parameter in named.items() if id(parameter) in matrices}


def find_layers(parameters: Parameters, graphs: Graphs) -> list[Layer]:
    """Find every encoder and decoder weight that a pass can quantize, encoder first, in the order of the graphs.

    Args:
        parameters: the parameters of the torch model.
        graphs: its optimized graphs, before quantization; their constants are named after parameters.
    """
    layers: dict[str, Layer] = {}
    for file in sorted(graphs, key=[*contract.GRAPH_FILES].index):
        for reader, constant in _readers(file, graphs[file].graph):
            name = _joined(
                [parameters[part].name if part in parameters else part for part in parameter_names(constant)]
            )
            number = 1  # the same parameters with other values, where tracing has multiplied them by a factor
            while (key := name if number == 1 else f"{name} ({number})") in layers:
                if np.array_equal(layers[key].rows, reader.rows):
                    break
                number += 1
            if key in layers:
                layers[key] = replace(layers[key], readers=(*layers[key].readers, reader))
            else:
                sources = _sources(parameters, constant, reader.rows)
                layers[key] = Layer(key, (reader,), sources, imported_scales(sources, reader.rows))
    return list(layers.values())


def _readers(file: str, graph: ir.Graph) -> Iterator[tuple[WeightReader, str]]:
    """Yield every operator with a weight, and the name of the constant that holds it."""
    for node in find_lookups(graph):
        yield (
            WeightReader(file, str(node.outputs[0].name), "lookup", constant_array(node.inputs[0])),
            _name(node.inputs[0]),
        )
    for linear in find_linears(graph):
        yield WeightReader(file, str(linear.output.name), "linear", linear.weight.T), linear.constant
    for node, index in find_stored(graph):
        yield (
            WeightReader(file, stored_name(node, index), "stored", stored_rows(node, index)),
            _name(node.inputs[index]),
        )


def _name(value: ir.Value | None) -> str:
    return "" if value is None else str(value.name)


def _sources(parameters: Parameters, constant: str, rows: NDArray[np.float32]) -> tuple[Parameter, ...]:
    """See :attr:`Layer.parameters`."""
    sources = tuple(parameters[name] for name in parameter_names(constant) if name in parameters)
    return sources if sum(len(source.rows) for source in sources) == len(rows) else ()


def imported_scales(sources: Sequence[Parameter], rows: NDArray[np.float32]) -> ImportedScales | None:
    """Scales of a weight's rows, if all of them were quantized elsewhere, for the same inputs."""
    known = [source.scales for source in sources if source.scales is not None]
    activations = {scales.activation for scales in known}
    if not known or len(known) < len(sources) or len(activations) > 1:
        return None
    scales, first = [], 0
    for source, of_source in zip(sources, known, strict=True):
        row = int(np.argmax(source.rows.any(axis=1)))  # the padding token may have a row of zeros
        factor = _norm(rows[first + row]) / _norm(source.rows[row])  # that tracing multiplied the parameter by
        scales.append(np.full(len(source.rows), of_source.weight * factor))
        first += len(source.rows)
    return ImportedScales(np.concatenate(scales).astype(np.float32), activations.pop())


def imported_activation(parameters: Parameters, constant: str) -> float | None:
    """Scale of the inputs of a product with this constant, in a model that was quantized elsewhere; else ``None``."""
    known = [parameters[name].scales for name in parameter_names(constant) if name in parameters]
    activations = {None if scales is None else scales.activation for scales in known}
    return activations.pop() if len(activations) == 1 else None


def find_stored(graph: ir.Graph) -> Iterator[tuple[ir.Node, int]]:
    """Yield every operator whose constant weights are only stored as integers, with the index of each weight."""
    for node in graph:
        if node.domain == "" and node.op_type in STORED_ONLY:
            for index in STORED_ONLY[node.op_type][0]:
                if is_weight(node.inputs[index], rank=None):
                    yield node, index


def stored_name(node: ir.Node, index: int) -> str:
    """Return the name of a weight that is only stored as integers."""
    return f"{node.outputs[0].name}.weight.{index}"


def stored_rows(node: ir.Node, index: int) -> NDArray[np.float32]:
    """Return a weight that is only stored as integers as ``(rows, values)``; each row has its own scale."""
    weight, leading = constant_array(node.inputs[index]), STORED_ONLY[node.op_type][1]
    return weight.reshape(int(np.prod(weight.shape[:leading])), -1)


def _joined(names: Sequence[str]) -> str:
    """Combine ``a.b.c`` and ``a.d.c`` into ``a.{b,d}.c``."""
    if len(names) < 2:
        return "".join(names)
    split = [name.split(".") for name in names]
    shortest = min(map(len, split))
    start = next((at for at in range(shortest) if len({words[at] for words in split}) > 1), shortest)
    most = shortest - start
    end = next((at for at in range(most) if len({words[-1 - at] for words in split}) > 1), most)
    middles = [".".join(words[start : len(words) - end]) for words in split]
    return ".".join([*split[0][:start], "{" + ",".join(middles) + "}", *split[0][len(split[0]) - end :]])


def _norm(row: NDArray[np.float32]) -> float:
    return max(float(np.linalg.norm(row)), 1e-30)
