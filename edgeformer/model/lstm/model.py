"""LSTM encoder-decoder: encoder layers with a replaceable kernel, decoder cells, and the model."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from edgeformer.model.base import EncoderDecoder, State
from edgeformer.model.lstm.config import LSTMConfig
from edgeformer.model.tables import vocabulary_tables
from edgeformer_runtime.contract import ROWS, StateTensor

LSTMKernel = Callable[[nn.LSTM, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""Runs one layer, time first, over a padded batch ``(S, N, I)`` of true lengths ``(N,)``: reads each row without its
padding, in both directions if the layer is bidirectional. The exporter replaces torch's kernel with the engine's.

It returns outputs ``(S, N, directions * U)``, zero on padding, and the final hidden and cell state of each direction,
``(directions, N, U)`` each."""


def torch_lstm(lstm: nn.LSTM, x: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Torch's own kernel, on a packed sequence."""
    packed = nn.utils.rnn.pack_padded_sequence(x, length.cpu(), enforce_sorted=False)
    outputs, (hidden, cell) = lstm(packed)
    padded, _ = nn.utils.rnn.pad_packed_sequence(outputs, total_length=x.shape[0])
    return padded, hidden, cell


class LSTMLayer(nn.Module):
    """A layer of the encoder (Hochreiter and Schmidhuber 1997), unidirectional or bidirectional."""

    kernel: LSTMKernel = staticmethod(torch_lstm)

    def __init__(self, in_width: int, hidden_size: int, bidirectional: bool) -> None:
        super().__init__()
        self.lstm = nn.LSTM(in_width, hidden_size, bidirectional=bidirectional)
        with torch.no_grad():
            for name, bias in self.lstm.named_parameters():
                if name.startswith("bias"):
                    bias.zero_()
                if name.startswith("bias_ih"):
                    bias[hidden_size : 2 * hidden_size] = 1.0  # forget gates start open

    def forward(self, x: Tensor, length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return outputs ``(S, N, directions * U)`` and final hidden and cell states, ``(N, directions * U)`` each."""
        outputs, hidden, cell = self.kernel(self.lstm, x, length)
        return outputs, torch.cat(hidden.unbind(0), dim=1), torch.cat(cell.unbind(0), dim=1)


class LSTMCell(nn.Module):
    """A layer of the decoder. One product yields all gates, in the order input, forget, output, candidate."""

    def __init__(self, in_width: int, hidden_size: int) -> None:
        super().__init__()
        self.in_width, self.hidden_size = in_width, hidden_size
        self.gates = nn.Linear(in_width + hidden_size, 4 * hidden_size)
        nn.init.zeros_(self.gates.bias)
        with torch.no_grad():
            self.gates.bias[hidden_size : 2 * hidden_size] = 1.0  # forget gates start open

    def forward(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return the hidden and cell state, ``(R, U)`` each, after an input ``(R, I)``."""
        return self._advance(self.gates(torch.cat((x, hidden), dim=1)), cell)

    def project(self, x: Tensor) -> Tensor:
        """Contribution of the first ``x.shape[-1]`` input columns to the gates, ``(…, 4 * U)``."""
        return nn.functional.linear(x, self.gates.weight[:, : x.shape[-1]], self.gates.bias)

    def finish(self, projected: Tensor, rest: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Return the hidden and cell state, given :meth:`project` of a part and the rest of ``cat(x, hidden)``."""
        weight = self.gates.weight[:, self.in_width + self.hidden_size - rest.shape[1] :]
        return self._advance(projected + nn.functional.linear(rest, weight), cell)

    def run(self, x: Tensor, hidden: Tensor, cell: Tensor) -> Tensor:
        """Hidden states ``(N, T, U)`` after each position of an input ``(N, T, I)``, with a cell state in fp32."""
        if x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            # Products in bf16, which takes less time than torch's kernel in fp32.
            outputs, cell = [], cell.float()
            for projected in self.project(x).unbind(1):
                hidden, cell = self.finish(projected, hidden, cell)
                outputs.append(hidden)
            return torch.stack(outputs, 1)
        # Torch's gates are in the order input, forget, candidate, output.
        two, three = 2 * self.hidden_size, 3 * self.hidden_size
        weight, bias = (torch.cat((p[:two], p[three:], p[two:three])) for p in (self.gates.weight, self.gates.bias))
        of_x, of_hidden = weight[:, : self.in_width].contiguous(), weight[:, self.in_width :].contiguous()
        weights = (of_x, of_hidden, bias, torch.zeros_like(bias))
        x, hidden, cell = (tensor.to(weight.dtype) for tensor in (x, hidden[None], cell[None]))
        # Under autocast, a GPU would compute in float16.
        with torch.autocast(x.device.type, enabled=False), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
            return torch.lstm(x, (hidden, cell), weights, True, 1, 0.0, torch.is_grad_enabled(), False, True)[0]

    def _advance(self, gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        switches, candidate = gates.split_with_sizes((3 * self.hidden_size, self.hidden_size), dim=1)
        enter, keep, emit = switches.sigmoid().chunk(3, dim=1)
        cell = keep * cell + enter * candidate.tanh()
        return emit * cell.tanh(), cell


class LSTMModel(EncoderDecoder):
    """Stacked LSTMs; each decoder layer starts from the final state of the encoder layer of the same index.

    Args:
        config: sizes and variations.
        source_vocab_size: entries of the source vocabulary.
        target_vocab_size: entries of the target vocabulary.
        context_width: width of the context that a subclass concatenates to each embedding.

    Raises:
        ValueError: the vocabularies cannot share a table as configured.
    """

    has_features = True

    def __init__(
        self, config: LSTMConfig, source_vocab_size: int, target_vocab_size: int, context_width: int = 0
    ) -> None:
        super().__init__()
        self.config = config
        self.source_vocab_size, self.target_vocab_size = source_vocab_size, target_vocab_size
        self.max_source_length, self.max_target_length = config.max_source_length, config.max_target_length
        width, hidden_size, layers = config.d_model, config.hidden_size, range(config.num_layers)

        if config.tied_embeddings == "none":
            self.source_embedding = nn.Embedding(source_vocab_size, width)
            self.target_embedding = nn.Embedding(target_vocab_size, width)
            self.projection = nn.Linear(hidden_size, target_vocab_size)
            self.embedding_scale = 1.0
        else:
            self.source_embedding, self.target_embedding, self.projection = vocabulary_tables(
                source_vocab_size, target_vocab_size, width, config.tied_embeddings, bias=True
            )
            self.embedding_scale = width**0.5
        self.dropout = nn.Dropout(config.dropout)
        self.encoder_layers = nn.ModuleList(
            LSTMLayer(config.output_width if index else width, hidden_size, config.bidirectional) for index in layers
        )
        if config.bidirectional:
            self.hidden_bridge = nn.ModuleList(nn.Linear(2 * hidden_size, hidden_size) for _ in layers)
            self.cell_bridge = nn.ModuleList(nn.Linear(2 * hidden_size, hidden_size) for _ in layers)
        self.cells = nn.ModuleList(
            LSTMCell(hidden_size if index else width + context_width, hidden_size) for index in layers
        )

    def forward(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        """Compute teacher-forced logits ``(N, T, V)``; see :meth:`EncoderDecoder.forward`."""
        logits: Tensor = self.projection(self.features(source, source_length, target))
        return logits

    def features(self, source: Tensor, source_length: Tensor, target: Tensor) -> Tensor:
        """Compute what :meth:`forward` projects to logits, ``(N, T, U)``."""
        _, state = self.encode_layers(source, source_length)
        x: Tensor = self.dropout(self.embed_target(target))
        for index, cell in enumerate(self.decoder_cells()):
            x = self.dropout(cell.run(x, state[f"hidden.{index}"], state[f"cell.{index}"]))
        return x

    def encode(self, source: Tensor, source_length: Tensor) -> State:
        """Return the initial states of the decoder's layers; see :meth:`EncoderDecoder.encode`."""
        return self.encode_layers(source, source_length)[1]

    def step(self, token: Tensor, position: Tensor, state: State) -> tuple[Tensor, State]:
        """Compute logits ``(R, V)`` of the next token; see :meth:`EncoderDecoder.step`."""
        del position
        x, new_state = self.step_layers(self.embed_target(token), state)
        return self.projection(x), new_state

    def state_table(self) -> tuple[StateTensor, ...]:
        """Hidden and cell state of each decoder layer."""
        return tuple(
            StateTensor(name=f"{part}.{index}", kind="recurrent", dtype="float32", axes=(ROWS, self.config.hidden_size))
            for index in range(self.config.num_layers)
            for part in ("hidden", "cell")
        )

    def decoder_cells(self) -> list[LSTMCell]:
        """The decoder's layers."""
        return [cell for cell in self.cells if isinstance(cell, LSTMCell)]

    def embed_target(self, token: Tensor) -> Tensor:
        """``(…) -> (…, D)``."""
        embedded: Tensor = self.target_embedding(token) * self.embedding_scale
        return embedded

    def encode_layers(self, source: Tensor, source_length: Tensor) -> tuple[Tensor, State]:
        """Return the last encoder layer's outputs ``(S, N, C)``, zero on padding, and the decoder's initial states."""
        x, state = self.source_embedding(source.T) * self.embedding_scale, {}
        length = source_length.cpu()  # waits for a GPU, thus only once
        for index, layer in enumerate(self.encoder_layers):
            x, hidden, cell = layer(self.dropout(x), length)
            if self.config.bidirectional:
                hidden, cell = self.hidden_bridge[index](hidden).tanh(), self.cell_bridge[index](cell).tanh()
            state[f"hidden.{index}"], state[f"cell.{index}"] = hidden, cell
        return x, state

    def step_layers(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Run all cells once on an input ``(R, I)``; return the last hidden state ``(R, U)`` and all new states."""
        new_state = {}
        for index, cell in enumerate(self.cells):
            x, memory = cell(x, state[f"hidden.{index}"], state[f"cell.{index}"])
            new_state[f"hidden.{index}"], new_state[f"cell.{index}"] = x, memory
        return x, new_state
