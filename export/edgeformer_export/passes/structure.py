"""What a graph computes, regardless of the names of its parts."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from edgeformer_export.weights import digest


@dataclass(frozen=True)
class Structure:
    """Operators, attributes, constants, wiring, operator sets and interface of a graph.

    Two graphs are equal if they differ only in the order of their nodes and in metadata: names of inner values, types
    and shapes of inner values, documentation and ``metadata_props``.
    """

    outputs: tuple[tuple[str, str], ...]
    """Name of each output, and the digest of everything it is computed from."""
    nodes: Counter[str]
    """Digest of each node, including everything its inputs are computed from."""
    constants: Counter[str]
    """Digest of each initializer."""
    opsets: dict[str, int]
    """Operator-set versions by domain."""


def structure(model: ir.Model) -> Structure:
    """Compute the structure of a model, whose nodes must be in topological order."""
    known: dict[ir.Value | None, str] = {None: ""}
    nodes, constants = _digests(model.graph, known)
    outputs = tuple((str(value.name), known[value]) for value in model.graph.outputs)
    return Structure(outputs, nodes, constants, dict(model.graph.opset_imports))


def operator_counts(model: ir.Model) -> Counter[str]:
    """Count nodes by operator, including those of subgraphs; names of operators outside the ONNX standard include the
    domain, as in ``com.microsoft.MatMulNBits``."""
    return Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in model.graph.all_nodes())


def rewired_nodes(before: ir.Model, after: ir.Model) -> int:
    """Count the nodes that keep their operator and output name but read different values."""
    old, new = _inputs(before), _inputs(after)
    return sum(1 for key, inputs in new.items() if old.get(key, inputs) != inputs)


def _inputs(model: ir.Model) -> dict[tuple[str, str | None], list[str | None]]:
    return {
        (node.op_type, node.outputs[0].name): [value.name if value is not None else None for value in node.inputs]
        for node in model.graph
    }


def _digests(graph: ir.Graph, known: dict[ir.Value | None, str]) -> tuple[Counter[str], Counter[str]]:
    """Compute digests of a graph's nodes and constants; adds its values to ``known``, which has those of outer
    graphs."""
    for index, value in enumerate(graph.inputs):
        known[value] = _digest("input", index, value.name, value.dtype)
    constants: Counter[str] = Counter()
    for value in graph.initializers.values():
        known[value] = _tensor(value.const_value)
        constants[known[value]] += 1
    nodes: Counter[str] = Counter()
    for node in graph:
        attributes = [(name, _attribute(attribute, known)) for name, attribute in sorted(node.attributes.items())]
        key = _digest(node.domain, node.op_type, [known[value] for value in node.inputs], attributes)
        nodes[key] += 1
        known |= {value: _digest(key, index) for index, value in enumerate(node.outputs)}
    return nodes, constants


def _attribute(attribute: ir.Attr, known: dict[ir.Value | None, str]) -> str:
    value = attribute.value
    match attribute.type:
        case ir.AttributeType.GRAPH:
            inner = dict(known)
            nodes, constants = _digests(value, inner)
            outputs = [inner[output] for output in value.outputs]
            return _digest(outputs, sorted(nodes.elements()), sorted(constants.elements()))
        case ir.AttributeType.TENSOR:
            return _tensor(value)
        case ir.AttributeType.FLOAT | ir.AttributeType.FLOATS:  # stored in single precision
            return str(np.asarray(value, np.float32).tolist())
        case _:
            return repr(value)


def _tensor(tensor: ir.TensorProtocol | None) -> str:
    if tensor is None:
        return ""
    if "digest" not in tensor.meta:  # copies of a model share their tensors
        tensor.meta["digest"] = _digest(tensor.dtype, list(tensor.shape), digest(tensor.numpy()))
    return str(tensor.meta["digest"])


def _digest(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()
