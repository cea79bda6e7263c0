"""Weights that can be quantized, named after the torch parameters they come from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from torch import nn

from edgeformer_export.passes.patterns import constant_array, digest, find_linears, find_lookups
from edgeformer_export.quantize.static import find_stored, stored_name, stored_rows
from edgeformer_export.tracing.to_onnx import Graphs
from edgeformer_runtime import contract
from edgeformer_runtime.precision import Precision

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
    stored: dict[Precision, tuple[float | None, int]] = field(default_factory=dict, repr=False, compare=False)
    """Error and bytes by precision, as far as known; see :func:`~edgeformer_export.quantize.assignment.stored`."""

    @property
    def rows(self) -> NDArray[np.float32]:
        """Rows of the weight, ``(out, in)``."""
        return self.uses[0].rows


def find_layers(model: nn.Module, graphs: Graphs) -> list[Layer]:
    """Find every encoder and decoder weight that a pass can quantize, encoder first, in the order of the graphs.

    Tracing folds weights into unnamed constants, multiplies them by factors and concatenates them, so parameters are
    identified by the direction of a weight's rows.

    Args:
        model: the torch model.
        graphs: its optimized graphs, before quantization.
    """
    shared: dict[str, list[Use]] = defaultdict(list)
    for file in (contract.ENCODER_FILE, contract.DECODER_FILE):
        for use in _uses(file, graphs[file].graph):
            shared[digest(use.rows)].append(use)
    known = _parameters(model)
    layers: list[Layer] = []
    for uses in shared.values():
        name = _name(uses[0].rows, known) or f"{uses[0].file.partition('.')[0]}:{uses[0].name}"
        taken = sum(layer.name.partition(" ")[0] == name for layer in layers)
        layers.append(Layer(name if not taken else f"{name} ({taken + 1})", tuple(uses)))
    return layers


def _uses(file: str, graph: ir.Graph) -> Iterator[Use]:
    for node in find_lookups(graph):
        yield Use(file, str(node.outputs[0].name), "lookup", constant_array(node.inputs[0]))
    for linear in find_linears(graph):
        yield Use(file, str(linear.output.name), "linear", linear.weight.T)
    for node, index in find_stored(graph):
        yield Use(file, stored_name(node, index), "stored", stored_rows(node, index))


@dataclass(frozen=True)
class _Parameter:
    name: str
    count: int
    """Number of rows."""
    lead: int
    """Index of the first nonzero row: the padding token may have a row of zeros."""
    direction: NDArray[np.float32]
    """That row, normalized to length 1."""


def _parameters(model: nn.Module) -> list[_Parameter]:
    """List all parameters that are matrices."""
    matrices = []
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            continue
        rows = parameter.detach().float().cpu().numpy().reshape(parameter.shape[0], -1)
        lead = int(np.argmax(rows.any(axis=1)))
        matrices.append(_Parameter(name.removesuffix(".weight"), len(rows), lead, _unit(rows[lead])))
    return matrices


def _name(rows: NDArray[np.float32], parameters: Sequence[_Parameter]) -> str:
    """Name the parameters that are concatenated in a weight; empty if any of them is unknown."""

    def is_at(parameter: _Parameter, at: int) -> bool:
        fits = rows.shape[1] == len(parameter.direction) and at + parameter.count <= len(rows)
        return fits and float(parameter.direction @ _unit(rows[at + parameter.lead])) >= SAME_DIRECTION

    names, at = [], 0
    while at < len(rows):
        match = next((parameter for parameter in parameters if is_at(parameter, at)), None)
        if match is None:
            return ""
        names.append(match.name)
        at += match.count
    return _joined(names)


def _joined(names: Sequence[str]) -> str:
    """Combine ``a.b.c`` and ``a.d.c`` into ``a.{b,d}.c``."""
    if len(names) == 1:
        return names[0]
    parts = [name.split(".") for name in names]
    shortest = min(map(len, parts))
    start = next((at for at in range(shortest) if len({part[at] for part in parts}) > 1), shortest)
    most = shortest - start
    end = next((at for at in range(most) if len({part[-1 - at] for part in parts}) > 1), most)
    middles = [".".join(part[start : len(part) - end]) for part in parts]
    return ".".join([*parts[0][:start], "{" + ",".join(middles) + "}", *parts[0][len(parts[0]) - end :]])


def _unit(row: NDArray[np.float32]) -> NDArray[np.float32]:
    return row / max(float(np.linalg.norm(row)), 1e-30)
