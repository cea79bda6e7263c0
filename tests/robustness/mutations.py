"""Arbitrary changes of files: of bytes, of JSON trees, of protobuf messages and of weights. Needs no onnx.

A change is drawn from a :class:`random.Random`: the same seed makes the same change.
"""

from __future__ import annotations

import copy
import json
import math
import struct
from collections.abc import Iterator
from random import Random
from typing import Any

from edgeformer_runtime.bundle import protobuf

HOSTILE: list[Any] = [
    *(None, True, -1, 0, 1, 2**31, 2**63, 2**64, 10**30, -0.5, 1e308, math.nan, math.inf),
    *("", "\0", "\x1b[2J", "\ud800", "\u202e", "../x", "/dev/zero", "x" * 300, "x" * 2**20, "1." + "9" * 4000),
    *([], {}, [[]] * 3, {"": {}}),
]
"""Values that readers stumble over."""


def random_edits(random: Random, data: bytes) -> bytes:
    """Flip, insert, delete, repeat or cut off bytes at one to four places."""
    for _ in range(random.randint(1, 4)):
        kind = random.choices(("set", "insert", "delete", "repeat", "truncate"), weights=(4, 2, 2, 2, 1))[0]
        place, content = random.randrange(len(data) + 1), random.randbytes(random.choice((1, 1, 1, 2, 4, 8, 64)))
        rest = data[place + (0 if kind == "insert" else len(content)) :]
        content = {"delete": b"", "repeat": data[place : place + len(content)] * 2}.get(kind, content)
        data = data[:place] if kind == "truncate" else data[:place] + content + rest
    return data


def random_json(random: Random, data: bytes) -> bytes:
    """Give one to three places of a JSON document a hostile value, or change its text in a way that trees cannot say:
    duplicate keys, deep nesting, raw control characters, and numbers of many digits."""
    if random.random() < 0.25:
        return _json_text(random, data)
    tree = json.loads(data)
    for _ in range(random.randint(1, 3)):
        if found := list(_places(tree)):
            _change_place(random, *random.choice(found))
    return json.dumps(tree).encode("utf-8", "surrogatepass")


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """All containers of a tree, each with each of its keys."""
    pending = [tree]
    while pending:
        container = pending.pop()
        for key, value in container.items() if isinstance(container, dict) else enumerate(container):
            yield container, key
            if isinstance(value, dict | list):
                pending.append(value)


def _change_place(random: Random, container: Any, key: Any) -> None:
    """Set, delete, repeat or rename what a container has at a key, in place."""
    kind = random.choice(("set", "delete", "repeat", "rename"))
    if kind == "set":
        container[key] = _value(random)
    elif kind == "delete":
        del container[key]
    elif isinstance(container, list):
        container.extend([container[key]] * 5)
    elif kind == "rename":
        container[str(_value(random))] = container.pop(key)
    elif isinstance(container[key], list):
        container[key] = container[key] * 5


def random_graph(random: Random, data: bytes) -> bytes:
    """Change one to three fields of an ONNX model at any depth, or connect one to three nodes otherwise."""
    change = random.choice((_rewired, _changed_message))
    for _ in range(random.randint(1, 3)):
        data = change(random, data)
    return data


