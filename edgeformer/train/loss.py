"""Label-smoothed cross-entropy over the true tokens of a batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

CHUNK = 2**18
"""Logits handled at a time on CPU: in fp32 they stay within a core's cache, which matters for large vocabularies."""
GPU_CHUNK = 2**26
"""The same elsewhere: it bounds the memory of the fp32 copy, with few kernels to launch."""


class LossSums(NamedTuple):
    """Sums over true tokens, so that whoever accumulates them can divide by the right number."""

    loss: Tensor
    """Label-smoothed cross-entropy in nats, ``()``, float32; the gradient flows through it."""
    nll: Tensor
    """Negative log-likelihood in nats without smoothing, ``()``, float32, no gradient."""
    tokens: Tensor
    """Number of true tokens, ``()``, int64."""


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0, pad_id: int = 0) -> LossSums:
    """Cross-entropy with label smoothing (Szegedy et al. 2016, section 7), summed over all labels that are not padding.

    The target distribution has ``1 - smoothing`` on the label and ``smoothing`` spread evenly over all V entries.

    Args:
        logits: ``(N, T, V)``, any floating dtype; sums are taken in fp32.
        labels: ``(N, T)``, int64.
        smoothing: probability mass spread over the vocabulary.
        pad_id: label of padding.
    """
    flat = labels.flatten()
    loss, nll = _SmoothedCrossEntropy.apply(logits.flatten(0, -2), flat, smoothing, pad_id)  # type: ignore[no-untyped-call] # torch
    return LossSums(loss, nll, (flat != pad_id).sum())


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Works through the rows in chunks and keeps only the logits and one number per row for the backward pass.

    Torch's own ``cross_entropy`` writes log-probabilities and, with smoothing, two dense gradients as large as the
    logits.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, smoothing: float, pad_id: int) -> tuple[Tensor, Tensor]:
        normaliser = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
        mean = torch.zeros_like(normaliser)
        for part in _chunks(logits):
            chunk = logits[part].float()
            torch.logsumexp(chunk, -1, out=normaliser[part])
            if smoothing:
                mean[part] = chunk.mean(-1)
        padding = labels == pad_id
        nll = normaliser - logits.gather(1, labels[:, None])[:, 0].float()
        loss = nll if not smoothing else torch.lerp(nll, normaliser - mean, smoothing)
        ctx.save_for_backward(logits, labels, normaliser)
        ctx.smoothing, ctx.pad_id = smoothing, pad_id
        nll_sum = nll.masked_fill(padding, 0).sum()
        ctx.mark_non_differentiable(nll_sum)
        return loss.masked_fill(padding, 0).sum(), nll_sum

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None, None]:
        logits, labels, normaliser = ctx.saved_tensors
        scale = torch.where(labels == ctx.pad_id, 0, grad_outputs[0])[:, None]
        gradient = torch.empty_like(logits)
        for part in _chunks(logits):
            # d loss / d logits = softmax - target distribution
            chunk = torch.sub(logits[part], normaliser[part, None]).exp_()
            chunk.sub_(ctx.smoothing / logits.shape[1])
            on_label = torch.full((len(chunk), 1), ctx.smoothing - 1, dtype=chunk.dtype, device=chunk.device)
            chunk.scatter_add_(1, labels[part, None], on_label)
            gradient[part] = chunk.mul_(scale[part])
        return gradient, None, None, None


def _chunks(logits: Tensor) -> list[slice]:
    rows, vocab_size = logits.shape
    size = max(1, (CHUNK if logits.device.type == "cpu" else GPU_CHUNK) // vocab_size)
    return [slice(start, start + size) for start in range(0, rows, size)]
