"""Quantization that a model brings along."""

from __future__ import annotations

import msgspec


class LinearScales(msgspec.Struct, kw_only=True, frozen=True):
    """Scales of a linear layer that was quantized elsewhere: ``real = scale * integer``, integers in -127 … 127."""

    weight: float
    """Scale of all weights of the layer, which are multiples of it."""
    activation: float | None = None
    """Scale of the layer's inputs; ``None`` if the model does not state it, or if rows are only looked up."""
