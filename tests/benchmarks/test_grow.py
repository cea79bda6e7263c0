"""A grown model: the sizes of a preset, the function of the small one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from edgeformer.families import model_config
from edgeformer.model.transformer.config import TransformerConfig
from edgeformer.train.run import Run
from edgeformer_bench.studies import grow
from edgeformer_runtime.bundle.manifest import SpecialTokens
from tests import factory

LARGE = TransformerConfig(d_model=128, d_ff=128, heads=8, encoder_layers=2, decoder_layers=2)


@pytest.fixture(autouse=True)
def _small_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(grow.PRESETS, "base", lambda: LARGE)


def invoke(*arguments: str | int | Path) -> Any:
    return CliRunner().invoke(grow.main, [str(argument) for argument in arguments])


@pytest.mark.parametrize("changes", [{}, {"norm": "pre"}, {"scale_embeddings": False, "positions": "learned"}], ids=str)
def test_grown_model_computes_the_same(tmp_path: Path, changes: dict[str, Any]) -> None:
    small = factory.small_run(tmp_path / "small", model=changes)
    vocab_size = small.source_tokenizer.vocab_size
    result = invoke(small.path, "--preset", "base", "--vocab-size", vocab_size + 50, "--out", tmp_path / "large")
    assert result.exit_code == 0, result.output
    large = Run.open(tmp_path / "large")
    config = model_config(large.recipe.model)
    assert large.source_tokenizer.vocab_size == vocab_size + 50
    for name in ("d_model", "d_ff", "heads", "encoder_layers", "decoder_layers"):
        assert getattr(config, name) == getattr(LARGE, name)

    generator = torch.Generator().manual_seed(1)
    source, target = (torch.randint(4, vocab_size, (5, length), generator=generator) for length in (9, 7))
    length = torch.tensor([9, 3, 1, 8, 9])
    with torch.no_grad():
        expected = small.load_model()(source, length, target)
        logits = large.load_model()(source, length, target)
    assert (logits[..., :vocab_size] - expected).abs().max() < 1e-4
    assert (logits[..., vocab_size:] == logits[..., [SpecialTokens().bos]]).all()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"decoder_layers": 1}, "2 `decoder_layers`, but the run's model has 1"),
        ({"d_model": 40}, "`d_model` would grow from 40 to 128"),
        ({"tied_embeddings": "decoder"}, "tied_embeddings"),
    ],
    ids=str,
)
def test_what_cannot_grow_is_refused(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    small = factory.small_run(tmp_path / "small", model=changes)
    result = invoke(small.path, "--preset", "base", "--out", tmp_path / "large")
    assert result.exit_code == 1
    assert reason in result.output
    assert not (tmp_path / "large").exists()


def test_only_a_transformer_can_grow(tmp_path: Path) -> None:
    small = factory.small_run(tmp_path / "small", "ssru")
    result = invoke(small.path, "--preset", "base", "--out", tmp_path / "large")
    assert result.exit_code == 1
    assert "transformer" in result.output
