"""Reads from a graph file what decides whether the engine may open it: operators, versions and places of constants.

onnxruntime reads a graph only by loading it, with everything that the graph refers to: files anywhere on the system,
and even addresses in memory. A check before that needs a reader of its own, since the runtime does without onnx. This
one knows a fixed list of fields in each message of ``onnx.proto``, and refuses every other field, as well as known
fields of another wire type and a second value where it needs the only one. What it accepts therefore means the same to
every other reader of the format. Messages are nested to a fixed depth, since attributes may not hold graphs, so no file
makes the reader recurse; the time is linear in the size of the file.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from edgeformer_runtime import limits
from edgeformer_runtime.bundle import protobuf

Fields = dict[int, Any]
"""Values of a message by field number, in a list if the field is repeated. The value of a number is an ``int``; of text
and of a message, a pair: where it begins and ends in the file; of a number of fixed size, where it begins."""

_DAMAGE = "a number in it is truncated"


def _tags(*numbers: int, wire: int = protobuf.BYTES) -> frozenset[int]:
    return frozenset(number << 3 | wire for number in numbers)


class _Message:
    """The known fields of a message, as tags: field number and wire type in one number, as files have them.

    Args:
        name: name for errors, with article.
        single: tags of fields that have one value.
        repeated: tags of fields that may have several.
        ignored: tags of fields whose values nobody asks for.
    """

    def __init__(
        self,
        name: str,
        single: frozenset[int],
        repeated: frozenset[int] = frozenset(),
        ignored: frozenset[int] = frozenset(),
    ) -> None:
        self.name = name
        self.fields = {tag: (tag in repeated, tag in ignored) for tag in single | repeated | ignored}
        """Whether a field may be repeated, and whether it is ignored, by tag."""


_MODEL = _Message("the model", _tags(7), _tags(8), _tags(2, 3, 4, 6, 14) | _tags(1, 5, wire=protobuf.VARINT))
_OPERATOR_SET = _Message("an operator set", _tags(1) | _tags(2, wire=protobuf.VARINT))
_GRAPH = _Message("the graph", frozenset(), _tags(1, 5), _tags(2, 10, 11, 12, 13, 16))
_NODE = _Message("a node", _tags(4, 7), _tags(1, 5), _tags(2, 3, 6, 9))
_ATTRIBUTE = _Message(
    "an attribute",
    _tags(1, 5) | _tags(3, wire=protobuf.VARINT),
    frozenset(),
    _tags(4, 7, 8, 9, 13) | _tags(2, 7, wire=protobuf.FIXED32) | _tags(8, 20, wire=protobuf.VARINT),
)
_TENSOR = _Message(
    "a constant",
    _tags(8, 9) | _tags(2, 14, wire=protobuf.VARINT),
    _tags(1, 4, 5, 7, 10, 11, 13)
    | _tags(1, 5, 7, 11, wire=protobuf.VARINT)
    | _tags(4, wire=protobuf.FIXED32)
    | _tags(10, wire=protobuf.FIXED64),
    _tags(12, 16),
)
_ENTRY = _Message("an entry", _tags(1, 2))

ELEMENT_BITS = {
    1: 32,  # float32
    2: 8,  # uint8
    3: 8,  # int8
    4: 16,  # uint16
    5: 16,  # int16
    6: 32,  # int32
    7: 64,  # int64
    9: 8,  # bool
    10: 16,  # float16
    11: 64,  # float64
    12: 32,  # uint32
    13: 64,  # uint64
    16: 16,  # bfloat16
    21: 4,  # uint4
    22: 4,  # int4
}
"""Bits per element of the element types that a bundle may store; their numbers are those of ``onnx.proto``."""
UINT8, INT8, FLOAT16 = 2, 3, 10
MATMUL_BLOCKS = "com.microsoft.MatMulNBits"
"""The matrix product that reads weights in blocks."""
GATHER_BLOCKS = "com.microsoft.GatherBlockQuantized"
"""The look-up of rows of a table whose weights are in blocks."""


class GraphFormatError(ValueError):
    """The file is not an ONNX graph as the exporter writes it."""


class Tensor(NamedTuple):
    """A constant tensor of a graph."""

    element_type: int
    """A key of :data:`ELEMENT_BITS`."""
    shape: tuple[int, ...]
    """Size of each axis."""
    nbytes: int
    """Size in bytes."""
    external: Mapping[str, str] | None
    """Where the content is: ``location``, a file name, and ``offset`` and ``length``, in bytes; ``None`` if it is in
    the graph file."""


@dataclass(frozen=True)
class OnnxFile:
    """What is known of a graph without opening it."""

    opsets: dict[str, int]
    """Version of each operator set by domain; the empty domain is the ONNX standard."""
    operators: Counter[str]
    """Number of nodes by operator. Operators outside the ONNX standard are prefixed with their domain, as in
    ``com.microsoft.MatMulNBits``."""
    block_bits: frozenset[int]
    """Bits per weight of the matrix products that read weights in blocks."""
    block_tables: tuple[int, ...]
    """Number of rows of each table of look-ups whose weights are in blocks."""
    tensors: tuple[Tensor, ...]
    """The constants."""


def read_onnx(data: bytes) -> OnnxFile:
    """Read a serialized graph.

    Raises:
        GraphFormatError: the data is not a graph, exceeds a limit, or has a part that the exporter never writes, such
            as a nested graph or a function.
    """
    try:
        return _Reader(data).model()
    except UnicodeDecodeError:
        raise GraphFormatError("a name in it is not UTF-8") from None
    except ValueError as error:
        raise GraphFormatError(str(error)) from None


class _Reader:
    """Reads one file."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._bits: set[int] = set()
        self._tables: set[bytes] = set()
        self._rows: list[int] = []
        self._operators: dict[tuple[bytes, bytes], str] = {}
        self._entries: dict[bytes, tuple[str, str]] = {}
        self._tensors: list[Tensor] = []
        self._known_attributes: dict[bytes, int] = {}

    def model(self) -> OnnxFile:
        """Read the whole file."""
        fields = self._fields(_MODEL, 0, len(self._data))
        if 7 not in fields:
            raise GraphFormatError("it contains no graph")
        opsets: dict[str, int] = {}
        for begin, end in fields.get(8, ()):
            entry = self._fields(_OPERATOR_SET, begin, end)
            domain = self._text(entry, 1)
            if domain in opsets:
                raise GraphFormatError(f"it imports operator set `{domain}` twice")
            opsets[domain] = entry.get(2, 0)
            _limit("versions of an operator set", opsets[domain], limits.MAX_OPSET)
        graph = self._fields(_GRAPH, *fields[7])
        nodes, constants = graph.get(1, []), graph.get(5, [])
        _limit("nodes", len(nodes), limits.MAX_NODES)
        _limit("constants", len(constants), limits.MAX_TENSORS)
        operators = Counter([self._node(begin, end) for begin, end in nodes])
        self._tensors += [self._tensor(begin, end) for begin, end in constants]
        return OnnxFile(opsets, operators, frozenset(self._bits), tuple(self._rows), tuple(self._tensors))

    def _node(self, begin: int, end: int) -> str:
        """Read a node and return its operator."""
        fields = self._fields(_NODE, begin, end)
        key = self._bytes(fields, 4), self._bytes(fields, 7)
        operator = self._operators.get(key)
        if operator is None:
            name, domain = self._text(fields, 4), self._text(fields, 7)
            operator = self._operators[key] = f"{domain}.{name}" if domain else name
        bits = 0
        for first, last in fields.get(5, ()):
            # Many attributes are the same, and a second look at one would not find more.
            content = self._data[first:last]
            if content not in self._known_attributes:
                self._known_attributes[content] = self._attribute(first, last)
            bits = bits or self._known_attributes[content]
        if bits and operator == MATMUL_BLOCKS:
            self._bits.add(bits)
        if operator == GATHER_BLOCKS and 1 in fields:
            begin, end = fields[1][0]
            self._tables.add(self._data[begin:end])
        return operator

    def _attribute(self, begin: int, end: int) -> int:
        """Read an attribute and return its value if it is named ``bits``, otherwise 0."""
        fields = self._fields(_ATTRIBUTE, begin, end)
        if 5 in fields:
            tensor = self._tensor(*fields[5])
            if tensor.external is not None:
                raise GraphFormatError("an attribute refers to a file")
            self._tensors.append(tensor)
        bits: int = fields.get(3, 0)
        return bits if self._text(fields, 1) == "bits" else 0

    def _tensor(self, begin: int, end: int) -> Tensor:
        fields = self._fields(_TENSOR, begin, end)
        bits = ELEMENT_BITS.get(fields.get(2, 0))
        if bits is None:
            raise GraphFormatError(f"a constant has the unsupported element type {fields.get(2, 0)}")
        shape = tuple(self._numbers(fields.get(1, ())))
        _limit("axes of a constant", len(shape), limits.MAX_AXES)
        if any(size >= 2**63 for size in shape):
            raise GraphFormatError("a constant has an axis of negative size")
        nbytes = -(-math.prod(shape) * bits // 8)
        external = self._external(fields)
        if external is None:
            _limit("bytes of a constant in the graph file", nbytes, limits.MAX_INLINE_BYTES)
        if self._tables and shape and self._bytes(fields, 8) in self._tables:
            self._rows.append(shape[0])
        return Tensor(fields.get(2, 0), shape, nbytes, external)

    def _external(self, fields: Fields) -> dict[str, str] | None:
        """Where the content of a tensor is, if it is in another file."""
        location, entries = fields.get(14, 0), fields.get(13, [])
        if location not in (0, 1) or bool(entries) != (location == 1):
            raise GraphFormatError("it does not say clearly where a constant is stored")
        if not location:
            return None
        if fields.keys() & {4, 5, 7, 9, 10, 11}:
            raise GraphFormatError("a constant is stored both in the graph file and in another file")
        external: dict[str, str] = {}
        for begin, end in entries:
            content = self._data[begin:end]
            if content not in self._entries:
                entry = self._fields(_ENTRY, begin, end)
                self._entries[content] = self._text(entry, 1), self._text(entry, 2)
            key, value = self._entries[content]
            if key in external or key not in {"location", "offset", "length"}:
                raise GraphFormatError("it does not say clearly where a constant is stored")
            external[key] = value
        return external

    def _numbers(self, values: list[Any]) -> list[int]:
        """Values of a repeated number, which may be packed into one field."""
        numbers: list[int] = []
        for value in values:
            if isinstance(value, int):
                numbers.append(value)
                continue
            position, end = value
            while position < end:
                number, position = protobuf.read_varint(self._data, position, end, _DAMAGE)
                numbers.append(number)
        return numbers

    def _text(self, fields: Fields, number: int) -> str:
        """Text of a field; empty if the field is missing."""
        content = self._bytes(fields, number)
        _limit("bytes of a name", len(content), limits.MAX_NAME_BYTES)
        return content.decode("utf-8")

    def _bytes(self, fields: Fields, number: int) -> bytes:
        """Content of a field; empty if the field is missing."""
        if number not in fields:
            return b""
        begin, end = fields[number]
        return self._data[begin:end]

    def _fields(self, message: _Message, begin: int, end: int) -> Fields:
        """Split a message into its fields."""
        fields: Fields = {}
        for number, wire, start, stop in protobuf.fields(self._data, begin, end, "graph"):
            known = message.fields.get(number << 3 | wire)
            if known is None:
                raise GraphFormatError(f"{message.name} has field {number} of type {wire}, which is unsupported")
            repeated, ignored = known
            if ignored:
                continue
            value: int | tuple[int, int] = (start, stop) if wire == protobuf.BYTES else start
            if wire == protobuf.VARINT:
                value, _ = protobuf.read_varint(self._data, start, stop, _DAMAGE)
            if number not in fields:
                fields[number] = [value] if repeated else value
            elif repeated:
                fields[number].append(value)
            else:
                raise GraphFormatError(f"{message.name} has field {number} twice")
        return fields


def _limit(what: str, count: int, most: int) -> None:
    if count > most:
        raise GraphFormatError(f"it has {count:,} {what}, more than {most:,}")