def random_weights(random: Random, data: bytes) -> bytes:
    """Overwrite a range of weights by one value, such as NaN, infinity or zero, or shift or exchange ranges."""
    start, length = 4 * random.randrange(len(data) // 4), 4 * random.choice((1, 16, 1024, 65536))
    end = min(len(data), start + length)
    kind = random.choice(("fill", "exchange", "noise"))
    if kind == "fill":
        value = random.choice((math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-45, 0.0, 1e9))
        return data[:start] + struct.pack("<f", value) * ((end - start) // 4) + data[end:]
    if kind == "noise":
        return data[:start] + random.randbytes(end - start) + data[end:]
    return data[end:] + data[:end]


def _value(random: Random) -> Any:
    kind = random.randrange(4)
    if kind == 0:
        return random.randint(-(2 ** random.randint(1, 70)), 2 ** random.randint(1, 70))
    if kind == 1:
        return random.uniform(-1, 1) * 10.0 ** random.randint(-300, 300)
    if kind == 2:
        return "".join(chr(random.choice((random.randrange(128), random.randrange(0x3000)))) for _ in range(9))
    return copy.deepcopy(random.choice(HOSTILE))


def _json_text(random: Random, data: bytes) -> bytes:
    """Insert text at a place of the document where a value, or a member of an object, begins."""
    deep = random.choice((10, 1000, 100_000))
    marks = [index for index, byte in enumerate(data) if byte in b':[{,"']
    place = random.choice(marks) + 1
    text = random.choice(
        (
            b"[" * deep + b"]" * deep,
            b'{"a":' * deep + b"1" + b"}" * deep,
            b'"\x00\x1b[2J\x07"',
            b"NaN",
            b"-Infinity",
            b"9" * deep,
            b"1e999999999",
            b'"\\ud800"',
            b"\xff\xfe",
            b"/**/",
            data[place : place + random.choice((20, 200, 2000))],
            b'"files":{},',
            b'"schema_revision":99,',
            b'"model":{},',
            b'"cases":[],',
            b'"public_key":"",',
        )
    )
    return data[:place] + text + data[place + random.choice((0, 0, 1, len(text))) :]


Field = tuple[int, int, bytes]
"""Number, wire type, and content as it is in the file, without tag and length."""


_GRAPH, _NODE, _TENSOR_NAMES = (7, 2), (1, 2), {(1, 2), (2, 2)}
"""Numbers and wire types in ``onnx.proto``: the graph of a model, a node of a graph, and tensors that a node reads and
writes."""


def fields_of(data: bytes) -> list[Field] | None:
    """Split a protobuf message into its fields; ``None`` if it is none."""
    try:
        fields = [(number, wire, data[start:end]) for number, wire, start, end in protobuf.fields(data, 0, len(data))]
    except ValueError:
        return None
    return fields if all(number for number, _, _ in fields) else None


def message_of(fields: list[Field]) -> bytes:
    """Join fields to a message."""
    return b"".join(
        protobuf.field(number, content) if wire == protobuf.BYTES else protobuf.varint(number << 3 | wire) + content
        for number, wire, content in fields
    )


def varint(number: int, surplus: int = 0) -> bytes:
    """A number as protobuf writes it, with ``surplus`` bytes more than needed."""
    data = bytearray(protobuf.varint(number))
    for _ in range(surplus):
        data[-1] |= 128
        data.append(0)
    return bytes(data)


def _rewired(random: Random, data: bytes) -> bytes:
    """Let a node of a model read or write the tensor of another node."""
    model = fields_of(data) or []
    graphs = [index for index, (number, wire, _) in enumerate(model) if (number, wire) == _GRAPH]
    graph = fields_of(model[graphs[0]][2]) if graphs else None
    nodes = [index for index, (number, wire, _) in enumerate(graph or []) if (number, wire) == _NODE]
    if graph is None or len(nodes) < 2:
        return random_edits(random, data)
    first, second = (fields_of(graph[index][2]) or [] for index in random.sample(nodes, 2))
    names = [index for index, (number, wire, _) in enumerate(first) if (number, wire) in _TENSOR_NAMES]
    others = [content for number, wire, content in second if (number, wire) in _TENSOR_NAMES]
    if names and others:
        index = random.choice(names)
        target = next(place for place in nodes if fields_of(graph[place][2]) == first)
        first[index] = (*first[index][:2], random.choice(others))
        graph[target] = (*_NODE, message_of(first))
    model[graphs[0]] = (*_GRAPH, message_of(graph))
    return message_of(model)


def _changed_message(random: Random, data: bytes, depth: int = 0) -> bytes:
    """Change a field of a message, or of a message in it: the deeper, the more likely here."""
    fields = fields_of(data)
    if not fields:
        return random_edits(random, data)
    index = random.randrange(len(fields))
    number, wire, content = fields[index]
    inner = fields_of(content) if wire == 2 else None
    if inner and random.random() < (0.95, 0.8, 0.6, 0.4)[min(depth, 3)]:
        fields[index] = (number, wire, _changed_message(random, content, depth + 1))
    else:
        _change_field(random, fields, index)
    return message_of(fields)


def _change_field(random: Random, fields: list[Field], index: int) -> None:
    """Repeat, delete, exchange, nest, renumber or overwrite a field, in place."""
    number, wire, content = fields[index]
    other = random.randrange(len(fields))
    kind = random.choice(("repeat", "delete", "exchange", "copy", "nest", "number", "value", "value", "value"))
    if kind == "repeat":
        fields[index:index] = [fields[index]] * random.choice((1, 2, 100))
    elif kind == "delete":
        del fields[index]
    elif kind == "exchange":  # contents under each other's numbers
        fields[index], fields[other] = (number, *fields[other][1:]), (fields[other][0], wire, content)
    elif kind == "copy":
        fields[index] = (number, *fields[other][1:])
    elif kind == "nest":
        for _ in range(random.choice((1, 10, 1000))):
            content = protobuf.field(number, content)
        fields[index] = (number, 2, content)
    elif kind == "number":
        fields[index] = (random.choice((number + 1, random.randint(1, 30), 2**29 - 1)), wire, content)
    elif wire == 0:
        value = random.choice((0, 1, 2, 7, 8, 10, 2**31, 2**63, 2**64 - 1, random.randrange(2**16)))
        fields[index] = (number, wire, varint(value, surplus=random.choice((0, 0, 0, 1, 9, 20))))
    elif wire == 2:
        fields[index] = (number, wire, _text(random, content))
    else:
        fields[index] = (number, wire, random.randbytes(len(content)))


def _text(random: Random, content: bytes) -> bytes:
    """Another name, number or list in place of one in a graph."""
    names = [b"", b"\0", b"\x1b[2J\x07", b"../x", b"*/_ORT_MEM_ADDR_/*", b"\xff\xfe", b"x" * 5000, b"N", b"-1", b"0"]
    names += [b"9" * 18, b"MatMul", b"Gather", b"Reshape", b"Loop", b"Split", b"Expand", b"Range", b"com.microsoft"]
    names += [b"weights.bin", b"target", b"source", b"logits", varint(2**64 - 1), varint(2**40) * 3]
    return random.choice((random.choice(names), random_edits(random, content), content[::-1]))
