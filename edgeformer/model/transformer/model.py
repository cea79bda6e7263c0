"""The Transformer: a teacher-forced forward pass, and an encoder and a step with explicit state.

The families ``transformer`` and ``ssru`` differ in the sublayer that looks back at the target: causal self-attention
with a growing cache, or a recurrence with a state of fixed size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from torch import Tensor, nn

from edgeformer.model.base import EncoderDecoder, State
from edgeformer.model.masks import length_mask
from edgeformer.model.tables import vocabulary_tables
from edgeformer.model.transformer.attention import MultiHeadAttention
from edgeformer.model.transformer.config import TransformerConfig
from edgeformer.model.transformer.layers import Embedding, EncoderLayer, FeedForward, Residual, norm_layer
from edgeformer.model.transformer.relative_bias import RelativeBias
from edgeformer_runtime.contract import SENTENCES, SOURCE_AXIS, StateTensor

SOURCE_MASK = "source_mask"


class TargetLayer(Protocol):
    """A sublayer of the decoder that passes information from one target position to the next."""

    def __call__(self, x: Tensor) -> Tensor:
        """Compute all positions at once, ``(N, T, D) -> (N, T, D)``; position ``t`` sees only those up to ``t``."""

    def initial(self, sentences: int) -> dict[str, Tensor]:
        """Return the recurrent state tensors before the first token, with ``sentences`` rows."""

    def step(self, x: Tensor, state: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute one position of every row, ``(R, 1, D) -> (R, 1, D)``, and the state tensors after it."""

    def state_table(self) -> tuple[StateTensor, ...]:
        """Describe the state tensors."""


TargetLayerType = Callable[[TransformerConfig, int], TargetLayer]
"""Builds the target layer of a decoder layer, given the index of the latter."""


