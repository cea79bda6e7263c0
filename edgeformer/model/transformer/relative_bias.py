"""T5's trained biases of self-attention by distance."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from edgeformer.model.transformer.config import RelativeBiasConfig


def bucket(distance: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Bucket of each distance: one each for small distances, logarithmic ranges for larger ones.

    Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
    section 2.1.

    Args:
        distance: not negative, int64.
        buckets: number of buckets.
        max_distance: distance from which all are in the last bucket.
    """
    exact = buckets // 2
    range_of_logarithms = math.log(max_distance / exact)
    large = exact + (torch.log(distance.float() / exact) / range_of_logarithms * (buckets - exact)).to(torch.int64)
    return torch.where(distance < exact, distance, large.clamp(max=buckets - 1))


class RelativeBias(nn.Module):
    """Biases of the scores, by head and by the distance between query and key.

    Args:
        settings: number and range of the buckets.
        heads: number of heads (H).
        max_length: maximum length of a sequence (L).
        causal: there are no keys to the right of a query; otherwise, one half of the buckets is for them.
    """

    positions: Tensor
    buckets: Tensor
    tabulated: Tensor | None = None
    """Result of :meth:`by_offset`, if the exporter has computed it in advance."""

    def __init__(self, settings: RelativeBiasConfig, heads: int, max_length: int, *, causal: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(settings.buckets, heads) * 0.02)
        offset = torch.arange(1 - max_length, max_length)  # of the key from the query
        if causal:
            buckets = bucket(-offset.clamp(max=0), settings.buckets, settings.max_distance)
        else:
            half = settings.buckets // 2
            buckets = bucket(offset.abs(), half, settings.max_distance) + (offset > 0) * half
        self.register_buffer("buckets", buckets, persistent=False)
        self.register_buffer("positions", torch.arange(max_length), persistent=False)

    def by_offset(self) -> Tensor:
        """Biases ``(H, 2 * L - 1)`` of keys at offsets ``1 - L … L - 1`` from their query."""
        if self.tabulated is not None:
            return self.tabulated
        # (2 * L - 1, H) -> (H, 2 * L - 1)
        return self.weight.index_select(0, self.buckets).t()

    def forward(self, length: int) -> Tensor:
        """Biases of all pairs of positions, ``(1, H, length, length)``."""
        positions = self.positions[:length]
        offset = positions[None, :] - positions[:, None] + (len(self.positions) - 1)
        return self.by_offset().index_select(1, offset.flatten()).view(1, -1, length, length)

    def of_last(self) -> Tensor:
        """Biases ``(1, H, 1, L)`` of keys up to their query, which is the last one: slice them from the right."""
        return self.by_offset()[None, :, None, : len(self.positions)]
