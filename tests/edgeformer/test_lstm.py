"""The LSTM families against plain references: torch's own cells, and formulas written out."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgeformer.errors import ConfigError
from edgeformer.families import model_config
from edgeformer.model.lstm.attention_model import KEY, SOURCE_BIAS, VALUE, LSTMAttentionModel, OutputAttention
from edgeformer.model.lstm.config import LSTMAttentionConfig, LSTMConfig
from edgeformer.model.lstm.model import LSTMCell, LSTMLayer, LSTMModel
from tests.factory import randomise

VOCAB = 50
SIZES = {"d_model": 12, "hidden_size": 8}


def plain(**changes: Any) -> LSTMModel:
    torch.manual_seed(0)
    return randomise(LSTMModel(msgspec.convert({**SIZES, **changes}, LSTMConfig), VOCAB, VOCAB), 0)


def with_attention(**changes: Any) -> LSTMAttentionModel:
    torch.manual_seed(0)
    config = msgspec.convert({**SIZES, **changes}, LSTMAttentionConfig)
    return randomise(LSTMAttentionModel(config, VOCAB, VOCAB), 0)


def test_cell_is_torchs_cell_with_its_gates_in_another_order() -> None:
    torch.manual_seed(0)
    cell, reference = LSTMCell(5, 4), nn.LSTMCell(5, 4)
    weight = torch.cat((reference.weight_ih, reference.weight_hh), dim=1)
    bias = reference.bias_ih + reference.bias_hh
    # torch: input, forget, candidate, output; ours: input, forget, output, candidate
    order = torch.tensor([*range(8), *range(12, 16), *range(8, 12)])
    x, hidden, memory = torch.randn(3, 5), torch.randn(3, 4), torch.randn(3, 4)
    with torch.no_grad():
        cell.gates.weight.copy_(weight[order])
        cell.gates.bias.copy_(bias[order])
        expected = reference(x, (hidden, memory))
        torch.testing.assert_close(cell(x, hidden, memory), expected)
        # What is computed for all positions at once and the rest make the same.
        torch.testing.assert_close(cell.finish(cell.project(x), hidden, memory), expected)
        parts = cell.finish(cell.project(x[:, :2]), torch.cat((x[:, 2:], hidden), dim=1), memory)
        torch.testing.assert_close(parts, expected)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_layer_ends_at_each_rows_true_length(bidirectional: bool) -> None:
    torch.manual_seed(0)
    layer = LSTMLayer(5, 4, bidirectional)
    x, lengths = torch.randn(6, 3, 5), [6, 1, 4]
    with torch.no_grad():
        outputs, hidden, cell = layer(x, torch.tensor(lengths))
        for row, length in enumerate(lengths):
            alone, (last_hidden, last_cell) = layer.lstm(x[:length, row])
            torch.testing.assert_close(outputs[:length, row], alone)
            torch.testing.assert_close(hidden[row], last_hidden.flatten())
            torch.testing.assert_close(cell[row], last_cell.flatten())
            assert not outputs[length:, row].any()


def test_decoder_starts_from_the_state_of_the_encoder_layer_of_the_same_index() -> None:
    model = plain(num_layers=3, dropout=0.5)
    source = torch.tensor([[5, 6, 7, 3], [9, 3, 0, 0]])
    reference = nn.LSTM(12, 8, num_layers=3)
    with torch.no_grad():
        for index, layer in enumerate(model.encoder_layers):
            assert isinstance(layer, LSTMLayer)
            for name, parameter in layer.lstm.named_parameters():
                getattr(reference, name.replace("l0", f"l{index}")).copy_(parameter)
        state = model.encode(source, torch.tensor([4, 2]))
        for row, length in enumerate((4, 2)):
            _, (hidden, cell) = reference(model.source_embedding(source[row, :length]))
            for index in range(3):
                torch.testing.assert_close(state[f"hidden.{index}"][row], hidden[index])
                torch.testing.assert_close(state[f"cell.{index}"][row], cell[index])


def test_bridge_joins_both_directions() -> None:
    model = plain(bidirectional=True, num_layers=1)
    source, length = torch.tensor([[5, 6, 3]]), torch.tensor([3])
    layer = model.encoder_layers[0]
    with torch.no_grad():
        _, hidden, cell = layer(model.source_embedding(source.T), length)
        assert hidden.shape == (1, 16)
        state = model.encode(source, length)
        torch.testing.assert_close(state["hidden.0"], torch.tanh(model.hidden_bridge[0](hidden)))
        torch.testing.assert_close(state["cell.0"], torch.tanh(model.cell_bridge[0](cell)))


@pytest.mark.parametrize("kind", ["mlp", "dot", "scaled_dot"])
def test_attention_follows_its_formula(kind: Any) -> None:
    torch.manual_seed(0)
    bidirectional = kind != "scaled_dot"
    attention = OutputAttention(
        LSTMAttentionConfig(d_model=8, hidden_size=6, attention=kind, bidirectional=bidirectional)
    ).eval()
    outputs = torch.randn(2, 4, 12 if bidirectional else 6)
    query, length = torch.randn(6, 6), [4, 2]  # two sentences with three rows each
    with torch.no_grad():
        context, weights = attention(query, attention.memory(outputs, torch.tensor(length)))
        for row in range(6):
            sentence = row // 3
            true = outputs[sentence, : length[sentence]]
            scores = torch.stack([_score(attention, kind, query[row], output) for output in true])
            expected = torch.softmax(scores, 0)
            torch.testing.assert_close(weights[row, : len(true)], expected)
            assert not weights[row, len(true) :].any()
            torch.testing.assert_close(context[row], expected @ true)


def _score(attention: OutputAttention, kind: str, query: Tensor, output: Tensor) -> Tensor:
    key = output if attention.key is None else attention.key.weight @ output
    if kind == "mlp":
        return attention.score.weight[0] @ torch.tanh(attention.query.weight @ query + key)
    return query @ key / 6**0.5


def test_keys_are_projected_once_and_biases_are_left_out() -> None:
    model = with_attention(bidirectional=True)
    assert [name for name, _ in model.attention.named_parameters()] == ["key.weight", "query.weight", "score.weight"]
    state = model.encode(torch.tensor([[5, 6, 3], [7, 3, 0]]), torch.tensor([3, 2]))
    assert state[KEY].shape == (2, 3, 8)
    assert state[VALUE].shape == (2, 3, 16)
    np.testing.assert_array_equal(state[SOURCE_BIAS] == 0, [[True] * 3, [True, True, False]])
    kinds = {tensor.name: tensor.kind for tensor in model.state_table()}
    assert {name for name, kind in kinds.items() if kind == "constant"} == {KEY, VALUE, SOURCE_BIAS}
    assert {name for name, kind in kinds.items() if kind == "recurrent"} == {"hidden.0", "cell.0", "hidden.1", "cell.1"}


@pytest.mark.parametrize("family", ["lstm", "lstm_attention"])
@pytest.mark.parametrize(("tied", "tables"), [("none", 3), ("decoder", 2), ("all", 1)])
def test_tied_embeddings_are_one_tensor(family: str, tied: str, tables: int) -> None:
    make = plain if family == "lstm" else with_attention
    model = make(tied_embeddings=tied, hidden_size=12)
    weights = (model.source_embedding.weight, model.target_embedding.weight, model.projection.weight)
    assert len({id(weight) for weight in weights}) == tables


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            {"family": "lstm", "tied_embeddings": "all", "d_model": 64},
            "needs `d_model` = `hidden_size`, but they are 64",
        ),
        ({"family": "lstm", "attention": "mlp"}, "attention"),
        ({"family": "lstm_attention", "attention": "cosine"}, "attention"),
        ({"family": "lstm_attention", "num_layers": 0}, "num_layers"),
        (
            {"family": "lstm_attention", "attention": "scaled_dot", "bidirectional": True, "hidden_size": 64},
            "are 128 wide and it is 64",
        ),
        ({"family": "lstm", "preset": "huge"}, "`model.preset` must be one of none"),
    ],
)
def test_wrong_configurations_are_named(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        model_config(section)
