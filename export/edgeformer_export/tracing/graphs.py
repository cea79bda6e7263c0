"""The two graphs of a bundle as torch modules. State is explicit, so each of the wrappers serves every family."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from edgeformer.model.base import EncoderDecoder
from edgeformer.model.transformer.self_attention import CausalSelfAttention
from edgeformer_export.tracing.kernels import InPlaceCache, replaced
from edgeformer_runtime.contract import StateTensor


class EncoderGraph(nn.Module):
    """From ``source`` and ``source_length`` to every state tensor that comes from the encoder, in the table's order.

    Args:
        model: the model.
        table: the state table of the graphs.
    """

    def __init__(self, model: EncoderDecoder, table: Sequence[StateTensor]) -> None:
        super().__init__()
        self.model = model
        self.names = [tensor.name for tensor in table if tensor.from_encoder]

    def forward(self, source: Tensor, source_length: Tensor) -> tuple[Tensor, ...]:
        """Encode token ids ``(N, S)`` of true lengths ``(N,)``."""
        state = self.model.encode(source, source_length)
        return tuple(state[name] for name in self.names)


class StepDecoderGraph(nn.Module):
    """From the decoder's inputs to the logits, every state tensor that is not a constant, and the attention weights if
    the model has any.

    Args:
        model: the model.
        table: the state table of the graphs.
        in_place: the layers whose caches are written in place.
    """

    def __init__(
        self, model: EncoderDecoder, table: Sequence[StateTensor], in_place: Sequence[CausalSelfAttention]
    ) -> None:
        super().__init__()
        self.model, self.in_place = model, list(in_place)
        self.names = [tensor.name for tensor in table]
        self.carried = [tensor.name for tensor in table if tensor.kind != "constant"]

    def forward(self, token: Tensor, position: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Advance rows ``(R,)`` by one token; ``inputs`` are in the order of
        :func:`~edgeformer_runtime.contract.decoder_inputs`."""
        if not self.in_place:
            return self._step(token, position, inputs)
        cache_indirection, beam_width, *state = inputs
        past_length = position.to(torch.int32).view(1)
        cache = InPlaceCache(past_length, beam_width, cache_indirection)
        with replaced(self.in_place, "cache", lambda _: cache):
            return self._step(token, position, state)

    def _step(self, token: Tensor, position: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        state = dict(zip(self.names, tensors, strict=True))
        if self.model.has_attention:
            logits, after, attention = self.model.step_with_attention(token, position, state)
            return (logits, *(after[name] for name in self.carried), attention)
        logits, after = self.model.step(token, position, state)
        return (logits, *(after[name] for name in self.carried))
