"""Attention for training on CPU, where torch's own kernel spends most of its time outside the matrix products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from edgeformer.model.transformer.attention import MultiHeadAttention, torch_attention


def use_training_attention(module: nn.Module) -> None:
    """Replace torch's kernel in every :class:`MultiHeadAttention` of a module that will be trained on CPU."""
    for child in module.modules():
        if isinstance(child, MultiHeadAttention) and child.kernel is torch_attention:
            child.kernel = training_attention


def training_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    padding: Tensor | None,
    causal: bool,
    scale: float,
    dropout: float,
    bias: Tensor | None = None,
) -> Tensor:
    """An :class:`~edgeformer.model.transformer.attention.AttentionKernel` for sentences of at least one true token.

    Without gradients, or with dropout or a bias, it calls torch's own kernel.
    """
    if dropout or bias is not None or not torch.is_grad_enabled():
        return torch_attention(
            query, key, value, padding=padding, causal=causal, scale=scale, dropout=dropout, bias=bias
        )
    hidden = torch.finfo(torch.float32).min
    bias = torch.zeros((), device=query.device)
    if padding is not None:
        bias = bias + (1 - padding[:, None, None, :].float()) * hidden
    if causal:
        bias = bias + torch.full((query.shape[1], key.shape[2]), hidden, device=query.device).triu_(1)
    context: Tensor = _Attention.apply(query, key, value, bias, scale)  # type: ignore[no-untyped-call] # torch
    return context


class _Attention(torch.autograd.Function):
    """Matrix products in the dtype of the arguments, softmax in fp32. Sentences and heads share one batch axis."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scale: float) -> Tensor:
        sentences, heads, length, key_width = key.shape
        # (N, Q, H * E) -> (N, H, Q, E) -> (N * H, Q, E)
        split = query.view(sentences, -1, heads, key_width).transpose(1, 2)
        flat_query = split.reshape(sentences * heads, -1, key_width)
        flat_key, flat_value = key.flatten(0, 1), value.flatten(0, 1)
        scores = torch.bmm(flat_query, flat_key.transpose(1, 2)).float()
        weights = torch.add(bias, scores.view(sentences, heads, -1, length), alpha=scale).softmax(-1).view_as(scores)
        rounded = weights.to(query.dtype)
        ctx.save_for_backward(flat_query, flat_key, flat_value, weights, rounded)
        ctx.heads, ctx.scale = heads, scale
        return _joined(torch.bmm(rounded, flat_value), heads)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, weights, rounded = ctx.saved_tensors
        # (N, Q, H * F) -> (N, H, Q, F) -> (N * H, Q, F)
        split = grad_outputs[0].reshape(len(value) // ctx.heads, -1, ctx.heads, value.shape[2]).transpose(1, 2)
        gradient = split.reshape(len(value), -1, value.shape[2])
        weights_gradient = torch.bmm(gradient, value.transpose(1, 2)).float()
        scores_gradient = torch._softmax_backward_data(weights_gradient, weights, -1, torch.float32)
        scores_gradient = scores_gradient.mul_(ctx.scale).to(query.dtype)
        key_gradient = torch.bmm(scores_gradient.transpose(1, 2), query)
        value_gradient = torch.bmm(rounded.transpose(1, 2), gradient)
        return (
            _joined(torch.bmm(scores_gradient, key), ctx.heads),
            key_gradient.view(-1, ctx.heads, *key.shape[1:]),
            value_gradient.view(-1, ctx.heads, *value.shape[1:]),
            None,
            None,
        )


def _joined(x: Tensor, heads: int) -> Tensor:
    """``(N * H, Q, F) -> (N, Q, H * F)``."""
    return x.view(-1, heads, *x.shape[1:]).transpose(1, 2).flatten(2)
