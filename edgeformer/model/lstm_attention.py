"""LSTM encoder-decoder with attention over all encoder outputs at each step."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from edgeformer.model.base import State
from edgeformer.model.lstm import LSTMModel
from edgeformer.model.lstm_config import LSTMAttentionConfig
from edgeformer.model.masks import length_mask
from edgeformer_runtime.contract import SENTENCES, SOURCE_AXIS, StateTensor

SOURCE_BIAS, KEY, VALUE = "source_bias", "attention_key", "attention_value"


class OutputAttention(nn.Module):
    """Attention with one head over the encoder's outputs, whose keys are projected once per sentence."""

    def __init__(self, config: LSTMAttentionConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.dot = config.attention == "dot"
        self.scale = 1 / math.sqrt(width)
        self.key = nn.Linear(config.output_width, width, bias=False)
        if not self.dot:
            self.query = nn.Linear(width, width, bias=False)
            self.score = nn.Linear(width, 1, bias=False)
        self.dropout = nn.Dropout(config.attention_dropout)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Attend with the K rows of each sentence.

        Args:
            query: hidden states, ``(R, H)``.
            key: projected encoder outputs, ``(N, S, H)``.
            value: encoder outputs, ``(N, S, C)``.
            bias: ``(N, S)``: 0 for a true position, and the smallest finite number for padding.

        Returns:
            Contexts ``(R, C)``, and weights ``(R, S)``.
        """
        if self.dot:
            # (R, H) -> (N, K, H); scores (N, K, S)
            scores = torch.matmul(query.reshape(key.shape[0], -1, query.shape[1]) * self.scale, key.transpose(1, 2))
        else:
            projected = self.query(query).reshape(key.shape[0], -1, 1, key.shape[2])
            # (N, K, 1, H) + (N, 1, S, H) -> (N, K, S)
            scores = self.score(torch.tanh(projected + key[:, None])).squeeze(-1)
        weights = (scores.float() + bias[:, None]).softmax(-1)
        context = torch.matmul(self.dropout(weights).to(value.dtype), value)
        return context.flatten(0, 1), weights.flatten(0, 1)


class LSTMAttentionModel(LSTMModel):
    """The last layer's hidden state before a token is the query; the context stands beside the token's embedding.

    Args:
        config: sizes and variations.
        source_vocab_size: entries of the source vocabulary.
        target_vocab_size: entries of the target vocabulary.

    Raises:
        ValueError: the vocabularies cannot share one table as the configuration wants.
    """

    has_attention = True

    def __init__(self, config: LSTMAttentionConfig, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__(config, source_vocab_size, target_vocab_size, context_width=config.output_width)
        self.attention = OutputAttention(config)

    def forward(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        """Teacher-forced logits ``(N, T, V)``; see :meth:`EncoderDecoder.forward`."""
        state = self.encode(source, source_length)
        cells = self.decoder_cells()
        layers = range(len(cells))
        hidden = [state[f"hidden.{index}"] for index in layers]
        memory = [state[f"cell.{index}"].float() for index in layers]
        outputs = []
        for projected in cells[0].project(self.dropout(self.embed_target(target))).unbind(1):
            context, _ = self.attention(hidden[-1], state[KEY], state[VALUE], state[SOURCE_BIAS])
            rest = torch.cat((self.dropout(context), hidden[0].to(context.dtype)), dim=1)
            hidden[0], memory[0] = cells[0].finish(projected, rest, memory[0])
            for index in layers[1:]:
                below = self.dropout(hidden[index - 1])
                hidden[index], memory[index] = cells[index](below, hidden[index], memory[index])
            outputs.append(hidden[-1])
        logits: Tensor = self.projection(self.dropout(torch.stack(outputs, 1)))
        return logits

    def encode(self, source: Tensor, source_length: Tensor) -> State:
        """First states, and keys and values of every source position; see :meth:`EncoderDecoder.encode`."""
        outputs, state = self.encode_layers(source, source_length)
        outputs = outputs.transpose(0, 1)  # (S, N, C) -> (N, S, C)
        padding = 1 - length_mask(source_length, source.shape[1]).to(torch.float32)
        state[SOURCE_BIAS] = padding * torch.finfo(torch.float32).min
        state[KEY], state[VALUE] = self.attention.key(outputs), outputs
        return state

    def step(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State]:
        """Logits ``(R, V)`` of the next token; see :meth:`EncoderDecoder.step`."""
        logits, new_state, _ = self.step_with_attention(token, position, state)
        return logits, new_state

    def step_with_attention(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State, Tensor]:
        """See :meth:`EncoderDecoder.step_with_attention`."""
        del position
        query = state[f"hidden.{self.config.num_layers - 1}"]
        context, weights = self.attention(query, state[KEY], state[VALUE], state[SOURCE_BIAS])
        x, new_state = self.step_layers(torch.cat((self.embed_target(token), context), dim=1), state)
        return self.projection(x), new_state, weights

    def state_table(self) -> tuple[StateTensor, ...]:
        """What attention reads, and hidden and cell state of each decoder layer."""
        widths: dict[str, tuple[int, ...]] = {
            SOURCE_BIAS: (),
            KEY: (self.config.hidden_size,),
            VALUE: (self.config.output_width,),
        }
        constants = tuple(
            StateTensor(name=name, kind="constant", dtype="float32", axes=(SENTENCES, SOURCE_AXIS, *width))
            for name, width in widths.items()
        )
        return constants + super().state_table()
