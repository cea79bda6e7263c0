"""The two graphs of a bundle as torch modules. One wrapper each serves every family, since state is explicit."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgeformer.model.base import EncoderDecoder
from edgeformer_runtime import contract

PAST_LENGTH = "past_length"
"""Name under which models find the position as ``(1,)``, int32, if their caches are written in place."""


class EncoderGraph(nn.Module):
    """``(source, source_length) -> `` every state tensor that comes from the encoder, in the table's order."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model
        self.names = [tensor.name for tensor in model.state_table() if tensor.from_encoder]

    def forward(self, source: Tensor, source_length: Tensor) -> tuple[Tensor, ...]:
        """Encode ``(N, S)`` token ids of true lengths ``(N,)``."""
        state = self.model.encode(source, source_length)
        return tuple(state[name] for name in self.names)


class StepDecoderGraph(nn.Module):
    """The decoder's inputs to ``(logits, *state')``, and the attention behind them if the model has any; constants are
    inputs only."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model
        table = model.state_table()
        # Inputs are passed on under the names of the state table, those that are no state under their own.
        plain = {tensor.input_name: tensor.name for tensor in table}
        self.names = [plain.get(name, name) for name in contract.decoder_inputs(table)[2:]]
        self.carried = [tensor.name for tensor in table if tensor.kind != "constant"]

    def forward(self, token: Tensor, position: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        """Advance rows ``(R,)`` by one token."""
        before = dict(zip(self.names, others, strict=True))
        if contract.CACHE_INDIRECTION in before:
            before[PAST_LENGTH] = position.to(torch.int32).view(1)
        if self.model.has_attention:
            logits, after, attention = self.model.step_with_attention(token, position, before)
            return (logits, *(after[name] for name in self.carried), attention)
        logits, after = self.model.step(token, position, before)
        return (logits, *(after[name] for name in self.carried))
