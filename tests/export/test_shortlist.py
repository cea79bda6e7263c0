"""Shortlists of bundles: the step decoder that scores only listed tokens, in all precisions, and how lists are made."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

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
from edgeformer_runtime.bundle.manifest import SpecialTokens, Target
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.decoding.batching import pad
from edgeformer_runtime.decoding.options import DecodeChanges
from edgeformer_runtime.engine import listing
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.precision import Precision
from edgeformer_runtime.translator import Translator
from tests.amounts import combinations
from tests.bundles import copy_of, rehash
from tests.commands import succeeded
from tests.company import EVERY_PROCESSOR, changed_by_company
from tests.factory import PAIRS
from tests.shortlists import bundle_of, lists_of
from tests.store import RunSettings, Store
from tests.variants import is_slow

CASES: list[tuple[str, Precision, Target]] = [
    *(("post_norm", precision, "ort") for precision in ("fp32", "int8", "int4")),
    *(("post_norm", precision, "portable") for precision in ("fp32", "int8")),
    ("lstm", "int8", "ort"),
    ("untied_silu", "int8", "ort"),
    ("untied_silu", "int4", "ort"),
    ("ssru", "int4", "ort"),
]
QUICK = [("int8", "ort"), ("int4", "ort")]
CLOSE = {"fp32": 1e-4, "int8": 0.15, "int4": 0.05}
"""How far logits may differ: the listed projection does not round what it is applied to."""


@pytest.fixture(scope="module")
def with_lists(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Bundles with lists of 20 tokens and those of each source token, each made once. Do not modify them."""

    @cache
    def make(precision: Precision = "fp32", variant: str = "post_norm", target: Target = "ort") -> Path:
        folder = tmp_path_factory.mktemp("with_lists") / "bundle"
        lists = lists_of(store.run(variant), always=20)
        return bundle_of(store, lists, folder, variant=variant, precision=precision, target=target)

    return make


@pytest.mark.parametrize(
    ("variant", "precision", "target"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] if is_slow(case[0]) or case[1:] not in QUICK else [])
        for case in CASES
    ],
)
def test_listed_tokens_have_the_logits_of_the_whole_vocabulary(
    store: Store, with_lists: Callable[..., Path], variant: str, precision: Precision, target: Target
) -> None:
    run, bundle = store.run(variant), with_lists(precision, variant, target)
    lists = lists_of(run, always=20)
    whole, listing = (Translator.open(bundle, threads=1, shortlist=shortlist) for shortlist in (False, True))
    sources = [source.ids for source in whole.encode([source for source, _ in PAIRS[:5]])]
    batch = pad(sources, whole.session.special.pad)
    restricted, full = listing.session.onnxruntime.start_search(*batch), whole.session.onnxruntime.start(*batch)
    listed = restricted.listed
    assert listed is not None
    assert whole.session.onnxruntime.start_search(*batch).listed is None
    usable = np.array([lists.usable(source)[listed] for source in sources])
    token = np.full(len(sources), whole.session.special.bos)
    for step in range(4):
        few, all_logits = restricted.step(token).copy(), full.step(token).copy()
        assert np.isneginf(few[~usable]).all()
        largest = max(1.0, float(np.abs(all_logits).max()) / 10)
        np.testing.assert_allclose(few[usable], all_logits[:, listed][usable], atol=CLOSE[precision] * largest)
        token = np.array(
            [
                target_ids[step % len(target_ids)]
                for target_ids in run.target_tokenizer.encode_batch([target for _, target in PAIRS[:5]])
            ]
        )
        if step == 1:  # a sentence leaves the batch
            kept = np.array([0, 4, 2, 3])
            for state in (restricted, full):
                state.select(kept, kept)
            usable, token = usable[kept], token[kept]
        elif step > 1:
            token = token[: len(usable)]


