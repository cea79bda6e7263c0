"""Attention kernels of the export targets, put into a model in place of torch's while it is traced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from edgeformer.model.attention import AttentionKernel, MultiHeadAttention


def ort_attention(
    query: Tensor, key: Tensor, value: Tensor, *, padding: Tensor | None, causal: bool, scale: float, dropout: float
) -> Tensor:
    """``com.microsoft::MultiHeadAttention``, keys and values in four axes; arguments as in ``AttentionKernel``.

    The operator wants keys and values of one width; others go through :func:`portable_attention`.
    """
    if key.shape[3] != value.shape[3]:
        return portable_attention(query, key, value, padding=padding, causal=causal, scale=scale, dropout=dropout)
    context: Tensor = torch.onnx.ops.symbolic(
        "com.microsoft::MultiHeadAttention",
        (query, key, value) if padding is None else (query, key, value, None, padding),
        {"num_heads": key.shape[1], "scale": scale, "unidirectional": int(causal)},
        dtype=query.dtype,
        shape=(query.shape[0], query.shape[1], value.shape[1] * value.shape[3]),
        version=1,
    )
    return context


def portable_attention(
    query: Tensor, key: Tensor, value: Tensor, *, padding: Tensor | None, causal: bool, scale: float, dropout: float
) -> Tensor:
    """The same from matrix products and a softmax, which trace to few standard operators."""
    del dropout
    if causal:
        raise NotImplementedError("Exported graphs decode one position at a time and need no causal mask.")
    # (N, Q, H * E) -> (N, H, Q, E)
    query = query.view(*query.shape[:2], key.shape[1], key.shape[3]).transpose(1, 2)
    scores = torch.matmul(query * scale, key.transpose(2, 3))
    if padding is not None:
        scores = scores.masked_fill(padding[:, None, None, :] == 0, torch.finfo(scores.dtype).min)
    context = torch.matmul(scores.softmax(-1), value)
    # (N, H, Q, F) -> (N, Q, H * F)
    return context.transpose(1, 2).flatten(2)


@contextmanager
def use_kernel(model: nn.Module, kernel: AttentionKernel) -> Iterator[None]:
    """Let every attention of a model use ``kernel`` inside the ``with`` block."""
    modules = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    try:
        for module in modules:
            module.kernel = kernel
        yield
    finally:
        for module in modules:
            del module.kernel
