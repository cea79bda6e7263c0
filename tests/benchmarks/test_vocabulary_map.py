"""A shortlist as CTranslate2's vocabulary map: the same tokens, and so the same output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store import RunSettings, Store

pytest.importorskip("torch")
pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'edgeformer[bench]'")

from edgeformer_bench.peers.ctranslate2 import CTranslate2Peer, write_vocabulary_map
from edgeformer_bench.peers.ctranslate2_model import convert_run
from edgeformer_bench.peers.own_loop import LoopPeer
from edgeformer_runtime.translator import Translator
from tests.factory import PAIRS
from tests.shortlists import bundle_of, lists_of


def test_translations_with_a_vocabulary_map_are_those_with_the_shortlist(
    store: Store, taught: RunSettings, tmp_path: Path
) -> None:
    run = store.run(**taught)
    shortlist = lists_of(run, always=12, per_token=5)
    bundle = bundle_of(store, shortlist, tmp_path / "bundle", **taught)
    convert_run(run, tmp_path / "model", "float32")
    write_vocabulary_map(shortlist, tmp_path / "model")
    ours = LoopPeer("onnxruntime", Translator.open(bundle, threads=1))
    whole = LoopPeer("onnxruntime", Translator.open(bundle, threads=1, shortlist=False))
    theirs = CTranslate2Peer(tmp_path / "model", "float32", threads=1, use_vmap=True)
    sources = run.source_tokenizer.encode_batch([source for source, _ in PAIRS[::5]], special_tokens=True)
    for beam_size in (1, 4):
        for source in sources:  # CTranslate2 gives all sentences of a batch the same tokens
            expected = ours.translate([source], beam_size=beam_size, length=None)
            assert theirs.translate([source], beam_size=beam_size, length=None) == expected
    assert ours.translate(sources, beam_size=1, length=None) != whole.translate(sources, beam_size=1, length=None)
