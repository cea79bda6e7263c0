"""Checked access to the values of ``config.json``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgeformer.errors import ImporterError

MAX_SIZE = 1 << 24
"""Upper limit of any size in a configuration: no dimension of a published model comes near it."""
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "gelu_sigmoid",
    "silu": "silu",
    "swish": "silu",
}
"""Activation functions by their names in ``transformers``."""


class Settings:
    """Values of a configuration. ``null`` is the same as a missing value.

    Args:
        values: content of ``config.json``.
        defaults: what ``transformers`` takes for values that are missing.
    """

    def __init__(self, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        stated = {name: value for name, value in values.items() if value is not None}
        self._values = {**defaults, **stated}

    def get(self, name: str) -> Any:
        """Return a value as it is; ``None`` without one."""
        return self._values.get(name)

    def size(self, name: str) -> int:
        """Return a whole number from 1.

        Raises:
            ImporterError: it is something else.
        """
        value = self._values.get(name)
        if type(value) is not int or not 1 <= value <= MAX_SIZE:
            raise ImporterError(f"`{name}` of config.json must be a whole number from 1, but is {shown(value)}.")
        return value

    def flag(self, name: str) -> bool:
        """Return a truth value.

        Raises:
            ImporterError: it is something else.
        """
        value = self._values.get(name)
        if not isinstance(value, bool):
            raise ImporterError(f"`{name}` of config.json must be true or false, but is {shown(value)}.")
        return value

    def number(self, name: str) -> float:
        """Return a finite number.

        Raises:
            ImporterError: it is something else.
        """
        value = self._values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ImporterError(f"`{name}` of config.json must be a number, but is {shown(value)}.")
        return float(value)

    def activation(self, name: str) -> str:
        """Return an activation function, by this project's name.

        Raises:
            ImporterError: the model families do not have it.
        """
        value = self._values.get(name)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise ImporterError(
                f"`{name}` of config.json is {shown(value)}; supported are {', '.join(sorted(ACTIVATIONS))}."
            )
        return ACTIVATIONS[value]

    def require(self, **expected: Any) -> None:
        """Refuse values that change the computation in a way that the architecture does not have. Missing values are
        accepted.

        Raises:
            ImporterError: names the first one.
        """
        for name, value in expected.items():
            stated = self._values.get(name)
            if stated is not None and stated != value:
                raise ImporterError(
                    f"`{name}` of config.json is {shown(stated)}, but this architecture supports {shown(value)} only."
                )

    def require_equal(self, first: str, second: str) -> None:
        """Refuse two values that differ, where the model families have one.

        Raises:
            ImporterError: they differ.
        """
        one, other = self._values.get(first), self._values.get(second)
        if one != other:
            raise ImporterError(
                f"`{first}` and `{second}` of config.json must be equal, but are {shown(one)} and {shown(other)}."
            )


def shown(value: Any) -> str:
    """A value for an error message, shortened."""
    text = "missing" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
