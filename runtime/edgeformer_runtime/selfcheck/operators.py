"""Which operators a bundle's graphs ask for, and whether the installed onnxruntime knows them. Needs no onnx."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec
import onnxruntime as ort

from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.errors import BundleError


class Operators(msgspec.Struct, kw_only=True, frozen=True):
    """What the graphs ask of the engine."""

    opsets: dict[str, int]
    """Version of each operator set; ``ai.onnx`` is the standard."""
    kinds: int
    """Different operators."""
    nodes: int
    """Nodes of all graphs."""


def check_operators(bundle: Bundle) -> Operators:
    """Compare the graphs' operator sets with the manifest's, and their operators with what onnxruntime knows.

    Raises:
        BundleError: a graph cannot be read or asks for other operator sets than the manifest says, or onnxruntime lacks
            an operator; lists them all.
    """
    known, manifest = _known(), bundle.manifest
    used: set[tuple[str, str]] = set()
    problems, nodes = [], 0
    for file in manifest.precision:
        try:
            opsets, operators = read_graph(bundle.file(file).read_bytes())
        except (IndexError, UnicodeDecodeError) as error:
            raise BundleError(f"`{file}` is no ONNX graph ({error}); export the bundle again.") from None
        nodes += len(operators)
        used |= set(operators)
        wrong = {domain: version for domain, version in opsets.items() if manifest.opsets.get(domain) != version}
        if wrong:
            problems.append(f"`{file}` has operator sets {_named(wrong)}, the manifest {_named(manifest.opsets)}")
        for domain, name in sorted(set(operators)):
            versions = known.get((domain, name))
            if known and (versions is None or min(versions) > opsets.get(domain, 1)):
                problems.append(f"`{file}` needs operator {name} of {_named({domain: opsets.get(domain, 1)})}")
    if problems:
        raise BundleError(
            f"Bundle `{bundle.path}` does not suit onnxruntime {ort.__version__}: " + "; ".join(problems) + "."
        )
    names = {domain or "ai.onnx": version for domain, version in manifest.opsets.items()}
    return Operators(opsets=names, kinds=len(used), nodes=nodes)


def read_graph(data: bytes) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Operator sets of a serialised model, and domain and name of each node's operator, those of inner graphs too.

    Raises:
        IndexError: the data ends within a field.
        UnicodeDecodeError: a name is no text.
    """
    opsets: dict[str, int] = {}
    operators: list[tuple[str, str]] = []
    for number, content in _fields(data):
        if number == 8 and isinstance(content, bytes):  # opset_import: domain 1, version 2
            fields = dict(_fields(content))
            opsets[_text(fields.get(1))] = int(fields.get(2, 0))
        elif number == 7 and isinstance(content, bytes):
            operators += _operators(content)
    return opsets, operators


def _operators(graph: bytes) -> Iterator[tuple[str, str]]:
    for number, node in _fields(graph):
        if number == 1 and isinstance(node, bytes):  # op_type 4, domain 7, attributes 5, of which a graph is field 6
            fields = list(_fields(node))
            single = dict(fields)
            yield _text(single.get(7)), _text(single.get(4))
            for field, attribute in fields:
                if field == 5 and isinstance(attribute, bytes):
                    for inner, content in _fields(attribute):
                        if inner == 6 and isinstance(content, bytes):
                            yield from _operators(content)


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Number and content of each field of a message in the format of protocol buffers."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        if kind == 0:
            value, position = _varint(data, position)
            yield key >> 3, value
            continue
        length = {1: 8, 5: 4}.get(kind)
        if length is None:
            length, position = _varint(data, position)
        if position + length > len(data):
            raise IndexError("it ends too early")
        yield key >> 3, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number, and the position behind it."""
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position


def _text(content: bytes | int | None) -> str:
    return content.decode() if isinstance(content, bytes) else ""


def _known() -> dict[tuple[str, str], list[int]]:
    """Versions of each operator that onnxruntime knows, by domain and name; empty if it does not tell."""
    tell = getattr(ort.capi.onnxruntime_pybind11_state, "get_all_operator_schema", None)
    versions: dict[tuple[str, str], list[int]] = defaultdict(list)
    for schema in tell() if tell is not None else ():
        versions[schema.domain, schema.name].append(schema.since_version)
    return versions


def _named(opsets: dict[str, int]) -> str:
    return ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in opsets.items())
