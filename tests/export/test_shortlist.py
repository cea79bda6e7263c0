"""Shortlists of bundles: searches on the kernels use listed tokens only, and how lists are made."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgeformer.importers.model import Shortlist as ImportedShortlist
from edgeformer.importers.run_folder import SHORTLIST_FILE
from edgeformer.run.folder import Run
from edgeformer_export.model_graphs import ModelGraphs
from edgeformer_export.shortlist.lists import ShortlistReport, align, learned, make_shortlist, never_generated
from edgeformer_export.writer import ExportError
from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.translator import Translator
from tests.bundles import copy_of, rehash
from tests.commands import run as command
from tests.commands import succeeded
from tests.factory import PAIRS
from tests.shortlists import bundle_of, lists_of
from tests.store import RunSettings, Store


@pytest.fixture(scope="module")
def with_lists(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Bundles with lists of 20 tokens and those of each source token, each made once. Do not modify them."""
    pytest.importorskip("edgeformer_kernels", reason="the kernels are not built")

    @cache
    def make(variant: str = "post_norm") -> Path:
        folder = tmp_path_factory.mktemp("with_lists") / "bundle"
        return bundle_of(store, lists_of(store.run(variant), always=20), folder, variant=variant)

    return make


def test_onnxruntime_uses_the_whole_vocabulary(with_lists: Callable[..., Path]) -> None:
    texts = [source for source, _ in PAIRS[::6]]
    with Translator.open(with_lists(), threads=1, engine="onnxruntime") as graphs:
        expected = graphs.translate(texts)
    with Translator.open(with_lists(), shortlist=False) as whole, Translator.open(with_lists()) as restricted:
        assert [each.best.ids for each in whole.translate(texts)] == [each.best.ids for each in expected]
        assert [each.best.ids for each in restricted.translate(texts)] != [each.best.ids for each in expected]
    assert "on the kernels; elsewhere, the whole vocabulary" in succeeded("inspect", with_lists()).stdout


@pytest.mark.parametrize("options", [("--precision", "fp32"), ("--precision", "int8", "--target", "portable")])
def test_a_bundle_that_the_kernels_do_not_run_gets_no_shortlist(
    store: Store, tmp_path: Path, options: tuple[str, ...]
) -> None:
    (tmp_path / "text").write_text("A dog.\tUn chien.\n" * 12, encoding="utf-8")
    result = command("export", store.run().path, "--out", tmp_path / "out", "--shortlist", tmp_path / "text", *options)
    assert result.exit_code == 1
    assert "A shortlist restricts searches on the kernels only" in result.stderr
    assert not (tmp_path / "out").exists()


def test_alignment_finds_what_words_become() -> None:
    """Sentences of three random words, each of which has one translation, in random order."""
    random = np.random.default_rng(0)
    translation = random.permutation(40)
    pairs = []
    for _ in range(400):
        source = random.choice(40, 3, replace=False)
        pairs.append((source.tolist(), random.permutation(translation[source]).tolist()))
    sources, targets, counts = align(pairs, 40, 40)
    best = {token: targets[sources == token][counts[sources == token].argmax()] for token in range(40)}
    assert best == dict(enumerate(translation))
    assert counts.sum() <= sum(len(target) for _, target in pairs)  # the empty word explains some


def test_learned_lists_are_sorted_limited_and_without_forbidden_tokens() -> None:
    random = np.random.default_rng(0)
    pairs = [(random.integers(4, 50, 8).tolist(), random.integers(0, 60, 8).tolist()) for _ in range(200)]
    special = SpecialTokens(suppress=(0, 2), forbid=(1,))
    shortlist = learned(pairs, 50, 60, special, always=10, best=7)
    assert shortlist.frequent[0] == special.eos
    assert not {0, 1, 2} & {*shortlist.frequent[: shortlist.always].tolist(), *shortlist.tokens.tolist()}
    assert sorted(shortlist.frequent.tolist()) == list(range(60))
    counts = np.bincount([token for _, target in pairs for token in target], minlength=60)
    assert (np.diff(counts[shortlist.frequent[1:-3]]) <= 0).all()
    sizes = np.diff(shortlist.ends, prepend=0)
    assert sizes[:4].tolist() == [0] * 4
    assert sizes.max() == 7


@pytest.mark.slow
def test_export_command(store: Store, taught: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = store.run(**taught)
    monkeypatch.setattr(ModelGraphs, "traced", store.traced(**taught))
    for name, column in (("text.a", 0), ("text.b", 1)):
        lines = [pair[column] for pair in PAIRS] * 3
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    given = [part for name in ("text.a", "text.b") for part in ("--shortlist", str(tmp_path / name))]
    out = tmp_path / "bundle"
    succeeded("export", str(run.path), "--out", str(out), "--precision", "int8", "--force", *given, "--json")
    report = msgspec.convert(open_bundle(out).manifest.report.shortlist, ShortlistReport)
    assert report.origin == "text.a and text.b"
    assert 0 < report.kept <= 1
    assert report.bleu is not None
    assert "shortlist" in (out / contract.CARD_FILE).read_text(encoding="utf-8").lower()
    succeeded("verify", str(out), "--json")
    cases = json.loads((out / contract.GOLDEN_FILE).read_bytes())
    assert cases["listed"]
    text = PAIRS[0][0]
    for setting in ("on", "off"):
        succeeded("translate", str(out), text, "--shortlist", setting)


def test_damaged_lists_are_refused_when_the_bundle_is_opened(with_lists: Callable[..., Path], tmp_path: Path) -> None:
    damaged = copy_of(with_lists(), tmp_path)
    path = damaged / contract.SHORTLIST_FILE
    path.write_bytes(path.read_bytes()[:-2])
    rehash(damaged)
    with pytest.raises(BundleError, match="shortlist is damaged"):
        Translator.open(damaged)
    Translator.open(damaged, shortlist=False).translate([PAIRS[0][0]])


def test_imported_lists_become_those_of_the_bundle(store: Store, taught: RunSettings, tmp_path: Path) -> None:
    run = store.run(**taught)
    with pytest.raises(ExportError, match="no imported shortlist"):
        make_shortlist(run, ["imported"], None)
    copied = tmp_path / "run"
    copied.mkdir()
    for path in run.path.iterdir():
        if path.is_file():
            (copied / path.name).write_bytes(path.read_bytes())
    sources = run.source_tokenizer.vocab_size
    lists = [[5, 6, 7], [], [9], *[[8]] * (sources - 3)]
    offsets = np.cumsum([0, *map(len, lists)])
    tokens = np.array([token for tokens in lists for token in tokens], np.int32)
    ImportedShortlist(5, offsets, tokens).save(copied / SHORTLIST_FILE)
    shortlist = make_shortlist(Run.open(copied), ["imported"], None).shortlist
    special = run.special
    always = {*range(5), special.eos} - {*never_generated(special)}
    assert set(np.flatnonzero(shortlist.usable([0])).tolist()) == always | {5, 6, 7}
    assert set(np.flatnonzero(shortlist.usable([1])).tolist()) == always
    assert set(np.flatnonzero(shortlist.usable([0, 2])).tolist()) == always | {5, 6, 7, 9}
    assert set(np.flatnonzero(shortlist.usable([sources - 1])).tolist()) == always | {8}
