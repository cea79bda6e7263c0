"""Arrays of a model, by name, dequantized."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgeformer.errors import ImporterError
from edgeformer.importers.ctranslate2.model_file import Array
from edgeformer.importers.ctranslate2.vocabularies import scalar
from edgeformer.importers.layout import MappedModule, WeightConverter
from edgeformer.importers.model import FloatArray

OLD_INT16_SCALE = 1000.0
"""Scale of 16-bit integers in files that state none."""


class CTranslate2Weights(WeightConverter):
    """The arrays of a model by CTranslate2's current names."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        super().__init__(arrays)
        self._arrays = arrays
        self._floats: dict[int, FloatArray] = {}
        """Dequantized arrays by the identity of the stored ones, so that aliases share them."""

    def matching(self, pattern: str) -> list[str]:
        """Names that have a match of a regular expression, sorted."""
        return sorted(name for name in self._arrays if re.search(pattern, name))

    def number(self, name: str, default: Any) -> Any:
        """Return a number that the model states, or the default."""
        self._taken.add(name)
        return scalar(self._arrays, name, default)

    def is_float(self, name: str) -> bool:
        """Whether an array or number is stored as a floating-point number."""
        return self._stored(name).dtype == np.float32

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of an array."""
        return self._stored(name).shape

    def matrix_shape(self, name: str) -> tuple[int, int]:
        """Shape of an array with two axes, neither empty."""
        shape = self.shape(name)
        if len(shape) != 2 or 0 in shape:
            raise ImporterError(f"The array `{name}` has the shape {shape}, but must be a matrix.")
        return shape[0], shape[1]

    def _read(self, name: str) -> FloatArray:
        array = self._arrays[name]
        self._taken.add(f"{name}_scale")
        if id(array) not in self._floats:
            self._floats[id(array)] = self._dequantized(name, array)
        return self._floats[id(array)]

    def _weight(self, module: MappedModule, shape: tuple[int, ...]) -> FloatArray:
        weight = self.take(module.theirs, *shape)
        if len(shape) == 1 and self.number(module.theirs.replace("gamma", "layer_norm_use_residual"), 0):
            return weight + 1  # as in Gemma, the stored factor is the difference from one
        return weight

    def _bias(self, module: MappedModule, size: int) -> FloatArray:
        name = module.theirs.replace("/gamma", "/beta").replace("/weight", "/bias")
        # A linear layer may have no bias although others have.
        is_absent = len(module.shape) > 1 and name not in self
        return np.zeros(size, np.float32) if is_absent else self.take(name, size)

    def _stored(self, name: str) -> Array:
        if name not in self._arrays:
            raise ImporterError(f"The model lacks the array `{name}`.")
        return self._arrays[name]

    def _dequantized(self, name: str, array: Array) -> FloatArray:
        """Divide integers by their scale, the quotient of 127 and the greatest absolute value of a row. Quantizing the
        result to 8 bits by rows gives the same integers.
        """
        if array.dtype == np.float32:
            return array
        if array.dtype not in (np.int8, np.int16):
            raise ImporterError(f"The array `{name}` has integers of 32 bits, which are not weights.")
        scale = self._arrays.get(f"{name}_scale")
        if scale is None and array.dtype == np.int16:
            scale = np.array(OLD_INT16_SCALE, np.float32)
        if scale is None or scale.dtype != np.float32 or scale.shape not in ((), (1,), array.shape[:1]):
            raise ImporterError(f"The array `{name}` has integers, but no scale for them, or one of another shape.")
        values = array.astype(np.float32)
        with np.errstate(all="ignore"):  # what is not finite is refused later
            values /= scale.reshape(-1, *[1] * (array.ndim - 1))
        return values
