"""Label-smoothed cross-entropy over the true tokens of a batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

CHUNK = 2**18
"""Logits processed at a time on CPU: in fp32 they fit a core's cache, which matters for large vocabularies."""
PROJECTED_CHUNK = 2**22
"""The same if the projection is included: enough rows for an efficient matrix product."""
GPU_CHUNK = 2**26
"""The same on other devices: limits memory, but launches few kernels."""


class LossSums(NamedTuple):
    """Sums over true tokens, so that a caller who accumulates them can divide by the right count."""

    loss: Tensor
    """Label-smoothed cross-entropy in nats, ``()``, float32; the gradient flows through it."""
    nll: Tensor
    """Negative log-likelihood in nats without smoothing, ``()``, float32, no gradient."""
    tokens: Tensor
    """Number of true tokens, ``()``, int64."""


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> LossSums:
    """Cross-entropy with label smoothing (Szegedy et al. 2016, section 7), summed over all labels except padding.

    The target distribution has ``1 - smoothing`` on the label and ``smoothing`` spread evenly over all V entries.

    Args:
        logits: ``(N, T, V)``, any floating dtype; sums are taken in fp32.
        labels: ``(N, T)``, int64; negative for padding.
        smoothing: probability mass spread over the vocabulary.
    """
    flat = labels.flatten()
    loss, nll = _SmoothedCrossEntropy.apply(logits.flatten(0, -2), flat, smoothing)  # type: ignore[no-untyped-call] # torch
    return LossSums(loss, nll, (flat >= 0).sum())


def projected_cross_entropy(
    features: Tensor, projection: nn.Linear, labels: Tensor, smoothing: float = 0.0
) -> LossSums:
    """:func:`smoothed_cross_entropy` of ``projection(features)`` that never holds all logits at once.

    Gradients are computed in the forward pass, chunk by chunk, so call it for training only. Under autocast to bf16,
    probabilities are bf16, and a token's loss is accurate to about 0.002 nats and at most 87 nats.

    Args:
        features: ``(N, T, D)``.
        projection: maps D to V, with or without a bias.
        labels: ``(N, T)``, int64; negative for padding.
        smoothing: probability mass spread over the vocabulary.
    """
    flat = labels.flatten()
    true = (flat >= 0).nonzero()[:, 0]
    chosen = features.flatten(0, 1).index_select(0, true)
    device = features.device.type
    if torch.is_autocast_enabled(device):
        chosen = chosen.to(torch.get_autocast_dtype(device))
    with torch.autocast(device, enabled=False):
        loss, nll = _ProjectedCrossEntropy.apply(chosen, projection.weight, projection.bias, flat[true], smoothing)  # type: ignore[no-untyped-call] # torch
    return LossSums(loss, nll, torch.tensor(len(true), device=labels.device))


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Projection, softmax and both matrix products of the backward pass on one chunk of rows at a time."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        vocab_size = len(weight)
        features_gradient, weight_gradient = torch.empty_like(features), torch.zeros_like(weight)
        bias_gradient = None if bias is None else torch.zeros_like(bias)
        weight = weight.to(features.dtype)
        nll = torch.empty(len(features), device=features.device)
        on_label = torch.empty_like(nll)
        for part in _chunks(len(features), vocab_size, features.device, PROJECTED_CHUNK):
            chunk, label = features[part], labels[part]
            logits = nn.functional.linear(chunk, weight, None if bias is None else bias.to(weight.dtype))
            probability = logits.softmax(-1)
            rows = torch.arange(len(chunk), device=chunk.device)
            of_label = probability[rows, label]
            on_label[part] = logits[rows, label].float()
            nll[part] = of_label.float().clamp_min(torch.finfo(torch.float32).tiny).log().neg()
            # d loss / d logits = softmax - target distribution; the evenly spread part follows below
            probability[rows, label] = of_label - (1 - smoothing)
            torch.mm(probability, weight, out=features_gradient[part])
            weight_gradient += probability.t() @ chunk
            if bias_gradient is not None:
                bias_gradient += probability.sum(0, dtype=torch.float32)
        loss = nll
        if smoothing:
            mean_weight = weight.mean(0, dtype=torch.float32)
            mean_logit = features.float() @ mean_weight + (0 if bias is None else bias.mean())
            loss = torch.lerp(nll, nll + on_label - mean_logit, smoothing)
            features_gradient -= (smoothing * mean_weight).to(features.dtype)
            weight_gradient -= features.sum(0, dtype=torch.float32) * (smoothing / vocab_size)
            if bias_gradient is not None:
                bias_gradient -= len(features) * smoothing / vocab_size
        ctx.save_for_backward(features_gradient, weight_gradient, bias_gradient)
        nll_sum = nll.sum()
        ctx.mark_non_differentiable(nll_sum)
        return loss.sum(), nll_sum

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (None if tensor is None else tensor * grad_outputs[0] for tensor in ctx.saved_tensors)
        return *scaled, None, None


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Processes rows in chunks and keeps only the logits and one number per row for the backward pass.

    Torch's own ``cross_entropy`` writes log-probabilities and, with smoothing, two dense gradients as large as the
    logits.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        normalizer = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
        mean = torch.zeros_like(normalizer)
        for part in _chunks(len(logits), logits.shape[1], logits.device, CHUNK):
            chunk = logits[part].float()
            torch.logsumexp(chunk, -1, out=normalizer[part])
            if smoothing:
                mean[part] = chunk.mean(-1)
        padding, labels = labels < 0, labels.clamp_min(0)
        nll = normalizer - logits.gather(1, labels[:, None])[:, 0].float()
        loss = nll if not smoothing else torch.lerp(nll, normalizer - mean, smoothing)
        ctx.save_for_backward(logits, labels, padding, normalizer)
        ctx.smoothing = smoothing
        nll_sum = nll.masked_fill(padding, 0).sum()
        ctx.mark_non_differentiable(nll_sum)
        return loss.masked_fill(padding, 0).sum(), nll_sum

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        logits, labels, padding, normalizer = ctx.saved_tensors
        scale = torch.where(padding, 0, grad_outputs[0])[:, None]
        gradient = torch.empty_like(logits)
        for part in _chunks(len(logits), logits.shape[1], logits.device, CHUNK):
            # d loss / d logits = softmax - target distribution
            chunk = torch.sub(logits[part], normalizer[part, None]).exp_()
            chunk.sub_(ctx.smoothing / logits.shape[1])
            chunk[torch.arange(len(chunk), device=chunk.device), labels[part]] += ctx.smoothing - 1
            gradient[part] = chunk.mul_(scale[part])
        return gradient, None, None


def _chunks(rows: int, vocab_size: int, device: torch.device, cpu_chunk: int) -> list[slice]:
    size = max(1, (cpu_chunk if device.type == "cpu" else GPU_CHUNK) // vocab_size)
    return [slice(start, start + size) for start in range(0, rows, size)]
