"""Checked access to the values of ``config.json`` and ``generation_config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from edgeformer.errors import ImporterError
from edgeformer.wording import reworded

Size = Annotated[int, Meta(ge=1, le=1 << 24)]
"""Any size in a configuration: no dimension of a published model comes near the limit."""
Share = Annotated[float, Meta(ge=0, le=1)]
"""A probability, or what is added to a variance."""
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
T = TypeVar("T", bound=msgspec.Struct)


def checked(values: Mapping[str, Any], kind: type[T], defaults: Mapping[str, Any] | None = None) -> T:
    """Return the values of a configuration that a type has as its fields.

    Args:
        values: content of the file; ``null`` is the same as a missing value.
        kind: has what ``transformers`` takes for missing values as its defaults.
        defaults: those that differ for an architecture.
    """
    stated = {name: value for name, value in values.items() if value is not None}
    try:
        return msgspec.convert({**(defaults or {}), **stated}, kind)
    except msgspec.ValidationError as error:
        raise ImporterError(f"The configuration of the model cannot be used: {reworded(error, kind)}.") from None


def activation(name: str, value: str) -> str:
    """Return the activation function that a setting states, by this project's name."""
    if value not in ACTIVATIONS:
        raise ImporterError(
            f"`{name}` of config.json is {shown(value)}; supported are {', '.join(sorted(ACTIVATIONS))}."
        )
    return ACTIVATIONS[value]


def require(config: Mapping[str, Any], **expected: Any) -> None:
    """Refuse values that change the computation in a way that the architecture does not have. Missing values are
    accepted.
    """
    for name, value in expected.items():
        stated = config.get(name)
        if stated is not None and stated != value:
            raise ImporterError(
                f"`{name}` of config.json is {shown(stated)}, but this architecture supports {shown(value)} only."
            )


def shown(value: Any) -> str:
    """A value for an error message, shortened."""
    text = "missing" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
