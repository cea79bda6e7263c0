"""LSTM encoder-decoder with attention over all encoder outputs at every step."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from edgeformer.model.base import State
from edgeformer.model.lstm.config import LSTMAttentionConfig
from edgeformer.model.lstm.model import LSTMModel
from edgeformer.model.masks import length_mask
from edgeformer_runtime.contract import SENTENCES, SOURCE_AXIS, StateTensor

SOURCE_BIAS, KEY, VALUE = "source_bias", "attention_key", "attention_value"


class OutputAttention(nn.Module):
    """Single-head attention over the encoder's outputs; keys are projected once per sentence, if at all."""

    def __init__(self, config: LSTMAttentionConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.additive = config.attention == "mlp"
        self.scale = 1 / math.sqrt(width)
        self.key = None if config.attention == "scaled_dot" else nn.Linear(config.output_width, width, bias=False)
        if self.additive:
            self.query = nn.Linear(width, width, bias=False)
            self.score = nn.Linear(width, 1, bias=False)
        self.dropout = nn.Dropout(config.attention_dropout)

    def memory(self, outputs: Tensor, length: Tensor) -> State:
        """Compute what :meth:`forward` reads at each step; keys are stored only if they differ from the values.

        Args:
            outputs: encoder outputs, ``(N, S, C)``.
            length: lengths without padding, ``(N,)``, int64.
        """
        padding = 1 - length_mask(length, outputs.shape[1]).to(torch.float32)
        keys = {} if self.key is None else {KEY: self.key(outputs)}
        return {SOURCE_BIAS: padding * torch.finfo(torch.float32).min, **keys, VALUE: outputs}

    def forward(self, query: Tensor, memory: State) -> tuple[Tensor, Tensor]:
        """Attend from the K rows of each sentence.

        Args:
            query: hidden states, ``(R, U)``.
            memory: ``source_bias`` ``(N, S)``, which is 0 for tokens and the lowest finite number for padding, keys
                ``(N, S, U)`` and values ``(N, S, C)``.

        Returns:
            Contexts ``(R, C)`` and weights ``(R, S)``.
        """
        bias, value = memory[SOURCE_BIAS], memory[VALUE]
        key = value if self.key is None else memory[KEY]
        if self.additive:
            projected = self.query(query).reshape(key.shape[0], -1, 1, key.shape[2])
            # (N, K, 1, U) + (N, 1, S, U) -> (N, K, S)
            scores = self.score(torch.tanh(projected + key[:, None])).squeeze(-1)
        else:
            # (R, U) -> (N, K, U); scores (N, K, S)
            scores = torch.matmul(query.reshape(key.shape[0], -1, query.shape[1]) * self.scale, key.transpose(1, 2))
        weights = (scores.float() + bias[:, None]).softmax(-1)
        context = torch.matmul(self.dropout(weights).to(value.dtype), value)
        return context.flatten(0, 1), weights.flatten(0, 1)


class LSTMAttentionModel(LSTMModel):
    """The last layer's previous hidden state is the query; the context is concatenated to the token's embedding.

    Args:
        config: sizes and variations.
        source_vocab_size: entries of the source vocabulary.
        target_vocab_size: entries of the target vocabulary.

    Raises:
        ValueError: the vocabularies cannot share a table as configured.
    """

    has_attention = True

    def __init__(self, config: LSTMAttentionConfig, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__(config, source_vocab_size, target_vocab_size, context_width=config.output_width)
        self.attention = OutputAttention(config)

    def features(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        """Compute what :meth:`forward` projects to logits, ``(N, T, U)``."""
        state = self.encode(source, source_length)
        cells = self.decoder_cells()
        layers = range(len(cells))
        hidden = [state[f"hidden.{index}"] for index in layers]
        memory = [state[f"cell.{index}"].float() for index in layers]
        outputs = []
        for projected in cells[0].project(self.dropout(self.embed_target(target))).unbind(1):
            context, _ = self.attention(hidden[-1], state)
            rest = torch.cat((self.dropout(context), hidden[0].to(context.dtype)), dim=1)
            hidden[0], memory[0] = cells[0].finish(projected, rest, memory[0])
            for index in layers[1:]:
                below = self.dropout(hidden[index - 1])
                hidden[index], memory[index] = cells[index](below, hidden[index], memory[index])
            outputs.append(hidden[-1])
        features: Tensor = self.dropout(torch.stack(outputs, 1))
        return features

    def encode(self, source: Tensor, source_length: Tensor) -> State:
        """Return initial states, and keys and values of every source position; see :meth:`EncoderDecoder.encode`."""
        outputs, state = self.encode_layers(source, source_length)
        # (S, N, C) -> (N, S, C)
        return state | self.attention.memory(outputs.transpose(0, 1), source_length)

    def step(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State]:
        """Compute logits ``(R, V)`` of the next token; see :meth:`EncoderDecoder.step`."""
        logits, new_state, _ = self.step_with_attention(token, position, state)
        return logits, new_state

    def step_with_attention(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State, Tensor]:
        """See :meth:`EncoderDecoder.step_with_attention`."""
        del position
        query = state[f"hidden.{self.config.num_layers - 1}"]
        context, weights = self.attention(query, state)
        x, new_state = self.step_layers(torch.cat((self.embed_target(token), context), dim=1), state)
        return self.projection(x), new_state, weights

    def state_table(self) -> tuple[StateTensor, ...]:
        """The constants that attention reads, and the hidden and cell state of each decoder layer."""
        widths: dict[str, tuple[int, ...]] = {SOURCE_BIAS: ()}
        if self.attention.key is not None:
            widths[KEY] = (self.config.hidden_size,)
        widths[VALUE] = (self.config.output_width,)
        constants = tuple(
            StateTensor(name=name, kind="constant", dtype="float32", axes=(SENTENCES, SOURCE_AXIS, *width))
            for name, width in widths.items()
        )
        return constants + super().state_table()