def test_with_all_tokens_listed_translations_are_those_of_the_whole_vocabulary(
    store: Store, taught: RunSettings, tmp_path: Path
) -> None:
    run = store.run(**taught)
    bundle = bundle_of(store, lists_of(run, always=10**6), tmp_path / "bundle", **taught)
    whole, listing = (Translator.open(bundle, threads=1, shortlist=shortlist) for shortlist in (False, True))
    texts = [source for source, _ in PAIRS[::4]]
    for beam_size in (1, 4):
        expected = [translation.best.ids for translation in whole.translate(texts, beam_size=beam_size)]
        assert [translation.best.ids for translation in listing.translate(texts, beam_size=beam_size)] == expected
        alone = [listing.translate([text], beam_size=beam_size)[0].best.ids for text in texts]
        assert alone == expected


@pytest.mark.parametrize("variant", ["post_norm", pytest.param("ssru", marks=pytest.mark.slow)])
@combinations(engine=["onnxruntime", "kernels"], search=EVERY_PROCESSOR)
def test_a_sentence_uses_its_own_list_in_any_batch(
    store: Store, with_lists: Callable[..., Path], engine: str, search: DecodeChanges, variant: str
) -> None:
    lists = lists_of(store.run(variant), always=20)
    texts = [source for source, _ in PAIRS[::3]]
    with Translator.open(with_lists("int8", variant), threads=1, engine=engine) as translator:
        usable = [lists.usable(source.ids) for source in translator.encode(texts)]
        changes: dict[str, Any] = {"max_length": 20, **search}
        if "prefix_bias_beta" in search:  # favor what another sentence may use
            pairs = zip(usable, [*usable[1:], usable[0]], strict=True)
            changes["target_prefix"] = [np.flatnonzero(others & ~mine)[:2].tolist() for mine, others in pairs]
        for mask, translation in zip(usable, translator.translate(texts, **changes), strict=True):
            assert all(mask[list(hypothesis.ids)].all() for hypothesis in translation.hypotheses)
        assert not changed_by_company(translator, texts, **changes)


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_weights_of_large_vocabularies_are_read_by_the_graph(
    with_lists: Callable[..., Path], precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = with_lists(precision)
    small = Translator.open(bundle, threads=1)
    monkeypatch.setattr(listing, "TABLE_BYTES", 0)
    large = Translator.open(bundle, threads=1)
    batch = pad([source.ids for source in small.encode([source for source, _ in PAIRS[:5]])], 0)
    first, second = (translator.session.onnxruntime.start_search(*batch) for translator in (small, large))
    np.testing.assert_array_equal(first.listed, second.listed)
    token = np.full(5, small.session.special.bos)
    np.testing.assert_array_equal(first.step(token), second.step(token))


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


def test_export_command(store: Store, taught: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = store.run(**taught)
    monkeypatch.setattr(ModelGraphs, "traced", store.traced(**taught))
    for name, column in (("text.a", 0), ("text.b", 1)):
        lines = [pair[column] for pair in PAIRS] * 3
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    given = [part for name in ("text.a", "text.b") for part in ("--shortlist", str(tmp_path / name))]
    out = tmp_path / "bundle"
    succeeded("export", str(run.path), "--out", str(out), *given, "--json")
    report = msgspec.convert(open_bundle(out).manifest.report.shortlist, ShortlistReport)
    assert report.origin == "text.a and text.b"
    assert 0 < report.kept <= 1
    assert report.bleu is not None
    assert "shortlist" in (out / contract.CARD_FILE).read_text(encoding="utf-8").lower()
    succeeded("verify", str(out), "--json")
    cases = json.loads((out / contract.GOLDEN_FILE).read_bytes())
    assert len(cases["listed"]) == len(cases["cases"])
    text = PAIRS[0][0]
    for setting in ("on", "off"):
        succeeded("translate", str(out), text, "--shortlist", setting)


def test_damaged_lists_are_refused_when_the_bundle_is_opened(with_lists: Callable[..., Path], tmp_path: Path) -> None:
    damaged = copy_of(with_lists("int8"), tmp_path)
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
