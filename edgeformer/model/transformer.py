"""The Transformer: teacher-forced forward for training, encoder and step with explicit state for the device."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from edgeformer.model.attention import MultiHeadAttention
from edgeformer.model.base import EncoderDecoder, State
from edgeformer.model.config import TransformerConfig
from edgeformer_runtime.contract import PAST_AXIS, ROWS, SENTENCES, SOURCE_AXIS, StateTensor

SOURCE_MASK = "source_mask"
ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}


def sinusoids(length: int, width: int) -> Tensor:
    """Position table ``(length, width)``: sines in even and cosines in odd columns (Vaswani et al. 2017, section
    3.5)."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    frequency = torch.exp(-math.log(10_000.0) * torch.arange(0, width, 2, dtype=torch.float64) / width)
    table = torch.stack((torch.sin(position * frequency), torch.cos(position * frequency)), dim=-1)
    return table.flatten(1).to(torch.float32)


def length_mask(length: Tensor, size: int) -> Tensor:
    """``(N, size)``, int32: 1 for the first ``length`` positions of each row and 0 for padding."""
    return (torch.arange(size, device=length.device) < length[:, None]).to(torch.int32)


class Embedding(nn.Module):
    """Token embedding plus position, for a whole sequence or for one position."""

    positions: Tensor

    def __init__(self, config: TransformerConfig, tokens: nn.Embedding, max_length: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.dropout = nn.Dropout(config.dropout)
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.randn(max_length, config.d_model) * config.d_model**-0.5)
        else:
            self.register_buffer("positions", sinusoids(max_length, config.d_model), persistent=False)

    def forward(self, token: Tensor) -> Tensor:
        """``(N, T) -> (N, T, D)``."""
        embedded: Tensor = self.dropout(self.tokens(token) * self.scale + self.positions[: token.shape[1]])
        return embedded

    def at(self, token: Tensor, position: Tensor) -> Tensor:
        """``(R,)`` tokens that all stand at ``position``, ``()``: ``(R, D)``."""
        embedded: Tensor = self.tokens(token) * self.scale + self.positions[position]
        return embedded


class Residual(nn.Module):
    """The residual connection and LayerNorm around a sublayer, pre- or post-norm."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.pre = config.norm == "pre"
        self.dropout_after_norm = config.dropout_after_norm

    def before(self, x: Tensor) -> Tensor:
        """The sublayer's input."""
        normed: Tensor = self.norm(x) if self.pre else x
        return normed

    def after(self, x: Tensor, update: Tensor) -> Tensor:
        """The stream ``x`` with the sublayer's output added."""
        summed: Tensor
        if self.pre:
            summed = x + self.dropout(update)
        elif self.dropout_after_norm:
            summed = self.dropout(self.norm(x + update))
        else:
            summed = self.norm(x + self.dropout(update))
        return summed


class FeedForward(nn.Sequential):
    """Two linear layers with an activation between them, applied at each position."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(
            nn.Linear(config.d_model, config.d_ff),
            ACTIVATIONS[config.activation](),
            nn.Dropout(config.activation_dropout),
            nn.Linear(config.d_ff, config.d_model),
        )


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention, self.attention_residual = MultiHeadAttention(config), Residual(config)
        self.feed_forward, self.feed_forward_residual = FeedForward(config), Residual(config)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        """``(N, S, D) -> (N, S, D)``."""
        inner = self.attention_residual.before(x)
        x = self.attention_residual.after(x, self.attention(inner, inner, padding=padding))
        update = self.feed_forward(self.feed_forward_residual.before(x))
        return self.feed_forward_residual.after(x, update)


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention and feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention, self.self_residual = MultiHeadAttention(config), Residual(config)
        self.cross_attention, self.cross_residual = MultiHeadAttention(config), Residual(config)
        self.feed_forward, self.feed_forward_residual = FeedForward(config), Residual(config)

    def forward(self, x: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
        """All target positions at once: ``(N, T, D) -> (N, T, D)``."""
        inner = self.self_residual.before(x)
        x = self.self_residual.after(x, self.self_attention(inner, inner, causal=True))
        inner = self.cross_residual.before(x)
        x = self.cross_residual.after(x, self.cross_attention(inner, memory, padding=padding))
        update = self.feed_forward(self.feed_forward_residual.before(x))
        return self.feed_forward_residual.after(x, update)

    def step(
        self, x: Tensor, self_key: Tensor, self_value: Tensor, cross_key: Tensor, cross_value: Tensor, padding: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One position of every row.

        Args:
            x: ``(R, D)``.
            self_key: keys of the positions before, ``(R, H, P, E)``.
            self_value: their values, ``(R, H, P, F)``.
            cross_key: ``(N, H, S, E)``; the K beams of a sentence are queries to the same keys.
            cross_value: ``(N, H, S, F)``.
            padding: ``(N, S)``.

        Returns:
            ``(R, D)``, and the keys and values with this position appended.
        """
        attention = self.self_attention
        inner = self.self_residual.before(x)
        key, value = attention.project_step(inner)
        self_key, self_value = torch.cat((self_key, key), dim=2), torch.cat((self_value, value), dim=2)
        context = attention.attend(attention.project_query(inner)[:, None], self_key, self_value)[:, 0]
        x = self.self_residual.after(x, attention.output(context))

        attention = self.cross_attention
        query = attention.project_query(self.cross_residual.before(x))
        # (R, H * E) -> (N, K, H * E)
        query = query.reshape(cross_key.shape[0], -1, query.shape[-1])
        context = attention.attend(query, cross_key, cross_value, padding=padding)
        x = self.cross_residual.after(x, attention.output(context.flatten(0, 1)))

        update = self.feed_forward(self.feed_forward_residual.before(x))
        return self.feed_forward_residual.after(x, update), self_key, self_value


