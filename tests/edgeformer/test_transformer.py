"""The Transformer: forward against step, masks, variants, configuration."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from edgeformer.errors import ConfigError
from edgeformer.families import family_names, get_family, model_config
from edgeformer.model.base import EncoderDecoder
from edgeformer.model.config import TransformerConfig, base, edge, tiny
from edgeformer.model.session import TorchSession
from edgeformer.model.transformer import Transformer, sinusoids
from edgeformer_export.parity import compare_logits
from tests.factory import SMALL, VARIANTS, randomise

VOCAB = 50

# Largest difference between two ways to compute the same logits in fp32, which are of order 1 … 10.
TOLERANCE = 2e-5


def transformer_config(**changes: Any) -> TransformerConfig:
    return msgspec.convert({**SMALL, **changes}, TransformerConfig)


def build(variant: str, seed: int = 0) -> EncoderDecoder:
    torch.manual_seed(seed)
    config = transformer_config(**VARIANTS[variant])
    return randomise(Transformer(config, VOCAB, VOCAB), seed)


def random_pairs(count: int, longest: int, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    random = np.random.default_rng(seed)

    def ids() -> list[int]:
        return [int(token) for token in random.integers(4, VOCAB, random.integers(0, longest + 1))]

    return [([*ids(), 3], ids()) for _ in range(count)]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("batch", "longest"), [(1, 0), (1, 20), (7, 12)])
def test_step_by_step_logits_equal_teacher_forced_logits(variant: str, batch: int, longest: int) -> None:
    model = build(variant)
    parity = compare_logits(model, TorchSession(model), random_pairs(batch, longest))
    assert parity.positions >= batch
    assert parity.max_difference <= TOLERANCE


@pytest.mark.parametrize("variant", VARIANTS)
def test_beams_of_a_sentence_share_its_encoder_state(variant: str) -> None:
    model, session = build(variant), TorchSession(build(variant))
    source, length = np.array([[5, 6, 7, 3], [9, 3, 0, 0]]), np.array([4, 2])
    together = session.start(source, length, 3)
    logits, _ = session.step(np.array([2, 8, 9, 2, 8, 9]), 0, together)
    for row, token in enumerate([2, 8, 9, 2, 8, 9]):
        sentence = row // 3
        alone = TorchSession(model).start(source[[sentence], : length[sentence]], length[[sentence]], 1)
        expected, _ = TorchSession(model).step(np.array([token]), 0, alone)
        np.testing.assert_allclose(logits[row], expected[0], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_is_invisible(variant: str) -> None:
    model = build(variant)
    target = torch.tensor([[2, 9, 8, 7]])
    with torch.no_grad():
        alone = model(torch.tensor([[5, 6, 3]]), torch.tensor([3]), target)
        padded = model(torch.tensor([[5, 6, 3, 11, 12, 13]]), torch.tensor([3]), target)
    torch.testing.assert_close(padded, alone, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_position_does_not_see_those_after_it(variant: str) -> None:
    model = build(variant)
    source, length = torch.tensor([[5, 6, 3]]), torch.tensor([3])
    with torch.no_grad():
        one = model(source, length, torch.tensor([[2, 9, 8, 7]]))
        other = model(source, length, torch.tensor([[2, 9, 30, 31]]))
    torch.testing.assert_close(other[:, :2], one[:, :2], atol=TOLERANCE, rtol=0)
    assert (other[:, 2:] - one[:, 2:]).abs().max() > 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_row_of_padding_stays_finite_in_every_precision(dtype: torch.dtype) -> None:
    model = build("pre_norm").to(dtype)
    with torch.no_grad():
        logits = model(torch.tensor([[5, 6, 3], [0, 0, 0]]), torch.tensor([3, 0]), torch.tensor([[2, 9], [2, 9]]))
    assert logits.isfinite().all()


def test_gradients_reach_every_parameter() -> None:
    for variant in VARIANTS:
        model = build(variant).train()
        logits = model(torch.tensor([[5, 6, 3], [9, 3, 0]]), torch.tensor([3, 2]), torch.tensor([[2, 9, 8], [2, 7, 6]]))
        logits.logsumexp(-1).sum().backward()
        without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
        assert without == [], variant


@pytest.mark.parametrize(("tied", "tables"), [("none", 3), ("decoder", 2), ("all", 1)])
def test_tied_embeddings_are_one_tensor(tied: Any, tables: int) -> None:
    model = Transformer(transformer_config(tied_embeddings=tied), VOCAB, VOCAB)
    weights = (model.source_embedding.tokens.weight, model.target_embedding.tokens.weight, model.projection.weight)
    assert len({id(weight) for weight in weights}) == tables


def test_tying_all_needs_one_vocabulary() -> None:
    with pytest.raises(ValueError, match="40 and 50 entries"):
        Transformer(transformer_config(tied_embeddings="all"), 40, 50)


def test_sinusoids_follow_the_formula() -> None:
    table = sinusoids(60, 8)
    for position in (0, 1, 59):
        for i in range(4):
            angle = position / 10_000 ** (2 * i / 8)
            assert table[position, 2 * i] == pytest.approx(np.sin(angle), abs=1e-6)
            assert table[position, 2 * i + 1] == pytest.approx(np.cos(angle), abs=1e-6)


def test_shared_head_projection_is_small() -> None:
    model = build("shared_heads")
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters() if ".query.weight" in name}
    assert set(shapes.values()) == {(8, 8)}


@pytest.mark.parametrize(
    ("preset", "sizes"),
    [(tiny, (128, 256, 4, 4, 4)), (edge, (256, 1024, 4, 6, 2)), (base, (512, 2048, 8, 6, 6))],
)
def test_presets_have_the_documented_sizes(preset: Any, sizes: tuple[int, ...]) -> None:
    config = preset()
    found = (config.d_model, config.d_ff, config.heads, config.encoder_layers, config.decoder_layers)
    assert found == sizes
    assert get_family("transformer").presets[preset.__name__] is preset


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"family": "transformer", "d_model": 30, "heads": 4}, "`d_model` must be a multiple of `heads`"),
        ({"family": "transformer", "d_model": 30, "heads": 4, "d_k": 8}, "`d_model` must be a multiple of `heads`"),
        ({"family": "transformer", "d_model": 15, "heads": 5}, "must be even"),
        ({"family": "transformer", "share_head_projection": True, "d_k": 8}, "share_head_projection"),
        ({"family": "transformer", "norm": "pre", "dropout_after_norm": True}, "dropout_after_norm"),
        ({"family": "transformer", "width": 5}, "width"),
        ({"family": "transformer", "dropout": 1.5}, "dropout"),
        ({"family": "transformer", "preset": "huge"}, "tiny, edge, base"),
        ({"family": "perceptron"}, "transformer"),
        ({}, "transformer"),
    ],
)
def test_wrong_configurations_are_named(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        model_config(section)


def test_the_transformer_family_is_installed() -> None:
    assert "transformer" in family_names()
