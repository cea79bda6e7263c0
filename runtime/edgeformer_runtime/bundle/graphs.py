"""The check of graph files before the engine opens them: known operators only, and nothing that loops or nests.

onnxruntime itself refuses weights outside the bundle's folder, and constants whose size is not that of their content.
But it runs loops without an end, inlines functions of functions, and opens whatever else ONNX knows. This check needs a
reader of its own, since the runtime does without onnx, and onnxruntime reads a graph only by loading it. The reader
knows the fields of a model, its graph, nodes and attributes that the exporter writes, and refuses all others, among
them nested graphs, functions and sparse constants. Messages are therefore nested to a fixed depth, and time is linear
in the size of the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from edgeformer_runtime import limits
from edgeformer_runtime.bundle import protobuf
from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.bundle.operators import OPERATORS
from edgeformer_runtime.bundle.plain_files import shortened
from edgeformer_runtime.errors import BundleError

# Numbers of fields in `onnx.proto`.
_GRAPH = 7  # of a model
_NODE = 1  # of a graph
_OPERATOR, _ATTRIBUTE, _DOMAIN = 4, 5, 7  # of a node
_KNOWN = {
    "model": frozenset({1, 2, 3, 4, 5, 6, 7, 8, 14}),  # not: 20 training, 25 functions
    "graph": frozenset({1, 2, 5, 10, 11, 12, 13, 16}),  # not: 15 sparse constants
    "node": frozenset({1, 2, 3, 4, 5, 6, 7, 9}),  # not: 8 overloads of functions
    "attribute": frozenset({1, 2, 3, 4, 5, 7, 8, 9, 13, 20}),  # not: 6 and 11 graphs, 21 parameters of functions
}


def check_graph(bundle: Bundle, file: str) -> None:
    """Check a graph file of a bundle.

    Raises:
        BundleError: the file is not a graph, is too large, nests something, or uses an operator that bundles may not
            use.
    """
    data = bundle.read(file, limits.MAX_GRAPH_BYTES)
    try:
        operators = graph_operators(data)
    except ValueError as error:
        raise BundleError(
            f"Bundle `{bundle.path}`: `{file}` is not a graph as edgeformer writes it: {error}. Export it again."
        ) from None
    if unknown := sorted(operators - OPERATORS):
        names = ", ".join(map(shortened, unknown[:10]))
        raise BundleError(f"Bundle `{bundle.path}`: `{file}` uses operators that bundles may not use: {names}.")


def graph_operators(data: bytes) -> set[str]:
    """List the operators of a serialized model. Those outside the ONNX standard are prefixed with their domain.

    Raises:
        ValueError: the data is not a model, has too many parts, or one that bundles may not have.
    """
    reader = _Reader(data)
    operators = set()
    for graph in reader.messages("model", (0, len(data)), _GRAPH):
        for node in reader.messages("graph", graph, _NODE):
            names = {_OPERATOR: b"", _DOMAIN: b""}
            for number, wire, begin, end in reader.fields("node", node):
                if number == _ATTRIBUTE:
                    list(reader.fields("attribute", (begin, end)))
                elif number in names and wire == protobuf.BYTES:  # the last one counts
                    names[number] = data[begin:end]
            name, domain = (part.decode(errors="replace") for part in names.values())
            operators.add(f"{domain}.{name}" if domain else name)
    return operators


class _Reader:
    """Splits messages of a file into fields, and counts them.

    Args:
        data: content of the file.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._count = data, 0

    def messages(self, kind: str, place: tuple[int, int], number: int) -> Iterator[tuple[int, int]]:
        """Yield begin and end of the messages in a field."""
        for found, _, begin, end in self.fields(kind, place):
            if found == number:
                yield begin, end

    def fields(self, kind: str, place: tuple[int, int]) -> Iterator[tuple[int, int, int, int]]:
        """Yield number, wire type, begin and end of each field of a message.

        Raises:
            ValueError: it is damaged, or has a field that bundles may not have, or the file has too many.
        """
        known = _KNOWN[kind]
        for field in protobuf.fields(self._data, *place, "graph"):
            self._count += 1
            if field[0] not in known:
                raise ValueError(f"field {field[0]} of its {kind} is not supported")
            if self._count > limits.MAX_GRAPH_FIELDS:
                raise ValueError(f"it has more than {limits.MAX_GRAPH_FIELDS:,} parts")
            yield field
