"""Field types shared by the configurations of several families. Does not import torch."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

Size = Annotated[int, Meta(ge=1)]
"""A width, a depth or a length."""
Probability = Annotated[float, Meta(ge=0, lt=1)]
"""A dropout probability."""
Tying = Literal["none", "decoder", "inputs", "all"]
"""Tables sharing a weight: none; the target embedding and the output projection; both embeddings; all three."""
