"""A shortlist as CTranslate2's vocabulary map: the same tokens, and so the same output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store import RunSettings, Store

pytest.importorskip("torch")
pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'edgeformer[bench]'")

from edgeformer_bench.peers.ctranslate2 import CTranslate2Peer, write_vocabulary_map
from edgeformer_bench.peers.ctranslate2_model import convert_run
from tests.factory import PAIRS
from tests.shortlists import lists_of


def test_the_map_has_the_lists_and_the_tokens_of_every_sentence(
    store: Store, taught: RunSettings, tmp_path: Path
) -> None:
    run = store.run(**taught)
    shortlist = lists_of(run, always=12, per_token=5)
    convert_run(run, tmp_path / "model", "float32")
    write_vocabulary_map(shortlist, tmp_path / "model")
    lines = (tmp_path / "model" / "vmap.txt").read_text(encoding="utf-8").splitlines()
    every, *lists = [line.split("\t") for line in lines]
    assert every[0] == ""
    assert len(every[1].split(" ")) == 12
    assert len(lists) == run.source_tokenizer.vocab_size
    assert all(len(tokens.split(" ")) == 5 for _, tokens in lists)
    theirs = CTranslate2Peer(tmp_path / "model", "float32", threads=1, use_vmap=True)
    sources = run.source_tokenizer.encode_batch([source for source, _ in PAIRS[::9]], special_tokens=True)
    for source in sources:  # CTranslate2 gives all sentences of a batch the same tokens
        (found,) = theirs.translate([source], beam_size=4, length=None)
        assert shortlist.usable(source)[list(found)].all()
