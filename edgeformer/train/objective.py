"""The model together with the loss that it is trained for."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from edgeformer.model.base import EncoderDecoder
from edgeformer.train.loss import projected_cross_entropy, smoothed_cross_entropy


class Objective(nn.Module):
    """Label-smoothed cross-entropy of a model.

    For a model that declares ``has_features``, the logits of a batch are never held all at once.

    Args:
        model: the model to train.
        label_smoothing: probability mass spread over the vocabulary.
    """

    def __init__(self, model: EncoderDecoder, label_smoothing: float) -> None:
        super().__init__()
        self.model, self.label_smoothing = model, label_smoothing

    def forward(self, source: Tensor, source_length: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        """Return the loss summed over all true tokens, ``()``, float32.

        Args:
            source: token ids, ``(N, S)``, int64.
            source_length: true lengths, ``(N,)``, int64.
            target: decoder input, ``(N, T)``, int64.
            labels: the next token of each target position, ``(N, T)``, int64.
        """
        model, device = self.model, source.device.type
        with _uncached_autocast(device), _attention_backend(device):
            if model.has_features:
                features = model.features(source, source_length, target)
                return projected_cross_entropy(features, model.projection, labels, self.label_smoothing).loss
            return smoothed_cross_entropy(model(source, source_length, target), labels, self.label_smoothing).loss


def _uncached_autocast(device: str) -> AbstractContextManager[None]:
    """Cast a weight at each use: through one cached bf16 copy, gradients of several uses would be summed in bf16."""
    enabled = torch.is_autocast_enabled(device)
    return torch.autocast(device, torch.get_autocast_dtype(device), enabled, cache_enabled=False)


def _attention_backend(device: str) -> AbstractContextManager[None]:
    """Plain matrix products on CPU, where torch's fused kernel takes several times as long for sentences in bf16."""
    return sdpa_kernel(SDPBackend.MATH) if device == "cpu" else nullcontext()