class Transformer(EncoderDecoder):
    """Encoder and decoder stacks with embeddings and output projection, tied as the configuration says."""

    def __init__(self, config: TransformerConfig, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.source_vocab_size, self.target_vocab_size = source_vocab_size, target_vocab_size
        self.max_source_length, self.max_target_length = config.max_source_length, config.max_target_length

        target_tokens = nn.Embedding(target_vocab_size, config.d_model)
        if config.tied_embeddings == "all":
            if source_vocab_size != target_vocab_size:
                raise ValueError(
                    f'`tied_embeddings` = "all" needs one vocabulary for both sides, but they have {source_vocab_size} '
                    f"and {target_vocab_size} entries."
                )
            source_tokens = target_tokens
        else:
            source_tokens = nn.Embedding(source_vocab_size, config.d_model)
        self.source_embedding = Embedding(config, source_tokens, config.max_source_length)
        self.target_embedding = Embedding(config, target_tokens, config.max_target_length)
        self.encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        final_norm = nn.LayerNorm if config.norm == "pre" else nn.Identity
        self.encoder_norm, self.decoder_norm = final_norm(config.d_model), final_norm(config.d_model)
        self.projection = nn.Linear(config.d_model, target_vocab_size, bias=False)
        self._initialise()
        if config.tied_embeddings != "none":
            self.projection.weight = target_tokens.weight

    def _initialise(self) -> None:
        """Xavier for projections; embeddings with standard deviation D ** -0.5, which suits scaling and tying."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5)

    def forward(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        """Teacher-forced logits ``(N, T, V)``; see :meth:`EncoderDecoder.forward`."""
        memory, padding = self._encode(source, source_length)
        x = self.target_embedding(target)
        for layer in self.decoder_layers:
            x = layer(x, memory, padding)
        logits: Tensor = self.projection(self.decoder_norm(x))
        return logits

    def encode(self, source: Tensor, source_length: Tensor) -> State:
        """Encode once, and project keys and values for every decoder layer; see :meth:`EncoderDecoder.encode`."""
        memory, padding = self._encode(source, source_length)
        state = {SOURCE_MASK: padding}
        for index, layer in enumerate(self._decoder()):
            state[f"cross_key.{index}"], state[f"cross_value.{index}"] = layer.cross_attention.project_memory(memory)
        return state

    def step(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits ``(R, V)`` of the next token; see :meth:`EncoderDecoder.step`."""
        x = self.target_embedding.at(token, position)
        new_state = {}
        for index, layer in enumerate(self._decoder()):
            x, new_state[f"self_key.{index}"], new_state[f"self_value.{index}"] = layer.step(
                x,
                state[f"self_key.{index}"],
                state[f"self_value.{index}"],
                state[f"cross_key.{index}"],
                state[f"cross_value.{index}"],
                state[SOURCE_MASK],
            )
        logits: Tensor = self.projection(self.decoder_norm(x))
        return logits, new_state

    def state_table(self) -> tuple[StateTensor, ...]:
        """Source mask and cross-attention keys and values from the encoder; self-attention caches that grow."""
        heads, widths = self.config.heads, {"key": self.config.key_width, "value": self.config.value_width}
        table = [StateTensor(name=SOURCE_MASK, kind="constant", dtype="int32", axes=(SENTENCES, SOURCE_AXIS))]
        for index in range(self.config.decoder_layers):
            for part, width in widths.items():
                cross_axes = (SENTENCES, heads, SOURCE_AXIS, width)
                self_axes = (ROWS, heads, PAST_AXIS, width)
                table.append(
                    StateTensor(name=f"cross_{part}.{index}", kind="constant", dtype="float32", axes=cross_axes)
                )
                table.append(StateTensor(name=f"self_{part}.{index}", kind="cache", dtype="float32", axes=self_axes))
        return tuple(table)

    def _encode(self, source: Tensor, source_length: Tensor) -> tuple[Tensor, Tensor]:
        """Memory ``(N, S, D)`` and mask ``(N, S)``."""
        padding = length_mask(source_length, source.shape[1])
        x = self.source_embedding(source)
        for layer in self.encoder_layers:
            x = layer(x, padding)
        return self.encoder_norm(x), padding

    def _decoder(self) -> list[DecoderLayer]:
        return [layer for layer in self.decoder_layers if isinstance(layer, DecoderLayer)]
