"""Kernels of the export targets, put into a model in place of torch's while it is traced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import Tensor, nn

from edgeformer.model.attention import MultiHeadAttention, attention_probabilities
from edgeformer.model.lstm import LSTMLayer
from edgeformer.model.self_attention import CausalSelfAttention, GrowingCache
from edgeformer_export.tracing.graphs import PAST_LENGTH
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import Target


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
    context = torch.matmul(attention_probabilities(query, key, padding, scale), value)
    # (N, H, Q, F) -> (N, Q, H * F)
    return context.transpose(1, 2).flatten(2)


class InPlaceCache:
    """``com.microsoft::DecoderMaskedMultiHeadAttention``, whose past and present are one buffer."""

    axis = contract.CAPACITY_AXIS

    def __call__(
        self,
        attention: MultiHeadAttention,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        past: tuple[Tensor, Tensor],
        state: Mapping[str, Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See ``CacheKernel``."""
        indirection = state[PAST_LENGTH], state[contract.BEAM_WIDTH], state[contract.CACHE_INDIRECTION]
        context, keys, values = torch.onnx.ops.symbolic_multi_out(
            "com.microsoft::DecoderMaskedMultiHeadAttention",
            (query, key, value, None, None, *past, *indirection),
            {"num_heads": attention.heads, "scale": attention.scale, "past_present_share_buffer": 1},
            dtypes=(query.dtype,) * 3,
            shapes=(value.shape, past[0].shape, past[1].shape),
            version=1,
        )
        return context, keys, values


def onnx_lstm(lstm: nn.LSTM, x: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The standard's ``LSTM``, which stops at each row's true length; arguments as in ``LSTMKernel``."""
    hidden_size, directions = lstm.hidden_size, 1 + lstm.bidirectional

    def ordered(name: str) -> list[Tensor]:
        """A parameter of each direction; its gates in the standard's order (input, output, forget, candidate)."""
        parameters = [getattr(lstm, name + suffix) for suffix in ("_l0", "_l0_reverse")[:directions]]
        torch_order = [slice(gate * hidden_size, (gate + 1) * hidden_size) for gate in range(4)]
        enter, keep, candidate, emit = torch_order
        return [torch.cat([parameter[gate] for gate in (enter, emit, keep, candidate)]) for parameter in parameters]

    biases = [torch.cat(pair) for pair in zip(ordered("bias_ih"), ordered("bias_hh"), strict=True)]
    state_shape = (directions, x.shape[1], hidden_size)
    outputs, hidden, cell = torch.onnx.ops.symbolic_multi_out(
        "LSTM",
        (
            x,
            torch.stack(ordered("weight_ih")),
            torch.stack(ordered("weight_hh")),
            torch.stack(biases),
            length.to(torch.int32),
        ),
        {"hidden_size": hidden_size, "direction": "bidirectional" if lstm.bidirectional else "forward"},
        dtypes=(x.dtype,) * 3,
        shapes=((x.shape[0], *state_shape), state_shape, state_shape),
    )
    # (S, directions, N, H) -> (S, N, directions * H)
    return torch.cat(outputs.unbind(1), dim=2), hidden, cell


@contextmanager
def scaled_queries(model: nn.Module) -> Iterator[None]:
    """Let every attention of a model have its scale in the weights of its queries inside the ``with`` block.

    It is for a step: the CPU provider multiplies one query by its keys in a kernel of its own, which is a quarter
    faster, if there is no factor left. In an encoder, a source of one token would be rounded in another way alone than
    in a batch.
    """
    attentions = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    trained = [(attention.query, attention.scale) for attention in attentions]
    try:
        for attention in attentions:
            attention.query = deepcopy(attention.query)
            with torch.no_grad():
                for parameter in attention.query.parameters():
                    parameter.mul_(attention.scale)
            attention.scale = 1.0
        yield
    finally:
        for attention, (query, scale) in zip(attentions, trained, strict=True):
            attention.query, attention.scale = query, scale


@contextmanager
def use_kernels(model: nn.Module, target: Target, *, for_cuda: bool = False) -> Iterator[None]:
    """Let every attention and every LSTM layer of a model use the kernels of ``target`` inside the ``with`` block.

    Args:
        model: a model.
        target: which operators may be used.
        for_cuda: let caches grow whose heads have a width for which CUDA has no kernel that writes in place.
    """
    widths = contract.CUDA_HEAD_WIDTHS if for_cuda else None
    attentions = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    caches = [
        module
        for module in model.modules()
        # The operator wants keys and values of one width.
        if isinstance(module, CausalSelfAttention)
        and module.attention.key_width == module.attention.value_width
        and (widths is None or module.attention.key_width in widths)
    ]
    layers = [module for module in model.modules() if isinstance(module, LSTMLayer)]
    try:
        for attention in attentions:
            attention.kernel = ort_attention if target == "ort" else portable_attention
        for cache in caches:
            cache.cache = InPlaceCache() if target == "ort" else GrowingCache()
        for layer in layers:
            layer.kernel = onnx_lstm
        yield
    finally:
        for attention in attentions:
            del attention.kernel
        for cache in caches:
            del cache.cache
        for layer in layers:
            del layer.kernel
