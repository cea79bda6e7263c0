"""Types of the fields that configurations of several families share. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

Size = Annotated[int, Meta(ge=1)]
"""A width, a depth or a length."""
Probability = Annotated[float, Meta(ge=0, lt=1)]
"""A probability of dropping."""
Tying = Literal["none", "decoder", "all"]
"""Which share one table: nothing; target embedding and output projection; those and the source embedding."""
