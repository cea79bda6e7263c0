# mypy: disable-error-code="no-any-return, no-untyped-call, index"
"""Models in the style of published architectures that are not families of the package, as a user would bring them."""

from __future__ import annotations

import math

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgeformer.families import Family
from edgeformer.model.base import EncoderDecoder, State
from edgeformer_runtime.contract import ROWS, SENTENCES, SOURCE_AXIS, StateTensor

D, HEADS, LIMIT = 32, 4, 60
WIDTH = D // HEADS


class NoFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """These models have no settings."""


def mask_of(length: Tensor, size: int) -> Tensor:
    return torch.arange(size, device=length.device) < length[:, None]


def constant(name: str, *axes: str | int, dtype: str = "float32") -> StateTensor:
    return StateTensor(name=name, kind="constant", dtype=dtype, axes=(SENTENCES, SOURCE_AXIS, *axes))  # type: ignore[arg-type]


class Stranger(EncoderDecoder):
    max_source_length = max_target_length = LIMIT

    def __init__(self, _: NoFields, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__()
        self.source_vocab_size, self.target_vocab_size = source_vocab_size, target_vocab_size
        self.source_embedding = nn.Embedding(source_vocab_size, D)
        self.target_embedding = nn.Embedding(target_vocab_size, D)


class ConvSeq2Seq(Stranger):
    """Gehring et al. 2017: gated convolutions on both sides, attention in each decoder layer, learned positions. The
    decoder keeps the last two inputs of each causal convolution."""

    KERNEL = 3

    def __init__(self, config: NoFields, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__(config, source_vocab_size, target_vocab_size)
        self.source_positions = nn.Embedding(LIMIT, D)
        self.target_positions = nn.Embedding(LIMIT, D)
        self.encoder = nn.ModuleList(nn.Conv1d(D, 2 * D, self.KERNEL, padding=1) for _ in range(2))
        self.decoder = nn.ModuleList(nn.Conv1d(D, 2 * D, self.KERNEL) for _ in range(2))
        self.queries = nn.ModuleList(nn.Linear(D, D) for _ in range(2))
        self.narrow = nn.Linear(D, D // 2)  # fed into the projection directly: a linear layer after a linear layer
        self.projection = nn.Linear(D // 2, target_vocab_size)

    def encode(self, source: Tensor, source_length: Tensor) -> State:
        mask = mask_of(source_length, source.shape[1])
        embedded = self.source_embedding(source) + self.source_positions.weight[: source.shape[1]]
        x = embedded
        for convolution in self.encoder:
            masked = x.masked_fill(~mask[:, :, None], 0.0).transpose(1, 2)
            x = (x + F.glu(convolution(masked), 1).transpose(1, 2)) * math.sqrt(0.5)
        inputs = {f"inputs.{index}": x.new_zeros(len(source), self.KERNEL - 1, D) for index in range(2)}
        return {
            "keys": x,
            "values": x + embedded,
            "mask": mask,
            **inputs,
        }

    def decode(self, x: Tensor, state: State, pasts: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """From inputs ``(R, T, D)`` to logits ``(R, T, V)`` and the last inputs of each convolution."""
        embedded, new_pasts = x, []
        sentences = state["keys"].shape[0]
        for convolution, query, past in zip(self.decoder, self.queries, pasts, strict=True):
            extended = torch.cat([past, x], 1)
            new_pasts.append(extended[:, -(self.KERNEL - 1) :])
            hidden = F.glu(convolution(extended.transpose(1, 2)), 1).transpose(1, 2)
            # (R, T, D) -> (N, K T, D)
            asked = (query(hidden) + embedded).reshape(sentences, -1, D)
            scores = asked @ state["keys"].transpose(1, 2)
            scores = scores.masked_fill(~state["mask"][:, None, :], torch.finfo(scores.dtype).min)
            context = (scores.softmax(-1) @ state["values"]).reshape(hidden.shape)
            x = (x + (hidden + context) * math.sqrt(0.5)) * math.sqrt(0.5)
        return self.projection(self.narrow(x)), new_pasts

    def forward(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        state = self.encode(source, source_length)
        embedded = self.target_embedding(target) + self.target_positions.weight[: target.shape[1]]
        return self.decode(embedded, state, [state["inputs.0"], state["inputs.1"]])[0]

    def step(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State]:
        embedded = (self.target_embedding(token) + self.target_positions(position))[:, None]
        logits, pasts = self.decode(embedded, state, [state["inputs.0"], state["inputs.1"]])
        return logits[:, 0], {f"inputs.{index}": past for index, past in enumerate(pasts)}

    def state_table(self) -> tuple[StateTensor, ...]:
        pasts = (
            StateTensor(name=f"inputs.{index}", kind="recurrent", dtype="float32", axes=(ROWS, self.KERNEL - 1, D))
            for index in range(2)
        )
        return (constant("keys", D), constant("values", D), constant("mask", dtype="bool"), *pasts)


class Coverage(Stranger):
    """Tu et al. 2016 and See et al. 2017: torch's own Transformer encoder, and a GRU decoder that remembers how much
    attention each source position has had so far. Its constants have a row for each beam, as in code without beams."""

    has_attention = True

    def __init__(self, config: NoFields, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__(config, source_vocab_size, target_vocab_size)
        layer = nn.TransformerEncoderLayer(D, HEADS, 48, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.cell, self.bridge = nn.GRUCell(2 * D, D), nn.Linear(D, D)
        self.query, self.covered, self.score = nn.Linear(D, D), nn.Linear(1, D), nn.Linear(D, 1)
        self.projection = nn.Linear(2 * D, target_vocab_size)

    def encode(self, source: Tensor, source_length: Tensor) -> State:
        mask = mask_of(source_length, source.shape[1])
        memory = self.encoder(self.source_embedding(source), src_key_padding_mask=~mask)
        memory = memory.masked_fill(~mask[:, :, None], 0.0)
        mean = memory.sum(1) / source_length[:, None]
        return {
            "memory": memory,
            "mask": mask,
            "hidden": torch.tanh(self.bridge(mean)),
            "context": mean,
            "coverage": torch.zeros_like(mask, dtype=memory.dtype),
        }

    def advance(self, token: Tensor, state: State) -> tuple[Tensor, State, Tensor]:
        hidden = self.cell(torch.cat([self.target_embedding(token), state["context"]], -1), state["hidden"])
        memory, mask = state["memory"], state["mask"]
        energy = torch.tanh(memory + self.query(hidden)[:, None] + self.covered(state["coverage"][:, :, None]))
        weights = self.score(energy)[:, :, 0].masked_fill(~mask, torch.finfo(memory.dtype).min).softmax(-1)
        context = (weights[:, None] @ memory)[:, 0]
        logits = self.projection(torch.cat([hidden, context], -1))
        return logits, {"hidden": hidden, "context": context, "coverage": state["coverage"] + weights}, weights

    def forward(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        state, outputs = self.encode(source, source_length), []
        for token in target.unbind(1):
            logits, new, _ = self.advance(token, state)
            state |= new
            outputs.append(logits)
        return torch.stack(outputs, 1)

    def step(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State]:
        return self.advance(token, state)[:2]

    def step_with_attention(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State, Tensor]:
        return self.advance(token, state)

    def state_table(self) -> tuple[StateTensor, ...]:
        rows: dict[str, str | int] = {"hidden": D, "context": D, "coverage": SOURCE_AXIS}
        return (
            StateTensor(name="memory", kind="constant", dtype="float32", axes=(ROWS, SOURCE_AXIS, D)),
            StateTensor(name="mask", kind="constant", dtype="bool", axes=(ROWS, SOURCE_AXIS)),
            *(StateTensor(name=k, kind="recurrent", dtype="float32", axes=(ROWS, axis)) for k, axis in rows.items()),
        )


FAMILIES = {
    name: Family(name=name, config_type=NoFields, build=kind)
    for name, kind in {"conv_seq2seq": ConvSeq2Seq, "coverage": Coverage}.items()
}
