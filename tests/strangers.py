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
from edgeformer_runtime.contract import PAST_AXIS, ROWS, SENTENCES, SOURCE_AXIS, StateTensor

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


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class GatedFeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(D, 48, False), nn.Linear(D, 48, False), nn.Linear(48, D, False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.gate(x), approximate="tanh") * self.up(x))


class T5Like(Stranger):
    """Raffel et al. 2020: relative position biases shared by all layers, RMSNorm before each sublayer, gated GELU, no
    biases, no scale of attention scores."""

    BUCKETS = 8
    encoder: nn.ModuleList
    decoder: nn.ModuleList

    def __init__(self, config: NoFields, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__(config, source_vocab_size, target_vocab_size)
        self.encoder_bias, self.decoder_bias = nn.Embedding(self.BUCKETS, HEADS), nn.Embedding(self.BUCKETS, HEADS)
        for side, parts in {"encoder": ("self",), "decoder": ("self", "cross")}.items():
            layers = nn.ModuleList()
            for _ in range(2):
                layer = nn.ModuleDict({"feed_forward": GatedFeedForward(), "feed_forward_norm": RMSNorm()})
                for part in parts:
                    layer[f"{part}_norm"] = RMSNorm()
                    for name in ("query", "key", "value", "output"):
                        layer[f"{part}_{name}"] = nn.Linear(D, D, bias=False)
                layers.append(layer)
            setattr(self, side, layers)
        self.encoder_norm, self.decoder_norm = RMSNorm(), RMSNorm()
        self.projection = nn.Linear(D, target_vocab_size, bias=False)
        self.projection.weight = self.target_embedding.weight

    def bias(self, table: nn.Embedding, queries: Tensor, keys: Tensor) -> Tensor:
        """``(H, Q, S)``: near distances have buckets of their own, and all farther ones share the last."""
        distance = (queries[:, None] - keys[None, :]).abs().clamp(max=self.BUCKETS - 1)
        return table(distance).permute(2, 0, 1)

    @staticmethod
    def heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)

    def encode(self, source: Tensor, source_length: Tensor) -> State:
        mask = mask_of(source_length, source.shape[1])
        at = torch.arange(source.shape[1], device=source.device)
        bias = self.bias(self.encoder_bias, at, at)[None].masked_fill(~mask[:, None, None, :], -1e9)
        x = self.source_embedding(source)
        for layer in self.encoder:
            n = layer["self_norm"](x)
            q, k, v = (self.heads(layer[f"self_{name}"](n)) for name in ("query", "key", "value"))
            x = x + layer["self_output"](((q @ k.transpose(2, 3) + bias).softmax(-1) @ v).transpose(1, 2).flatten(2))
            x = x + layer["feed_forward"](layer["feed_forward_norm"](x))
        memory = self.encoder_norm(x)
        state = {"mask": mask}
        for index, layer in enumerate(self.decoder):
            state |= {f"cross_{name}.{index}": layer[f"cross_{name}"](memory) for name in ("key", "value")}
        return state

    def decode(self, x: Tensor, bias: Tensor, state: State, caches: State) -> tuple[Tensor, State]:
        rows, sentences = x.shape[0], state["mask"].shape[0]
        cross_bias = torch.zeros_like(state["mask"], dtype=x.dtype).masked_fill(~state["mask"], -1e9)[:, None, None, :]
        new: State = {}
        for index, layer in enumerate(self.decoder):
            n = layer["self_norm"](x)
            q, k, v = (self.heads(layer[f"self_{name}"](n)) for name in ("query", "key", "value"))
            if caches:
                k, v = (torch.cat([caches[f"{name}.{index}"], new_part], 2) for name, new_part in (("k", k), ("v", v)))
            new |= {f"k.{index}": k, f"v.{index}": v}
            x = x + layer["self_output"](((q @ k.transpose(2, 3) + bias).softmax(-1) @ v).transpose(1, 2).flatten(2))
            # (R, T, D) -> (N, K T, D), so that the beams of a sentence read one memory
            q = self.heads(layer["cross_query"](layer["cross_norm"](x)).reshape(sentences, -1, D))
            k, v = (self.heads(state[f"cross_{name}.{index}"]) for name in ("key", "value"))
            attended = ((q @ k.transpose(2, 3) + cross_bias).softmax(-1) @ v).transpose(1, 2).flatten(2)
            x = x + layer["cross_output"](attended.reshape(rows, -1, D))
            x = x + layer["feed_forward"](layer["feed_forward_norm"](x))
        return self.projection(self.decoder_norm(x) * D**-0.5), new

    def forward(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        at = torch.arange(target.shape[1], device=target.device)
        bias = self.bias(self.decoder_bias, at, at).masked_fill(at[:, None] < at[None, :], -1e9)
        return self.decode(self.target_embedding(target), bias, self.encode(source, source_length), {})[0]

    def step(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State]:
        past = torch.arange(state["k.0"].shape[2] + 1, device=token.device)
        bias = self.bias(self.decoder_bias, position.reshape(1), past)
        logits, new = self.decode(self.target_embedding(token)[:, None], bias, state, state)
        return logits[:, 0], new

    def state_table(self) -> tuple[StateTensor, ...]:
        cross = (constant(f"cross_{name}.{index}", D) for index in range(2) for name in ("key", "value"))
        caches = (
            StateTensor(name=f"{name}.{index}", kind="cache", dtype="float32", axes=(ROWS, HEADS, PAST_AXIS, WIDTH))
            for index in range(2)
            for name in ("k", "v")
        )
        return (constant("mask", dtype="bool"), *cross, *caches)


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
    for name, kind in {"conv_seq2seq": ConvSeq2Seq, "t5_like": T5Like, "coverage": Coverage}.items()
}
