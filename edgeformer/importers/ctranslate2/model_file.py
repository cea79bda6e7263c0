"""CTranslate2's ``model.bin``, versions 1 to 6, and what the latest version calls its arrays.

All numbers are little-endian::

    u32 version
    version >= 2: string specification; u32 revision
    u32 count; count × {
        string name; u8 rank; u32 dimension[rank]
        version >= 4: u8 type; u32 bytes        version < 4: u8 item size; u32 items
        data }
    version >= 3: u32 count; count × { string alias; string name }

A string has its length with a final NUL, as u16, before it. Nothing follows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import MAX_ARRAYS, BinaryReader, begins, open_binary

VERSIONS = range(1, 7)
MAX_RANK = 8
MAX_SHARING = 4
"""Size of all arrays with an array counted under each of its names, in multiples of the size without aliases."""
CHUNK = 1 << 16
"""Items that are read at a time."""

Array = NDArray[Any]


class _ArrayType(NamedTuple):
    stored: str
    """As numpy names it."""
    read: type[np.generic]
    """Type of the array in memory."""


_FLOAT32, _INT8, _INT16 = _ArrayType("<f4", np.float32), _ArrayType("i1", np.int8), _ArrayType("<i2", np.int16)
_BFLOAT16 = _ArrayType("<u2", np.float32)
_TYPES = (_FLOAT32, _INT8, _INT16, _ArrayType("<i4", np.int32), _ArrayType("<f2", np.float32), _BFLOAT16)
"""By number, from version 4."""
_TYPES_BY_SIZE = {4: _FLOAT32, 2: _INT16, 1: _INT8}
"""By the size of an item, before."""


@dataclass(frozen=True)
class ModelFile:
    """Content of a ``model.bin``."""

    version: int
    specification: str
    """Kind of the model, such as ``TransformerSpec``; empty in version 1."""
    revision: int
    """Revision of the specification, which names the arrays."""
    arrays: dict[str, Array]
    """By name. Floats of 16 bits are converted to 32, and an alias has the same object as what it stands for."""


def read_model_file(path: Path) -> ModelFile:
    """Read a ``model.bin``. Nothing is allocated before its size is compared with that of the file."""
    with open_binary(path) as reader:
        return _parsed(reader)


def is_model_file(path: Path) -> bool:
    """Return whether a file begins as a ``model.bin`` does."""

    def check(reader: BinaryReader) -> bool:
        version = reader.number("<I")
        if version >= 2:
            _string(reader)
            reader.number("<I")
        return version in VERSIONS and 0 < reader.number("<I") <= reader.remaining and bool(_string(reader))

    return begins(path, check)


def _parsed(reader: BinaryReader) -> ModelFile:
    """Read a whole file.

    Raises:
        ValueError: it is damaged.
    """
    version = reader.number("<I")
    if version not in VERSIONS:
        raise ValueError(f"its version is {version}, not one of {VERSIONS.start} to {VERSIONS.stop - 1}")
    specification = _string(reader) if version >= 2 else ""
    revision = reader.number("<I") if version >= 2 else 1
    arrays: dict[str, Array] = {}
    for _ in range(_count(reader)):
        name = _string(reader)
        if name in arrays:
            raise ValueError(f"it has the array `{name}` twice")
        arrays[name] = _array(reader, name, version)
    if version >= 3:
        _add_aliases(arrays, reader)
    if reader.remaining:
        raise ValueError(f"{reader.remaining:,} bytes follow its end")
    return ModelFile(version, specification, revision, arrays)


def _add_aliases(arrays: dict[str, Array], reader: BinaryReader) -> None:
    """Add other names of arrays, and of the scales that belong to them."""
    stored = sum(array.size for array in arrays.values())
    total = stored
    for _ in range(_count(reader)):
        alias, name = _string(reader), _string(reader)
        if alias in arrays or name not in arrays:
            raise ValueError(f"its alias `{alias}` of `{name}` is there twice, or for nothing")
        for suffix in ("", "_scale", "_zero"):
            if name + suffix in arrays:
                arrays.setdefault(alias + suffix, arrays[name + suffix])
        total += arrays[alias].size
        if total > MAX_SHARING * stored:
            raise ValueError(f"with its aliases, it is more than {MAX_SHARING} times as large as without")


def _count(reader: BinaryReader) -> int:
    """Number of arrays or aliases that follow."""
    count = reader.number("<I")
    if count > MAX_ARRAYS:
        raise ValueError(f"it has {count:,} arrays, more than {MAX_ARRAYS:,}")
    return count


def _string(reader: BinaryReader) -> str:
    data = reader.take(reader.number("<H"))
    if data.find(b"\0") != len(data) - 1:
        raise ValueError("it has a name that does not end with a zero byte")
    return data[:-1].decode("utf-8")  # raises a kind of ValueError


def _array(reader: BinaryReader, name: str, version: int) -> Array:
    rank = reader.number("<B")
    if rank > MAX_RANK:
        raise ValueError(f"its array `{name}` has {rank} axes")
    shape = reader.numbers(f"<{rank}I")
    kind, count = reader.number("<B"), math.prod(shape)
    known = kind < len(_TYPES) if version >= 4 else kind in _TYPES_BY_SIZE
    if not known:
        raise ValueError(f"its array `{name}` is of the unknown type {kind}")
    type_ = _TYPES[kind] if version >= 4 else _TYPES_BY_SIZE[kind]
    size = count * np.dtype(type_.stored).itemsize
    # From 4 GiB, the stored number has lost its upper bits.
    if reader.number("<I") != (size if version >= 4 else count) % 2**32:
        raise ValueError(f"the shape {shape} of its array `{name}` does not fit its size")
    if size > reader.remaining:
        raise ValueError(f"it ends before the end of its array `{name}`")
    values = np.empty(count, type_.read)
    for start in range(0, count, CHUNK):
        part = values[start : start + CHUNK]
        data = np.frombuffer(reader.take(len(part) * np.dtype(type_.stored).itemsize), type_.stored)
        part[:] = (data.astype(np.uint32) << 16).view(np.float32) if type_ is _BFLOAT16 else data
    return values.reshape(shape)


HEADS = {"": 8, "TransformerBase": 8, "TransformerBig": 16, "TransformerSpec": 8}
"""Specifications of encoder–decoder Transformers, and the number of heads where a model does not state it."""
LATEST_REVISION = 7
_OPENNMT_TF = (
    ("transformer/", ""),
    (":0", ""),
    ("w_embs", "embeddings/weight"),
    ("kernel", "weight"),
    ("LayerNorm", "layer_norm"),
    ("dense", "projection"),
    ("conv1d_", "linear_"),
    ("conv1d", "linear_0"),
)
"""Revision 1 has the names of OpenNMT-tf. Each is replaced once."""
_OF_BOTH_SIDES = ("num_heads", "pre_norm", "activation")
"""Before revision 5, stated for the encoder and the decoder together."""


def current_names(file: ModelFile) -> dict[str, Array]:
    """Return the arrays by the names that the latest revision has for them.

    Raises:
        ImporterError: the model is not an encoder–decoder Transformer, or of a later revision.
    """
    if file.specification not in HEADS:
        raise ImporterError(
            f"The model is a `{file.specification}`; only encoder–decoder Transformers for text, `TransformerSpec`, "
            "can be imported."
        )
    if file.revision > LATEST_REVISION:
        raise ImporterError(
            f"The model has the revision {file.revision} of `{file.specification}`; revisions up to {LATEST_REVISION} "
            "are supported."
        )
    arrays = dict(file.arrays)
    if file.revision == 1:
        arrays = {_from_opennmt_tf(name): array for name, array in arrays.items()}
    if file.revision < 3:
        arrays.setdefault("num_heads", np.array(HEADS[file.specification]))
    if file.revision < 5:
        for name in _OF_BOTH_SIDES:
            if name in arrays:
                value = arrays.pop(name)
                arrays |= {f"{side}/{name}": value for side in ("encoder", "decoder")}
    for side in ("encoder", "decoder"):
        if (old := f"{side}/embeddings/multiply_by_sqrt_depth") in arrays:
            arrays.setdefault(f"{side}/scale_embeddings", arrays.pop(old))
    for suffix in ("weight", "weight_scale"):
        if (old := f"encoder/embeddings/{suffix}") in arrays:
            arrays.setdefault(f"encoder/embeddings_0/{suffix}", arrays.pop(old))
    return arrays


def _from_opennmt_tf(name: str) -> str:
    for old, new in _OPENNMT_TF:
        name = name.replace(old, new, 1)
    if "encoder" in name:
        return name.replace("multi_head", "self_attention", 1)
    return name.replace("masked_multi_head", "self_attention", 1).replace("multi_head", "attention", 1)
