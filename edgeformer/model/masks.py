"""Masks computed from lengths, as part of the graph."""

from __future__ import annotations

import torch
from torch import Tensor


def length_mask(length: Tensor, size: int) -> Tensor:
    """Return ``(N, size)``, int32: 1 for the first ``length`` positions of each row, and 0 for padding."""
    return (torch.arange(size, device=length.device) < length[:, None]).to(torch.int32)