class DecoderLayer(nn.Module):
    """A sublayer over the target, cross-attention and a feed-forward network."""

    target_layer: TargetLayer

    def __init__(self, config: TransformerConfig, target_layer: TargetLayer) -> None:
        super().__init__()
        self.target_layer, self.target_residual = target_layer, Residual(config)
        self.cross_attention, self.cross_residual = MultiHeadAttention(config), Residual(config)
        feed_forward = FeedForward(config, config.decoder_d_ff or config.d_ff)
        self.feed_forward, self.feed_forward_residual = feed_forward, Residual(config)

    def forward(self, x: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
        """Compute all target positions at once: ``(N, T, D) -> (N, T, D)``."""
        x = self.target_residual.after(x, self.target_layer(self.target_residual.before(x)))
        query = self.cross_residual.before(x)
        x = self.cross_residual.after(x, self.cross_attention(query, memory, padding=padding))
        update = self.feed_forward(self.feed_forward_residual.before(x))
        return self.feed_forward_residual.after(x, update)

    def step(
        self, x: Tensor, state: Mapping[str, Tensor], cross_key: Tensor, cross_value: Tensor, padding: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """Compute one position of every row.

        Args:
            x: ``(R, 1, D)``.
            state: holds the target layer's tensors.
            cross_key: ``(N, H, S, E)``; the K beams of a sentence are queries to the same keys.
            cross_value: ``(N, H, S, F)``.
            padding: ``(N, S)``.

        Returns:
            ``(R, 1, D)``, the target layer's tensors after this position, and the cross-attention's projected queries,
            ``(N, K, H * E)``.
        """
        update, new_state = self.target_layer.step(self.target_residual.before(x), state)
        x = self.target_residual.after(x, update)

        attention = self.cross_attention
        query = attention.project_query(self.cross_residual.before(x))
        # (R, 1, H * E) -> (N, K, H * E)
        query = query.view(padding.shape[0], -1, query.shape[-1])
        context = attention.attend(query, cross_key, cross_value, padding=padding)
        # (N, K, H * F) -> (R, 1, H * F)
        x = self.cross_residual.after(x, attention.output(context.view(x.shape[0], 1, context.shape[-1])))

        update = self.feed_forward(self.feed_forward_residual.before(x))
        return self.feed_forward_residual.after(x, update), new_state, query


class Transformer(EncoderDecoder):
    """Encoder and decoder stacks with embeddings and an output projection, tied as configured.

    Args:
        config: sizes and variations.
        source_vocab_size: entries of the source vocabulary.
        target_vocab_size: entries of the target vocabulary.
        target_layer: builds the sublayer over the target, such as ``CausalSelfAttention`` or ``SSRU``.

    Raises:
        ValueError: the vocabularies cannot share a table as configured.
    """

    has_attention = True
    has_features = True

    def __init__(
        self,
        config: TransformerConfig,
        source_vocab_size: int,
        target_vocab_size: int,
        target_layer: TargetLayerType,
    ) -> None:
        super().__init__()
        self.config = config
        self.source_vocab_size, self.target_vocab_size = source_vocab_size, target_vocab_size
        self.max_source_length, self.max_target_length = config.max_source_length, config.max_target_length

        self.encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder_layers = nn.ModuleList(
            DecoderLayer(config, target_layer(config, index)) for index in range(config.decoder_layers)
        )
        if config.relative_bias is not None and not config.relative_bias.per_layer:
            for layers in (self.encoder_layers, self.decoder_layers):
                first, *others = (module for module in layers.modules() if isinstance(module, RelativeBias))
                for bias in others:
                    bias.weight = first.weight
        has_norm = config.has_final_norm
        self.encoder_norm = norm_layer(config) if has_norm and not config.encoder_attention_only else nn.Identity()
        self.decoder_norm = norm_layer(config) if has_norm else nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        tables = vocabulary_tables(
            source_vocab_size,
            target_vocab_size,
            config.d_model,
            config.tied_embeddings,
            bias=config.output_bias,
        )
        self.source_embedding = Embedding(config, tables.source, config.max_source_length)
        self.target_embedding = Embedding(config, tables.target, config.max_target_length)
        self.projection = tables.projection

    def forward(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        """Compute teacher-forced logits ``(N, T, V)``; see :meth:`EncoderDecoder.forward`."""
        logits: Tensor = self.projection(self.features(source, source_length, target))
        return logits

    def features(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        """Compute what :meth:`forward` projects to logits, ``(N, T, D)``."""
        memory, padding = self._encode(source, source_length)
        x = self.target_embedding(target)
        for layer in self.decoder_layers:
            x = layer(x, memory, padding)
        return self._output(x)

    def encode(self, source: Tensor, source_length: Tensor) -> State:
        """Encode, and project keys and values for every decoder layer; see :meth:`EncoderDecoder.encode`."""
        memory, padding = self._encode(source, source_length)
        state = {SOURCE_MASK: padding}
        for index, layer in enumerate(self._decoder()):
            state[f"cross_key.{index}"], state[f"cross_value.{index}"] = layer.cross_attention.project_memory(memory)
            state |= layer.target_layer.initial(source.shape[0])
        return state

    def step(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State]:
        """Compute logits ``(R, V)`` of the next token; see :meth:`EncoderDecoder.step`."""
        logits, new_state, _ = self._step(token, position, state)
        return logits, new_state

    def step_with_attention(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State, Tensor]:
        """Return the last layer's cross-attention, averaged over its heads; see
        :meth:`EncoderDecoder.step_with_attention`."""
        logits, new_state, query = self._step(token, position, state)
        last = self._decoder()[-1].cross_attention
        weights = last.weights(query, state[f"cross_key.{len(self.decoder_layers) - 1}"], state[SOURCE_MASK])
        # (N, K, S) -> (R, S)
        return logits, new_state, weights.flatten(0, 1)

    def state_table(self) -> tuple[StateTensor, ...]:
        """The source mask, the keys and values of cross-attention, and the state of the target layers."""
        heads, widths = self.config.heads, {"key": self.config.key_width, "value": self.config.value_width}
        table = [StateTensor(name=SOURCE_MASK, kind="constant", dtype="int32", axes=(SENTENCES, SOURCE_AXIS))]
        for index, layer in enumerate(self._decoder()):
            for part, width in widths.items():
                axes = (SENTENCES, heads, SOURCE_AXIS, width)
                table.append(StateTensor(name=f"cross_{part}.{index}", kind="constant", dtype="float32", axes=axes))
            table += layer.target_layer.state_table()
        return tuple(table)

    def _step(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State, Tensor]:
        """Return logits, the new state, and the last layer's projected queries ``(N, K, H * E)``."""
        x = self.target_embedding.at(token, position)[:, None]
        new_state: State = {}
        query = x
        for index, layer in enumerate(self._decoder()):
            cross = state[f"cross_key.{index}"], state[f"cross_value.{index}"]
            x, of_layer, query = layer.step(x, state, *cross, state[SOURCE_MASK])
            new_state |= of_layer
        # (R, 1, D) -> (R, D)
        return self.projection(self._output(x).flatten(0, 1)), new_state, query

    def _output(self, x: Tensor) -> Tensor:
        """Input of the output projection, computed from the last layer's output ``(…, D)``."""
        normed: Tensor = self.decoder_norm(x)
        return normed if self.config.output_scale == 1 else normed * self.config.output_scale

    def _encode(self, source: Tensor, source_length: Tensor) -> tuple[Tensor, Tensor]:
        """Return the memory ``(N, S, D)`` and the mask ``(N, S)``."""
        padding = length_mask(source_length, source.shape[1])
        x = self.source_embedding(source)
        for layer in self.encoder_layers:
            x = layer(x, padding)
        return self.encoder_norm(x), padding

    def _decoder(self) -> list[DecoderLayer]:
        return [layer for layer in self.decoder_layers if isinstance(layer, DecoderLayer)]
