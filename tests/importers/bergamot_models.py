"""Writes models as Bergamot publishes them: Marian's binary format, 8-bit weights and the factors of activations."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.importers.archive import read_npz
from tests.importers.marian_models import MARIAN

FLOAT32, INT8, INTGEMM8 = 0x404, 0x101, 0x4101
ALIGNMENT = 256
Arrays = Mapping[str, NDArray[Any]]


def bergamot_files(model: str) -> dict[str, bytes]:
    """A committed model of Marian as Firefox has its models: contents by name."""
    folder = MARIAN / model
    factors = json.loads((folder / "activation_factors.json").read_text(encoding="utf-8"))
    return {
        "model.enfr.intgemm.alphas.bin": binary_model(read_npz(folder / "model.npz"), factors),
        "vocab.enfr.spm": (folder / "vocab.spm").read_bytes(),
    }


def is_quantized(name: str, array: NDArray[Any]) -> bool:
    """Whether Bergamot has a weight in 8 bits: the tables of tokens and all matrices."""
    return array.ndim == 2 and min(array.shape) > 1 and "special" not in name


def quantization_factor(weight: NDArray[np.float32]) -> np.float32:
    """``integer = round(weight * factor)``."""
    return np.float32(127 / np.abs(weight).max())


def binary_model(arrays: Arrays, activation_factors: Mapping[str, float]) -> bytes:
    """Write a model.

    Args:
        arrays: arrays by Marian's names, as in ``model.npz``.
        activation_factors: ``integer = round(activation * factor)``, by the names that Bergamot gives them.
    """
    items = [_item(name, array) for name, array in arrays.items()]
    items += [
        (name, FLOAT32, (1, 1), _padded(struct.pack("<f", factor))) for name, factor in activation_factors.items()
    ]
    data = struct.pack("<2Q", 1, len(items))
    names = [name.encode() + b"\0" for name, *_ in items]
    for encoded, (_, kind, shape, content) in zip(names, items, strict=True):
        data += struct.pack("<4Q", len(encoded), kind, len(shape), len(content))
    data += b"".join(names)
    for _, _, shape, _ in items:
        data += struct.pack(f"<{len(shape)}i", *shape)
    padding = ALIGNMENT - (len(data) + 8) % ALIGNMENT
    data += struct.pack("<Q", padding) + bytes(padding)
    return data + b"".join(content for *_, content in items)


def _item(name: str, array: NDArray[Any]) -> tuple[str, int, tuple[int, ...], bytes]:
    if is_quantized(name, array):
        factor = quantization_factor(array)
        integers = np.clip(np.rint(array * factor), -127, 127).astype(np.int8)
        stored = integers if name.endswith("Wemb") else integers.T
        return name, INTGEMM8, array.shape, _padded(np.ascontiguousarray(stored).tobytes() + struct.pack("<f", factor))
    kind = INT8 if array.dtype.itemsize == 1 else FLOAT32
    return name, kind, array.shape, _padded(np.ascontiguousarray(array).tobytes())


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)
