"""Names of weights in graphs: those of the parameters that a weight is computed from, in every pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx_ir as ir

WRAPPED = "model."
"""Prefix of parameters in the modules that are traced."""
_AND, _COPY = "+", "#"


def parameter_names(constant: str) -> tuple[str, ...]:
    """List the parameters that a constant is computed from, in the order of their rows, by the constant's name."""
    return tuple(name.removeprefix(WRAPPED) for name in constant.partition(_COPY)[0].split(_AND))


def joined_name(graph: ir.Graph, constants: Iterable[str]) -> str:
    """Name a constant that is computed from others of a graph."""
    name = _AND.join(dict.fromkeys(part for constant in constants for part in constant.partition(_COPY)[0].split(_AND)))
    copies = sum(other.partition(_COPY)[0] == name for other in graph.initializers)
    return f"{name}{_COPY}{copies + 1}" if copies else name


def fold(model: ir.Model, folding: Callable[[], object]) -> None:
    """Fold constants, and name those that are computed from weights after these weights.

    Args:
        model: the model.
        folding: folds its constants in place, each under the name of the value that it replaces.
    """
    origins = _origins(model.graph)
    folding()
    for value in list(model.graph.initializers.values()):
        if value.dtype == ir.DataType.FLOAT and (origin := origins.get(str(value.name))):
            value.name = joined_name(model.graph, origin)


def _origins(graph: ir.Graph) -> dict[str, tuple[str, ...]]:
    """Find the initializers that each node's output is computed from, where it depends on constants only."""
    origins: dict[ir.Value, tuple[str, ...]] = {value: (name,) for name, value in graph.initializers.items()}
    computed: dict[str, tuple[str, ...]] = {}
    for node in graph:
        inputs = [value for value in node.inputs if value is not None]
        if all(value in origins for value in inputs):
            origin = tuple(dict.fromkeys(name for value in inputs for name in origins[value]))
            origins |= dict.fromkeys(node.outputs, origin)
            computed |= {str(value.name): origin for value in node.outputs}
    return computed
