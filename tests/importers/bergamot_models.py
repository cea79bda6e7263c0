"""Writes models as Bergamot publishes them: Marian's binary format, 8-bit weights and the factors of activations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.importers.archive import read_npz
from edgeformer.importers.marian.binary import Item, QuantizedMatrix
from edgeformer_bench.peers import bergamot_model
from tests.importers.marian_models import MARIAN

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
    items: dict[str, Item] = {name: _item(name, array) for name, array in arrays.items()}
    factors = {name: np.full((1, 1), factor, np.float32) for name, factor in activation_factors.items()}
    return bergamot_model.binary_model({**items, **factors})


def _item(name: str, array: NDArray[Any]) -> Item:
    if not is_quantized(name, array):
        return array
    factor = quantization_factor(array)
    return QuantizedMatrix(np.clip(np.rint(array * factor), -127, 127).astype(np.int8), float(factor))
