"""The Transformer: tying, positions, presets, configuration."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgeformer.errors import ConfigError
from edgeformer.families import model_config
from edgeformer.model.families import TRANSFORMER
from edgeformer.model.transformer.config import RelativeBiasConfig, TransformerConfig
from edgeformer.model.transformer.layers import EncoderLayer, sinusoids
from edgeformer.model.transformer.model import Transformer
from edgeformer.model.transformer.relative_bias import RelativeBias, bucket
from edgeformer.model.transformer.self_attention import CausalSelfAttention
from tests.factory import randomise
from tests.variants import SMALL

VOCAB = 50


def transformer_config(**changes: Any) -> TransformerConfig:
    return msgspec.convert({**SMALL, **changes}, TransformerConfig)


def build(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    return randomise(Transformer(transformer_config(**changes), VOCAB, VOCAB, CausalSelfAttention), 0)


def first_layer(model: Transformer) -> EncoderLayer:
    layer = model.encoder_layers[0]
    assert isinstance(layer, EncoderLayer)
    return layer


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_row_of_padding_stays_finite_in_every_precision(dtype: torch.dtype) -> None:
    model = build(norm="pre").to(dtype)
    with torch.no_grad():
        logits = model(torch.tensor([[5, 6, 3], [0, 0, 0]]), torch.tensor([3, 0]), torch.tensor([[2, 9], [2, 9]]))
    assert logits.isfinite().all()


@pytest.mark.parametrize(("tied", "tables"), [("none", 3), ("decoder", 2), ("all", 1)])
def test_tied_embeddings_are_one_tensor(tied: Any, tables: int) -> None:
    model = Transformer(transformer_config(tied_embeddings=tied), VOCAB, VOCAB, CausalSelfAttention)
    weights = (model.source_embedding.tokens.weight, model.target_embedding.tokens.weight, model.projection.weight)
    assert len({id(weight) for weight in weights}) == tables


def test_sinusoids_follow_the_formula() -> None:
    table = sinusoids(60, 8)
    for position in (0, 1, 59):
        for i in range(4):
            angle = position / 10_000 ** (2 * i / 8)
            assert table[position, 2 * i] == pytest.approx(np.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1] == pytest.approx(np.cos(angle), abs=1e-6)


def test_free_widths_follow_the_document() -> None:
    """Attention of the notebook "Transformer pytorch", with its mask applied: heads of 6 and 10 in a model of 32."""
    model = build(d_k=6, d_v=10, attention_bias=False, attention_output_bias=False)
    attention = first_layer(model).attention
    assert [name for name, _ in attention.named_parameters() if name.endswith("bias")] == []
    x, true = torch.randn(1, 5, 32), 3
    with torch.no_grad():
        query = (x @ attention.query.weight.T).view(1, 5, 4, 6).permute(0, 2, 1, 3)
        key = (x @ attention.key.weight.T).view(1, 5, 4, 6).permute(0, 2, 1, 3)
        value = (x @ attention.value.weight.T).view(1, 5, 4, 10).permute(0, 2, 1, 3)
        scores = query @ key.transpose(2, 3) / 6**0.5
        scores[..., true:] = -torch.inf
        context = (scores.softmax(-1) @ value).permute(0, 2, 1, 3).reshape(1, 5, 40)
        padding = torch.tensor([[1, 1, 1, 0, 0]], dtype=torch.int32)
        found = attention(x, x, padding=padding)
    torch.testing.assert_close(found, context @ attention.output.weight.T)


def test_shared_heads_follow_the_document() -> None:
    """A block of the article "Transformer详解（附代码）": one projection for all heads, scores over the root of the
    model's width, dropout behind the norm."""
    model = build(**{**msgspec.structs.asdict(TRANSFORMER.presets["shared_heads"]()), **SMALL})
    layer = first_layer(model)
    x, padding = torch.randn(2, 5, 32), torch.tensor([[1, 1, 1, 0, 0], [1] * 5], dtype=torch.int32)
    with torch.no_grad():
        heads = x.view(2, 5, 4, 8)
        attention = layer.attention
        query, key, value = (heads @ layer.weight.T for layer in (attention.query, attention.key, attention.value))
        energy = torch.einsum("nqhd,nkhd->nhqk", query, key)
        energy = energy.masked_fill(padding[:, None, None, :] == 0, -torch.inf)
        weights = torch.softmax(energy / 32**0.5, dim=3)
        context = torch.einsum("nhql,nlhd->nqhd", weights, value).reshape(2, 5, 32)
        inner = layer.attention_residual.norm(attention.output(context) + x)
        feed_forward = layer.feed_forward
        expected = layer.feed_forward_residual.norm(feed_forward[3](feed_forward[0](inner).relu()) + inner)
        torch.testing.assert_close(layer(x, padding), expected)


