"""The programs that write the text of the models in the box, and the recipes that read it."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from edgeformer.config import DataConfig, load_recipe
from edgeformer.data import corpora
from edgeformer.data.catalog import CORPORA, PinnedFile
from edgeformer.data.corpora import load_corpus
from models.make import copies, merge, text
from tests.conftest import ROOT

RECIPES = sorted((ROOT / "models" / "make" / "recipes").iterdir())


def tsv(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path


def replace_corpus(data: DataConfig, corpus: str) -> DataConfig:
    return msgspec.structs.replace(data, corpus=corpus)


def called(monkeypatch: pytest.MonkeyPatch, main: Callable[[], None], *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["program", *map(str, arguments)])
    main()


@pytest.fixture
def software(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of software, with a small Tatoeba beside it, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(text, "HELD_OUT", 5)
    monkeypatch.setattr(text, "generate_words", lambda seed: [(f"word {n}!", f"mot {n} !") for n in range(50)])
    tatoeba = tsv(
        tmp_path / "x" / "t.tsv", [(f"I am {n}?", f"J'ai {n if n % 3 else 'trois'} ans ?") for n in range(3000)]
    )
    pinned = PinnedFile(folder="x", name="t.tsv", url="", sha256=hashlib.sha256(tatoeba.read_bytes()).hexdigest())
    entries = {name: replace(CORPORA[name], train=(pinned,)) for name in ("tatoeba-en-fr", "tatoeba-fr-en")}
    monkeypatch.setattr(corpora, "CORPORA", entries)
    return tsv(tmp_path / "software.tsv", [(f"Open file {n}", f"Ouvrir le fichier {n}") for n in range(40)])


@pytest.mark.parametrize("direction", text.DIRECTIONS)
def test_text_and_copies_are_what_the_recipes_read(
    direction: str, software: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called(monkeypatch, text.main, direction, software, "--out", "text", "--data", ".")
    called(monkeypatch, copies.main, "text", "--out", "copies")
    recipe = load_recipe(str(ROOT / "models" / "make" / "recipes" / f"{direction}.toml"), ['data.corpus="copies"'])
    plain, corpus = load_corpus(replace_corpus(recipe.data, "text")), load_corpus(recipe.data)
    assert (corpus.valid, corpus.test) == (plain.valid, plain.test)
    assert len(plain.valid) == 1005, "of Tatoeba and of the software"
    train = list(corpus.train)
    assert train[: len(plain.train)] == list(plain.train), "the copies follow"
    word = ("word 1!", "mot 1\u202f!") if direction == "en-fr" else ("mot 1 !", "word 1!")
    assert train.count(word) == 6, "short sentences are repeated"
    assert not any("trois" in side for pair in train for side in pair), "digits of both sides are the same"
    assert corpus.provenance.name == f"tatoeba-{direction} + software + words, with altered copies"
    assert "MPL-2.0" in corpus.provenance.licence


def test_collected_text_is_merged_without_test_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "HELD_OUT", 5)
    tsv(tmp_path / "text" / "permissive" / "chromium.tsv", [(f"File {n}", f"Fichier {n}") for n in range(50)])
    tsv(tmp_path / "text" / "copyleft" / "wesnoth.tsv", [(f"Elf {n}", f"Elfe {n}") for n in range(50)])
    (tmp_path / "test.en").write_text("file  7.\nELF 8\n", encoding="utf-8")
    called(monkeypatch, merge.main, tmp_path / "text", tmp_path / "out", "--test", tmp_path / "test.en")
    read = load_corpus(replace_corpus(load_recipe(str(RECIPES[0])).data, str(tmp_path / "out")))
    pairs = [*read.train, *read.valid, *read.test]
    assert len(set(pairs)) == len(pairs) == 98
    assert not {"File 7", "Elf 8"} & {source for source, _ in pairs}
    assert read.provenance.licence == "BSD-3-Clause AND GPL-2.0-or-later"
