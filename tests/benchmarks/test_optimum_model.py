"""The Hugging Face models that Optimum exports compute what ours compute, or name what they lack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers", reason="transformers is not installed")

import torch

from edgeformer.model.build import build_model
from edgeformer.quality.translators import run_translator
from edgeformer_bench.peers.base import PeerError
from edgeformer_bench.peers.converted import ConvertedModel, save_rules
from edgeformer_bench.peers.optimum import OptimumPeer, marian
from edgeformer_bench.peers.own_loop import LoopPeer
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


def test_calls_of_it_give_our_tokens(tmp_path: Path) -> None:
    """With the model before it is exported, which has the same interface."""
    run = factory.small_run(tmp_path / "run", model={"norm_epsilon": 1e-5})
    model = run.load_model()
    save_rules(run, model.max_target_length, tmp_path)
    peer, ours = OptimumPeer.__new__(OptimumPeer), LoopPeer("torch", run_translator(run, model))
    peer._model, peer._converted = marian(model, run.special), ConvertedModel(tmp_path)
    texts = [source for source, _ in factory.PAIRS[:40:5]]
    sources = run.source_tokenizer.encode_batch(texts, special_tokens=True)
    for length, beam_size in ((7, 1), (7, 3), (None, 1)):
        found = peer.translate(sources, beam_size=beam_size, length=length)
        assert found == ours.translate(sources, beam_size=beam_size, length=length)
    assert len({*map(tuple, found)}) > 1


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
