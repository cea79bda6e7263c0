"""Faster replacements for training on CPU: attention, dropout and the allocator."""

from __future__ import annotations

import ctypes
import platform
from typing import Any

import torch
from torch import Tensor, nn

from edgeformer.model.transformer.attention import MultiHeadAttention, Scoring, torch_attention

_LEVELS = 2**16


class FastDropout(nn.Module):
    """Dropout on CPU (Srivastava et al. 2014) with a probability rounded to 1/65536; the expectation is exact.

    Torch's CPU generator yields one number at a time on one thread; with layers of width 128, that took a fifth of an
    update.

    Four elements share one 64-bit random number of torch's global generator.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.dropped_levels = round(p * _LEVELS)

    def forward(self, x: Tensor) -> Tensor:
        """Set elements of ``x`` to zero and scale up the others; shape and dtype do not change."""
        if not self.training or not self.dropped_levels:
            return x
        size = x.numel()
        words = torch.empty(-(-size // 4), dtype=torch.int64).random_(-(2**63), None)
        levels = words.view(torch.int16)[:size].view(x.shape)  # uniform in [-32768, 32767]
        factor = torch.empty_like(x)
        torch.ge(levels, self.dropped_levels - _LEVELS // 2, out=factor)
        return x * factor.mul_(_LEVELS / (_LEVELS - self.dropped_levels))

    def extra_repr(self) -> str:
        """Shown by ``print(model)``."""
        return f"p={self.dropped_levels / _LEVELS:g}"


def use_fast_dropout(module: nn.Module) -> None:
    """Replace every :class:`torch.nn.Dropout` of a module that will be trained on CPU."""
    for name, child in module.named_children():
        if type(child) is nn.Dropout:
            setattr(module, name, FastDropout(child.p))
        else:
            use_fast_dropout(child)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1


def keep_freed_memory() -> None:
    """Keep freed memory in the process if the C library is glibc; otherwise do nothing.

    By default, glibc returns large tensors to the system when they are freed, and each update gets them back page by
    page, which takes a twentieth of its time.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        for option in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            libc.mallopt(option, _LARGEST)


def use_training_attention(module: nn.Module) -> None:
    """Replace torch's kernel in every :class:`MultiHeadAttention` of a module that will be trained on CPU."""
    for child in module.modules():
        if isinstance(child, MultiHeadAttention) and child.kernel is torch_attention:
            child.kernel = training_attention


def training_attention(query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
    """An :data:`~edgeformer.model.transformer.attention.AttentionKernel` for sentences of at least one true token.

    Without gradients, or with dropout or a bias, it calls torch's own kernel.
    """
    if scoring.dropout or scoring.bias is not None or not torch.is_grad_enabled():
        return torch_attention(query, key, value, scoring)
    hidden = torch.finfo(torch.float32).min
    bias = torch.zeros((), device=query.device)
    if scoring.padding is not None:
        bias = bias + (1 - scoring.padding[:, None, None, :].float()) * hidden
    if scoring.causal:
        bias = bias + torch.full((query.shape[1], key.shape[2]), hidden, device=query.device).triu_(1)
    context: Tensor = _AttentionFunction.apply(query, key, value, bias, scoring.scale)  # type: ignore[no-untyped-call] # torch
    return context


class _AttentionFunction(torch.autograd.Function):
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


def prepare_for_cpu(model: nn.Module) -> None:
    """Replace what is slow to train on CPU. Weights, and what the model computes, do not change."""
    use_fast_dropout(model)
    use_training_attention(model)
    keep_freed_memory()
