"""The Hugging Face models that Optimum exports compute what ours compute, or name what they lack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers", reason="transformers is not installed")

import torch

from edgeformer.model.build import build_model
from edgeformer_bench.peers.base import PeerError
from edgeformer_bench.peers.optimum import marian
from edgeformer_runtime.bundle.manifest import SpecialTokens
from tests import factory


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"activation": "gelu_sigmoid", "tied_embeddings": "none", "output_bias": True},
        {"activation": "gelu_tanh", "decoder_d_ff": 48, "ffn_bias": False, "attention_bias": False},
        {"positions": "table", "scale_embeddings": False, "tied_embeddings": "decoder"},
    ],
    ids=str,
)
@torch.inference_mode()
def test_logits(model: dict[str, Any], tmp_path: Path) -> None:
    run = factory.small_run(tmp_path / "run", model=model)
    ours, special = run.load_model(), run.special
    theirs = marian(ours, special)
    source, target = torch.tensor([[9, 40, 7, special.eos]]), torch.tensor([[special.bos, 5, 99, 12]])
    expected = ours(source, torch.tensor([4]), target)
    torch.testing.assert_close(theirs(source, decoder_input_ids=target).logits, expected, atol=1e-4, rtol=1e-4)
    assert theirs.generation_config.suppress_tokens == [special.pad, special.bos]


@pytest.mark.parametrize(
    ("model", "option"),
    [
        ({"norm": "pre"}, "norm"),
        ({"positions": "none"}, "positions"),
        ({"relative_bias": {"buckets": 8, "max_distance": 20}}, "relative_bias"),
        ({"scale_embeddings": 2.0}, "scale_embeddings"),
        ({"tied_embeddings": "inputs"}, "tied_embeddings"),
        ({"d_k": 6, "d_v": 6}, "d_k"),
        ({"encoder_attention_only": True}, "encoder_attention_only"),
    ],
    ids=str,
)
def test_options_that_it_lacks_are_named(model: dict[str, Any], option: str) -> None:
    built = build_model(factory.small_recipe(model=model), 50, 50)
    with pytest.raises(PeerError, match=f"`{option}`"):
        marian(built, SpecialTokens())
