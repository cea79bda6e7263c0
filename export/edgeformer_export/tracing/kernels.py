"""Kernels of the export targets, which replace torch's in a model while it is traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from edgeformer.model.lstm.model import LSTMLayer
from edgeformer.model.transformer.attention import MultiHeadAttention, Scoring, attention_probabilities
from edgeformer.model.transformer.relative_bias import RelativeBias
from edgeformer.model.transformer.self_attention import Past
from edgeformer_runtime.bundle.manifest import Target

OPSET = 20
"""Version of the ONNX operator set; onnxruntime has it since 1.17."""


def ort_attention(query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
    """``com.microsoft::MultiHeadAttention``, with keys and values in four axes; arguments as in ``AttentionKernel``.

    The operator requires keys and values of the same width; others use :func:`portable_attention`.
    """
    if key.shape[3] != value.shape[3]:
        return portable_attention(query, key, value, scoring)
    inputs = (query, key, value, None, scoring.padding, scoring.bias)
    context: Tensor = torch.onnx.ops.symbolic(
        "com.microsoft::MultiHeadAttention",
        inputs[: max(index for index, value in enumerate(inputs) if value is not None) + 1],
        {"num_heads": key.shape[1], "scale": scoring.scale, "unidirectional": int(scoring.causal)},
        dtype=query.dtype,
        shape=(query.shape[0], query.shape[1], value.shape[1] * value.shape[3]),
        version=1,
    )
    return context


def portable_attention(query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
    """Matrix products and a softmax, which trace to a few standard operators; arguments as in ``AttentionKernel``."""
    if scoring.causal:
        raise NotImplementedError("Exported graphs decode one position at a time and need no causal mask.")
    context = torch.matmul(attention_probabilities(query, key, scoring), value)
    # (N, H, Q, F) -> (N, Q, H * F)
    return context.transpose(1, 2).flatten(2)


@dataclass(frozen=True, eq=False)
class InPlaceCache:
    """``com.microsoft::DecoderMaskedMultiHeadAttention``, whose past and present are one buffer.

    It belongs to one step, whose inputs it holds.
    """

    past_length: Tensor
    """Positions in the cache, ``(1,)``, int32."""
    beam_width: Tensor
    """K, ``(1,)``, int32."""
    cache_indirection: Tensor
    """The beam that holds each past position of each beam, ``(N, K, T)``, int32."""

    def __call__(
        self, attention: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, past: Past, bias: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See ``CacheKernel``."""
        if bias is not None:
            bias = self._last(bias)
        context, keys, values = torch.onnx.ops.symbolic_multi_out(
            "com.microsoft::DecoderMaskedMultiHeadAttention",
            (query, key, value, None, bias, *past, self.past_length, self.beam_width, self.cache_indirection),
            {"num_heads": attention.heads, "scale": attention.scale, "past_present_share_buffer": 1},
            dtypes=(query.dtype,) * 3,
            shapes=(value.shape, past[0].shape, past[1].shape),
            version=1,
        )
        return context, keys, values

    def _last(self, bias: Tensor) -> Tensor:
        """The last ``past_length + 1`` columns of a bias. How many they are is not known while tracing."""
        end = torch.tensor([bias.shape[3]])
        last: Tensor = torch.onnx.ops.symbolic(
            "Slice",
            (bias, end - 1 - self.past_length, end, torch.tensor([3])),
            dtype=bias.dtype,
            shape=(*bias.shape[:3], 1),
            version=OPSET,
        )
        return last


@contextmanager
def replaced(modules: Sequence[nn.Module], attribute: str, kernel_of: Callable[[Any], object]) -> Iterator[None]:
    """Make modules use another kernel than that of their class inside the ``with`` block."""
    try:
        for module in modules:
            setattr(module, attribute, kernel_of(module))
        yield
    finally:
        for module in modules:
            delattr(module, attribute)


def onnx_lstm(lstm: nn.LSTM, x: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """ONNX's ``LSTM``, which stops at each row's true length; arguments as in ``LSTMKernel``."""
    hidden_size, directions = lstm.hidden_size, 1 + lstm.bidirectional

    def ordered(name: str) -> list[Tensor]:
        """A parameter of each direction, its gates in ONNX's order (input, output, forget, candidate)."""
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
    """Fold the scale of every attention of a model into the weights of its queries inside the ``with`` block.

    Use it for a step: without a factor, the CPU provider multiplies one query by its keys in a special kernel, which is
    a quarter faster. In an encoder, the result for a source of one token would then depend on the rest of the batch.
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


def ort_rms_norm(norm: nn.RMSNorm, x: Tensor) -> Tensor:
    """``SimplifiedLayerNormalization``, which is in the standard's domain but only in onnxruntime."""
    normed: Tensor = torch.onnx.ops.symbolic(
        "SimplifiedLayerNormalization",
        (x, norm.weight),
        {"axis": -1, "epsilon": torch.finfo(x.dtype).eps if norm.eps is None else norm.eps},
        dtype=x.dtype,
        shape=x.shape,
        version=OPSET,
    )
    return normed


@contextmanager
def use_kernels(model: nn.Module, target: Target) -> Iterator[None]:
    """Make a model use the kernels of ``target`` inside the ``with`` block: those of attention and of LSTM layers,
    RMSNorm as one operator, and relative biases whose tables by offset are constants.

    Caches are a matter of each step: see :class:`InPlaceCache`.
    """

    def each(kind: type[nn.Module]) -> list[nn.Module]:
        return [module for module in model.modules() if isinstance(module, kind)]

    attention = ort_attention if target == "ort" else portable_attention
    with torch.no_grad():  # modules that share a weight share its table
        tables = {bias.weight: bias.by_offset() for bias in model.modules() if isinstance(bias, RelativeBias)}
    with (
        replaced(each(MultiHeadAttention), "kernel", lambda _: attention),
        replaced(each(LSTMLayer), "kernel", lambda _: onnx_lstm),
        replaced(each(RelativeBias), "tabulated", lambda bias: tables[bias.weight]),
        replaced(each(nn.RMSNorm) if target == "ort" else [], "forward", lambda norm: partial(ort_rms_norm, norm)),
    ):
        yield
