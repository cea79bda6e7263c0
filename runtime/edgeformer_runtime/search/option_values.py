"""The values that a decoding option may have, and how a command line and a server offer it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgeformer_runtime.limits import MAX_OPTION

SMALLEST = math.ulp(0.0)
"""The smallest positive number."""


@dataclass(frozen=True)
class Integers:
    """Whole numbers between two bounds."""

    least: int
    most: int = MAX_OPTION

    def problem(self, value: Any) -> str | None:
        """See :data:`Values`."""
        if not isinstance(value, int) or isinstance(value, bool):
            return "must be a whole number"
        if value < self.least:
            return f"must be at least {self.least}"
        return f"must be at most {self.most:,}" if value > self.most else None


@dataclass(frozen=True)
class Numbers:
    """Numbers between two bounds."""

    words: str
    """The range in words."""
    least: float
    most: float

    def problem(self, value: Any) -> str | None:
        """See :data:`Values`."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            return "must be a number"
        return None if self.least <= value <= self.most else f"must be {self.words}"


@dataclass(frozen=True)
class Booleans:
    """``True`` and ``False``."""

    def problem(self, value: Any) -> str | None:
        """See :data:`Values`."""
        return None if isinstance(value, bool) else "must be True or False"


@dataclass(frozen=True)
class TokenIds:
    """Sequences of token ids, or of such sequences."""

    nested: bool = False

    def problem(self, value: Any) -> str | None:
        """See :data:`Values`."""
        if not self.nested:
            return None if _is_ids(value) else "must be a list of token ids"
        if _is_list(value) and all(_is_ids(item) and len(item) for item in value):
            return None
        return "must be a list of lists of token ids, none of them empty"


Values = Integers | Numbers | Booleans | TokenIds
"""The values that an option may have. ``problem`` says what a value must be instead, as in "must be at least 1"; it is
``None`` if the value is valid."""


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_ids(value: Any) -> bool:
    return _is_list(value) and all(Integers(0).problem(item) is None for item in value)


@dataclass(frozen=True)
class OptionDeclaration:
    """What a field of :class:`DecodeOptions` may be, and how a command line and a server offer it."""

    values: Values
    flag: str = ""
    """The option of the command line, with a second name if it can be turned off; empty if it has none."""
    help: str = ""
    """What the command line says of it, without the default."""
    served: Values | None = None
    """The values that a request to a server may ask for; ``None`` if it may not."""
