"""Weights that can be quantized, named after the torch parameters they come from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from torch import nn

from edgeformer.quantization import LinearScales
from edgeformer_export.passes.patterns import constant_array, find_linears, find_lookups
from edgeformer_export.quantize.static import GivenScales, find_stored, stored_name, stored_rows
from edgeformer_export.tracing.to_onnx import Graphs
from edgeformer_export.weights import digest
from edgeformer_runtime import contract

SAME_DIRECTION = 1 - 1e-6
"""Cosine similarity above which two rows are considered to differ only by a factor."""


@dataclass(frozen=True)
class Use:
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
class Layer:
    """A weight and all operators that read it: for tied embeddings, both lookups and the output projection."""

    name: str
    """Name of the torch parameter without ``.weight``; if several are merged into one product, the parts of their names
    that differ are in braces."""
    uses: tuple[Use, ...]
    """Operators that read the weight, at least one; all have the same rows."""
    given: GivenScales | None = None
    """Scales of a model that was quantized elsewhere."""
    parts: tuple[Part, ...] = ()
    """The parameters that the rows come from; empty if one of them is unknown."""

    @property
    def rows(self) -> NDArray[np.float32]:
        """Rows of the weight, ``(out, in)``."""
        return self.uses[0].rows


def find_layers(known: Sequence[Parameter], graphs: Graphs) -> list[Layer]:
    """Find every encoder and decoder weight that a pass can quantize, encoder first, in the order of the graphs.

    Tracing folds weights into unnamed constants, multiplies them by factors and concatenates them, so parameters are
    identified by the direction of a weight's rows.

    Args:
        known: the parameters of the torch model.
        graphs: its optimized graphs, before quantization.
    """
    shared: dict[str, list[Use]] = defaultdict(list)
    for file in sorted(graphs, key=[*contract.GRAPH_FILES].index):
        for use in _uses(file, graphs[file].graph):
            shared[digest(use.rows)].append(use)
    layers: list[Layer] = []
    for uses in shared.values():
        found = parts(uses[0].rows, known)
        name = _joined([part.parameter.name for part in found])
        name = name or f"{uses[0].file.partition('.')[0]}:{uses[0].name}"
        taken = sum(layer.name.partition(" ")[0] == name for layer in layers)
        layers.append(
            Layer(name if not taken else f"{name} ({taken + 1})", tuple(uses), given_scales(found), tuple(found))
        )
    return layers


def given_scales(found: Sequence[Part]) -> GivenScales | None:
    """Scales of a weight's rows, if all of them were quantized elsewhere, for the same inputs."""
    scales = [part.parameter.scales for part in found]
    known = [of_part for of_part in scales if of_part is not None]
    activations = {of_part.activation for of_part in known}
    if not known or len(known) < len(scales) or len(activations) > 1:
        return None
    rows = [
        np.full(part.parameter.count, of_part.weight * part.factor) for part, of_part in zip(found, known, strict=True)
    ]
    return GivenScales(np.concatenate(rows).astype(np.float32), activations.pop())


def _uses(file: str, graph: ir.Graph) -> Iterator[Use]:
    for node in find_lookups(graph):
        yield Use(file, str(node.outputs[0].name), "lookup", constant_array(node.inputs[0]))
    for linear in find_linears(graph):
        yield Use(file, str(linear.output.name), "linear", linear.weight.T)
    for node, index in find_stored(graph):
        yield Use(file, stored_name(node, index), "stored", stored_rows(node, index))


@dataclass(frozen=True)
class Parameter:
    """A matrix of the torch model."""

    name: str
    """Without ``.weight``."""
    count: int
    """Number of rows."""
    lead: int
    """Index of the first nonzero row: the padding token may have a row of zeros."""
    row: NDArray[np.float32]
    """That row."""
    scales: LinearScales | None
    """Scales of a layer that was quantized elsewhere."""


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a weight that come from one parameter."""

    parameter: Parameter
    factor: float
    """Factor that tracing has multiplied the parameter by."""


def parameters(model: nn.Module, scales: Mapping[str, LinearScales]) -> list[Parameter]:
    """List all parameters that are matrices; shared ones once.

    Args:
        model: the torch model.
        scales: scales of layers by the name of any of their parameters, without ``.weight``.
    """
    named = dict(model.named_parameters(remove_duplicate=False))
    given = {id(named[f"{name}.weight"]): known for name, known in scales.items()}
    matrices = []
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            continue
        rows = parameter.detach().float().cpu().numpy().reshape(parameter.shape[0], -1)
        lead = int(np.argmax(rows.any(axis=1)))
        matrices.append(Parameter(name.removesuffix(".weight"), len(rows), lead, rows[lead], given.get(id(parameter))))
    return matrices


def parts(rows: NDArray[np.float32], known: Sequence[Parameter]) -> list[Part]:
    """Find the parameters that are concatenated in a weight ``(out, in)``; empty if one of them is unknown."""

    def is_at(parameter: Parameter, at: int) -> bool:
        fits = rows.shape[1] == len(parameter.row) and at + parameter.count <= len(rows)
        return fits and float(_unit(parameter.row) @ _unit(rows[at + parameter.lead])) >= SAME_DIRECTION

    found, at = [], 0
    while at < len(rows):
        match = next((parameter for parameter in known if is_at(parameter, at)), None)
        if match is None:
            return []
        found.append(Part(match, _norm(rows[at + match.lead]) / _norm(match.row)))
        at += match.count
    return found


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


def _unit(row: NDArray[np.float32]) -> NDArray[np.float32]:
    return row / _norm(row)


def _norm(row: NDArray[np.float32]) -> float:
    return max(float(np.linalg.norm(row)), 1e-30)
