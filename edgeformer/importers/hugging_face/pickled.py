"""Files of ``torch.save``, of which nothing but names, tensors and plain containers is read.

A file is a pickle and the numbers of its storages: members of a zip archive, or, before torch 1.6, one after the other.
Python's own unpickler calls what a file names and allocates what it asks for. This one knows no instructions but those
that weights need, and compares every size with that of the file, which is mapped into memory.
"""

from __future__ import annotations

import io
import pickletools
import struct
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import torch

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import MAX_ARRAYS
from edgeformer.traceback_summary import describe

MAX_PICKLE = 2 << 20
"""Bytes of pickles; those of a model with a thousand weights have 200 KiB."""
MAX_SHARING = 4
"""Size of all tensors, in multiples of the size of the file: tied tables are there under several names."""
MAX_AXES = 8
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
"""Numbers that a file without an archive begins with, as two pickles. Three more follow: a description of the machine,
the weights, and the order of their storages."""


class Storage(NamedTuple):
    """Numbers of a file."""

    dtype: torch.dtype
    key: str
    nbytes: int


class Stored(NamedTuple):
    """A tensor of a file."""

    storage: Storage
    offset: int
    """Its first number in the storage."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_pickled(file: Path) -> dict[str, torch.Tensor]:
    """Map the tensors of a file into memory."""
    try:
        size = file.stat().st_size
        stored, starts = (_from_archive if zipfile.is_zipfile(file) else _from_stream)(file, size)
        mapped: Any = torch.UntypedStorage.from_file(str(file), False, size)
        tensors = {name: _tensor(name, tensor, starts[tensor.storage.key], mapped) for name, tensor in stored.items()}
        if sum(tensor.nbytes for tensor in tensors.values()) > MAX_SHARING * size:
            raise ValueError("its weights share memory")
    except Exception as error:  # damaged files make zipfile and pickletools raise many types
        why = str(error) if type(error) is ValueError else describe(error)
        raise ImporterError(
            f"`{file}` cannot be read as weights only: {why[:300]}. Save the model as model.safetensors."
        ) from None
    return tensors


def _from_archive(file: Path, size: int) -> tuple[dict[str, Stored], dict[str, int]]:
    """The tensors of an archive, and where each storage begins in the file."""
    with zipfile.ZipFile(file) as archive, file.open("rb") as stream:
        entries, starts = archive.infolist(), {}
        for entry in entries:
            if entry.compress_type != zipfile.ZIP_STORED or len(entries) > MAX_ARRAYS:
                raise ValueError("its members are compressed, or more than a model has weights")
            stream.seek(entry.header_offset + 26)  # the lengths of what is between the header and the content
            starts[entry.filename] = entry.header_offset + 30 + sum(struct.unpack("<2H", stream.read(4)))
        (name,) = [name for name in starts if name.endswith("/data.pkl")]
        folder = name.removesuffix("data.pkl")
        if (order := starts.get(f"{folder}byteorder")) is not None:
            stream.seek(order)
            if stream.read(6) != b"little":
                raise ValueError("its numbers are big-endian")
        stream.seek(starts[name])
        stored = _weights(io.BytesIO(stream.read(min(size, MAX_PICKLE))))
    keys = {tensor.storage.key for tensor in stored.values()}
    return stored, {key: starts[f"{folder}data/{key}"] for key in keys}


def _from_stream(file: Path, size: int) -> tuple[dict[str, Stored], dict[str, int]]:
    """The same for a file of torch before 1.6, in which each storage has its count in front."""
    with file.open("rb") as stream:
        pickles = io.BytesIO(stream.read(min(size, MAX_PICKLE)))
        if (_unpickled(pickles), _unpickled(pickles)) != (MAGIC, PROTOCOL):
            raise ValueError("it is not a file of torch.save")
        if _unpickled(pickles)["little_endian"] is not True:
            raise ValueError("its numbers are big-endian")
        stored, keys = _weights(pickles), _unpickled(pickles)
        storages = {tensor.storage.key: tensor.storage for tensor in stored.values()}
        starts, start = {}, pickles.tell()
        for key in keys:
            stream.seek(start)
            dtype, _, nbytes = storages[key]
            if nbytes != int.from_bytes(stream.read(8), "little") * dtype.itemsize:
                raise ValueError("a storage has another size than its tensors state")
            starts[key] = start + 8
            start += 8 + nbytes
    return stored, starts


def _weights(pickle: io.BytesIO) -> dict[str, Stored]:
    tree = _unpickled(pickle)
    if type(tree) is not dict:
        raise ValueError("it has no mapping from names to weights")
    for name, tensor in tree.items():
        if not isinstance(tensor, Stored):
            raise ValueError(f"it has something other than weights under {name[:80]!r}")
    return tree


def _tensor(name: str, stored: Stored, start: int, mapped: torch.UntypedStorage) -> torch.Tensor:
    """A tensor of the mapped file.

    Raises:
        ValueError: its sizes do not fit its storage, or the storage does not fit the file.
    """
    (dtype, _, nbytes), offset, shape, strides = stored
    numbers = (offset, *shape, *strides)
    if len(shape) != len(strides) or len(shape) > MAX_AXES or not all(type(n) is int and n >= 0 for n in numbers):
        raise ValueError(f"weight {name[:80]!r} has a damaged shape")
    count, last = 1, offset
    for length, stride in zip(shape, strides, strict=True):
        count, last = count * length, last + (length - 1) * stride
    if not count:
        return torch.empty(shape, dtype=dtype)
    if max(count, last + 1) * dtype.itemsize > nbytes:
        raise ValueError(f"weight {name[:80]!r} is larger than what is stored")
    if start + nbytes > mapped.nbytes():
        raise ValueError("it ends too early")
    return torch.empty(0, dtype=dtype).set_(mapped[start : start + nbytes], offset, shape, strides)


# Pickles.


def _storage(identity: Any) -> Storage:
    """The storage that a persistent id names: its class, key, device and count, and, before torch 0.4, a part of it."""
    kind, dtype, key, _, count, *part = identity
    known = kind == "storage" and isinstance(dtype, torch.dtype) and type(key) is str and type(count) is int
    if not known or count < 0 or any(part):
        raise ValueError("it names a storage in a way that is not supported")
    return Storage(dtype, key, count * dtype.itemsize)


def _stored(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Stored:
    if not isinstance(storage, Storage) or type(shape) is not tuple or type(strides) is not tuple:
        raise ValueError("it has a tensor without a storage or a shape")
    return Stored(storage, offset, shape, strides)


def _mapping() -> dict[str, Any]:
    return {}


GLOBALS: dict[str, Any] = {
    "collections.OrderedDict": _mapping,
    "torch._utils._rebuild_tensor": _stored,
    "torch._utils._rebuild_tensor_v2": _stored,
    "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
    "torch.FloatStorage": torch.float32,
    "torch.HalfStorage": torch.float16,
    "torch.BFloat16Storage": torch.bfloat16,
    "torch.DoubleStorage": torch.float64,
    "torch.LongStorage": torch.int64,
    "torch.IntStorage": torch.int32,
    "torch.ShortStorage": torch.int16,
    "torch.CharStorage": torch.int8,
    "torch.ByteStorage": torch.uint8,
    "torch.BoolStorage": torch.bool,
}
"""Names in files of weights: functions that are called, and classes of storages, which stand for a type of numbers."""
VALUES = frozenset({"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE"})
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
TAKEN = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "APPEND": 1, "SETITEM": 2, "REDUCE": 2, "BUILD": 1}
"""Items that an instruction takes from the stack; others take those after the last mark."""


def _unpickled(data: io.BytesIO) -> Any:
    """Run a pickle of protocol 2. Keys of mappings are strings, and nothing is called but :data:`GLOBALS`.

    Raises:
        Exception: of any type, if it is damaged, or has an instruction that weights do not need.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[Any, Any] = {}

    def taken(name: str) -> list[Any]:
        start = -TAKEN[name] if name in TAKEN else marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    for opcode, argument, _ in pickletools.genops(data):
        name = opcode.name
        if name in VALUES:
            stack.append(argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in ("EMPTY_DICT", "EMPTY_LIST"):
            stack.append({} if name == "EMPTY_DICT" else [])
        elif name == "MARK":
            marks.append(len(stack))
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(tuple(taken(name)))
        elif name in ("APPEND", "APPENDS", "SETITEM", "SETITEMS"):
            items = taken(name)
            _extend(stack[-1], items)
        elif name == "GLOBAL":
            if (function := str(argument).replace(" ", ".")) not in GLOBALS:
                raise ValueError(f"it needs {function[:80]!r}, which is not a weight")
            stack.append(GLOBALS[function])
        elif name == "BINPERSID":
            stack.append(_storage(stack.pop()))
        elif name == "REDUCE":
            called, arguments = taken(name)
            stack.append(called(*arguments))
        elif name == "BUILD":  # attributes of a mapping, such as the versions of layers
            taken(name)
        elif name == "STOP":
            return stack.pop()
        elif name != "PROTO":
            raise ValueError(f"it has the instruction {name}, which weights do not need")
    raise ValueError("a pickle has no end")


def _extend(container: Any, items: list[Any]) -> None:
    """Add items to a list, or keys and values to a mapping."""
    if type(container) is list:
        container.extend(items)
    elif type(container) is dict and all(type(key) is str for key in items[::2]):
        container.update(zip(items[::2], items[1::2], strict=True))
    else:
        raise ValueError("it has a mapping whose keys are not names")