class DocumentAttention(nn.Module):
    """``MultiHeadAttention`` of the notebook "Transformer的pythoch实现"."""

    def __init__(self, heads: int, d_model: int) -> None:
        super().__init__()
        self.d_k, self.h, self.d_model = d_model // heads, heads, d_model
        self.q_linear, self.k_linear, self.v_linear, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (
            linear(x).view(x.size(0), -1, self.h, self.d_k).transpose(1, 2)
            for linear in (self.q_linear, self.k_linear, self.v_linear)
        )
        scores = torch.matmul(q, k.transpose(-2, -1)) / self.d_k**0.5
        scores = scores.masked_fill(mask.unsqueeze(1) == 0, -1e9)
        context = torch.matmul(torch.softmax(scores, dim=-1), v)
        concat = context.transpose(1, 2).contiguous().view(x.size(0), -1, self.d_model)
        attended: Tensor = self.out(concat)
        return attended


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_an_encoder_of_attention_alone_follows_the_document(norm: str) -> None:
    """``x = layers[i](x, mask)``, where a layer is ``attn(x, x, x, mask)``, and nothing after the last layer."""
    model = build(encoder_attention_only=True, encoder_layers=3, norm=norm, max_source_length=80)
    source, length = torch.tensor([[5, 6, 7, 3], [9, 3, 0, 0]]), torch.tensor([4, 2])
    table = torch.zeros(80, 32)
    for pos in range(80):
        for i in range(0, 32, 2):
            table[pos, i] = math.sin(pos / (10000 ** (i / 32)))
            table[pos, i + 1] = math.cos(pos / (10000 ** (i / 32)))
    with torch.no_grad():
        x = model.source_embedding.tokens(source) * math.sqrt(32) + table[:4]
        for layer in model.encoder_layers:
            theirs = DocumentAttention(4, 32)
            names = {"q_linear": "query", "k_linear": "key", "v_linear": "value", "out": "output"}
            theirs.load_state_dict(
                {
                    f"{name}.{part}": layer.get_submodule("attention").get_parameter(f"{ours}.{part}")
                    for name, ours in names.items()
                    for part in ("weight", "bias")
                }
            )
            x = theirs(x, (source != 0).unsqueeze(-2))
        state = model.encode(source, length)
        key, value = model.decoder_layers[0].get_submodule("cross_attention").project_memory(x)  # type: ignore[operator]
    torch.testing.assert_close(state["cross_key.0"], key)
    torch.testing.assert_close(state["cross_value.0"], value)
    inside = {name.split(".")[2] for name, _ in model.encoder_layers.named_parameters(prefix="encoder_layers")}
    assert inside == {"attention"}


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"family": "transformer", "d_model": 30, "heads": 4}, "`d_model` must be a multiple of `heads`"),
        ({"family": "transformer", "d_model": 30, "heads": 4, "d_k": 8}, "`d_model` must be a multiple of `heads`"),
        ({"family": "transformer", "d_model": 15, "heads": 5}, "must be even"),
        ({"family": "transformer", "share_head_projection": True, "d_k": 8}, "share_head_projection"),
        ({"family": "transformer", "norm": "pre", "dropout_after_norm": True}, "dropout_after_norm"),
        ({"family": "transformer", "width": 5}, "width"),
        (
            {"family": "transformer", "relative_bias": {"buckets": 32, "max_distance": 16}},
            "more than half of its 32 buckets",
        ),
        ({"family": "transformer", "relative_bias": {"buckets": 5}}, "multiple of 2"),
        ({"family": "transformer", "scale_embeddings": -1.0}, "`scale_embeddings` must be positive"),
        ({"family": "transformer", "positions": "table", "d_model": 7, "heads": 1}, "must be even"),
        ({"family": "transformer", "norm_epsilon": 0.0}, "norm_epsilon"),
        ({"family": "transformer", "dropout": 1.5}, "dropout"),
        ({"family": "transformer", "preset": "huge"}, "tiny, edge, base"),
        ({"family": "perceptron"}, "transformer"),
        ({}, "transformer"),
    ],
)
def test_wrong_configurations_are_named(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        model_config(section)


def test_distances_have_the_buckets_of_t5() -> None:
    # Raffel et al. use 32 buckets up to 128; half of them are for keys to the right of a query.
    assert bucket(torch.tensor([0, 1, 7, 8, 11, 12, 16, 63, 64, 90, 91, 127, 128, 5000]), 16, 128).tolist() == [
        *(0, 1, 7, 8, 8, 9, 10, 13, 14, 14, 15, 15, 15, 15)
    ]
    config = TransformerConfig(heads=2, d_model=8, relative_bias=RelativeBiasConfig(buckets=4, max_distance=3))
    assert config.relative_bias is not None
    both, causal = (RelativeBias(config.relative_bias, 2, 4, causal=causal) for causal in (False, True))
    with torch.no_grad():
        for bias in (both, causal):
            bias.weight.copy_(torch.arange(8.0).view(4, 2))
    # Rows are queries, columns are keys; head 0 has even numbers.
    assert (both(3)[0, 0] / 2).tolist() == [[0, 3, 3], [1, 0, 3], [1, 1, 0]]
    assert (causal(4)[0, 1] // 2).tril().tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [2, 1, 0, 0], [3, 2, 1, 0]]
    torch.testing.assert_close(causal.of_last()[0, :, 0], causal(4)[0, :, 3])
