"""CTranslate2 computes what our Transformers compute, whatever their options and the format of their text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.store import Store

pytest.importorskip("torch")
pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'edgeformer[bench]'")

import ctranslate2
import numpy as np
import torch

from edgeformer.importers.read import read_model
from edgeformer.importers.run_folder import write_run
from edgeformer.quality.translators import run_translator
from edgeformer.run.folder import Run
from edgeformer_bench.peers.base import PeerError
from edgeformer_bench.peers.ctranslate2 import CTranslate2Peer, side_names
from edgeformer_bench.peers.ctranslate2_model import convert_run
from edgeformer_bench.peers.own_loop import LoopPeer
from tests import factory
from tests.importers.ctranslate2_models import MODELS
from tests.importers.ctranslate2_oracle import LANGUAGES
from tests.importers.ctranslate2_oracle import sources as random_tokens
from tests.importers.marian_models import MARIAN, expected

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = [source for source, _ in factory.PAIRS[::9]]
LENGTH = 16
CHANGES: dict[str, dict[str, Any]] = {
    "no positions": {"positions": "none"},
    "stored positions": {"positions": "table"},
    "no final norm": {"norm": "pre", "final_norm": False},
    "scales": {"scale_embeddings": 3.0, "output_scale": 0.7, "attention_scale": "d_model"},
    "no biases": {"attention_bias": False, "ffn_bias": False, "norm_epsilon": 0.01},
    "activation of gates": {"ffn_gated": True, "activation": "silu", "decoder_d_ff": 48},
    "one input table": {"tied_embeddings": "inputs", "activation": "gelu_tanh"},
}
"""Settings that differ from those of ``post_norm``."""


def compare(run: Run, folder: Path, texts: list[str], *, length: int | None, beams: tuple[int, ...] = (1,)) -> None:
    """Check that CTranslate2 gives the same tokens, texts and log-probabilities."""
    convert_run(run, folder, "float32")
    theirs = CTranslate2Peer(folder, "float32", threads=1)
    ours = LoopPeer("torch", run_translator(run, run.load_model()))
    sources = run.source_tokenizer.encode_batch(texts, special_tokens=True)
    for beam_size in beams:
        output = ours.translate(sources, beam_size=beam_size, length=length)
        assert len({tuple(ids) for ids in output}) > 1
        assert theirs.translate(sources, beam_size=beam_size, length=length) == output
        if length is None:
            written = ours.translate_texts(texts, beam_size=beam_size)
            assert theirs.translate_texts(texts, beam_size=beam_size) == written
    compare_log_probabilities(run, folder, sources[:8])


@torch.inference_mode()
def compare_log_probabilities(run: Run, folder: Path, sources: list[list[int]]) -> None:
    """Check log-probabilities of random targets, which also differ where the most probable tokens are the same."""
    special, model = run.special, run.load_model()
    names = [side_names(tokenizer) for tokenizer in (run.source_tokenizer, run.target_tokenizer)]
    ordinary = [index for index, name in enumerate(names[1]) if not name.startswith("<")]
    targets = np.random.default_rng(0).choice(ordinary, (len(sources), LENGTH))
    theirs = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1, inter_threads=1)
    expected = theirs.score_batch(
        [[names[0][index] for index in source] for source in sources],
        [[names[1][index] for index in target] for target in targets],
        max_input_length=0,
    )
    for source, target, score in zip(sources, targets, expected, strict=True):
        given = torch.tensor([[special.bos, *target]])
        logits = model(torch.tensor([source]), torch.tensor([len(source)]), given)[0]
        found = logits.log_softmax(-1)[range(LENGTH + 1), [*target, special.eos]]
        np.testing.assert_allclose(found.numpy(), score.log_probs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "variant", ["bart", *(pytest.param(name, marks=pytest.mark.slow) for name in ("t5", "t5_per_layer", "output_bias"))]
)
def test_variants(variant: str, store: Store, tmp_path: Path) -> None:
    compare(store.run(variant), tmp_path / "model", TEXTS, length=LENGTH, beams=(1, 3))


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_options_of_the_configuration(name: str, tmp_path: Path) -> None:
    run = factory.small_run(tmp_path / "run", model=CHANGES[name])
    compare(run, tmp_path / "model", TEXTS, length=LENGTH)


@pytest.mark.slow
def test_two_vocabularies(tmp_path: Path) -> None:
    run = factory.small_run(tmp_path / "run", model={"tied_embeddings": "decoder"}, shared=False)
    assert run.source_tokenizer.vocabulary_sha256 != run.target_tokenizer.vocabulary_sha256
    compare(run, tmp_path / "model", TEXTS, length=LENGTH)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_imported_models(name: str, tmp_path: Path) -> None:
    """With other names and places of special tokens, other tokens around texts, and other starts of the decoder."""
    found = read_model(MODELS[name](tmp_path / "original"), "ctranslate2", **LANGUAGES)
    texts = [" ".join(source) for source in random_tokens(40)]
    run = write_run(found.model, tmp_path / "run", found.origin, text=texts[:1])
    compare(run, tmp_path / "model", texts, length=None)


@pytest.mark.slow
def test_a_model_of_marian(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece", reason="the extra `import` is not installed")
    found = read_model(MARIAN / "self-attention", None, source_language="en", target_language="fr")
    texts = [case.source for case in expected("self-attention")[:100]]
    run = write_run(found.model, tmp_path / "run", found.origin, text=texts[:1])
    compare(run, tmp_path / "model", texts, length=None, beams=(1, 4))


@pytest.mark.parametrize(
    ("variant", "model", "message"),
    [
        ("ssru", {}, "it supports `transformer` only"),
        ("lstm", {}, "no model like LSTM"),
        ("post_norm", {"relative_bias": {"buckets": 8, "max_distance": 20}}, '`positions` = "none"'),
        ("post_norm", {"d_k": 6, "d_v": 6}, "`d_k` and `d_v`"),
        ("post_norm", {"share_head_projection": True}, "`share_head_projection`"),
        ("post_norm", {"encoder_attention_only": True}, "`encoder_attention_only`"),
    ],
)
def test_what_ctranslate2_lacks_is_named(variant: str, model: dict[str, Any], message: str, tmp_path: Path) -> None:
    run = factory.small_run(tmp_path / "run", variant, model=model)
    with pytest.raises(PeerError, match=message):
        convert_run(run, tmp_path / "model", "float32")
    assert not (tmp_path / "model").exists()


def test_lengths_without_the_end_token_are_refused(tmp_path: Path) -> None:
    run = factory.small_run(tmp_path / "run")
    run.update(generation={"length_includes_end": False})
    with pytest.raises(PeerError, match="`length_includes_end`"):
        convert_run(Run.open(run.path), tmp_path / "model", "float32")
