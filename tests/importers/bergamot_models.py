"""Writes models as Bergamot publishes them: Marian's binary format, 8-bit weights and the factors of activations."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.importers.archive import read_npz
from edgeformer.importers.marian.binary import EMBEDDINGS, FLOAT32, HEADER, VERSION, MarianItem, QuantizedMatrix
from tests.importers.marian_models import MARIAN

Arrays = Mapping[str, NDArray[Any]]
INT8, INTGEMM8 = 0x101, 0x4101
ALIGNMENT = 256


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
    items: dict[str, MarianItem] = {name: _item(name, array) for name, array in arrays.items()}
    factors = {name: np.full((1, 1), factor, np.float32) for name, factor in activation_factors.items()}
    stored = [(name.encode() + b"\0", *_stored(name, item)) for name, item in {**items, **factors}.items()]
    data = struct.pack("<2Q", VERSION, len(stored))
    for encoded, kind, shape, content in stored:
        data += HEADER.pack(len(encoded), kind, len(shape), len(content))
    data += b"".join(encoded for encoded, *_ in stored)
    for _, _, shape, _ in stored:
        data += struct.pack(f"<{len(shape)}i", *shape)
    padding = ALIGNMENT - (len(data) + 8) % ALIGNMENT
    data += struct.pack("<Q", padding) + bytes(padding)
    return data + b"".join(content for *_, content in stored)


def _stored(name: str, item: MarianItem) -> tuple[int, tuple[int, ...], bytes]:
    """Type, axes and data of an item."""
    if isinstance(item, QuantizedMatrix):
        integers = item.integers if name in EMBEDDINGS else item.integers.T
        content = np.ascontiguousarray(integers).tobytes() + struct.pack("<f", item.factor)
        return INTGEMM8, item.integers.shape, _padded(content)
    kind = INT8 if item.dtype.itemsize == 1 else FLOAT32
    return kind, item.shape, _padded(np.ascontiguousarray(item).tobytes())


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)


def _item(name: str, array: NDArray[Any]) -> MarianItem:
    if not is_quantized(name, array):
        return array
    factor = quantization_factor(array)
    return QuantizedMatrix(np.clip(np.rint(array * factor), -127, 127).astype(np.int8), float(factor))
