"""``edgeformer distill``: a teacher's translations as training text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from edgeformer.config import DataConfig
from edgeformer.data.corpora import load_corpus
from edgeformer.errors import ConfigError
from edgeformer_runtime.cli import text_input
from edgeformer_runtime.translator import Translator
from tests.commands import error, run, succeeded
from tests.factory import PAIRS
from tests.ray_cluster import command, interrupted, kill, running_cluster

LONG = "z" * 700  # one word of more tokens than the model takes
SOURCES = [*(source for source, _ in PAIRS[:60]), PAIRS[0][0], LONG, "", "a\ttab"]
HERE = ("--threads", "1", "--workers", "1")
RECIPE = """
source_language = "en"
target_language = "fr"
[model]
family = "transformer"
preset = "tiny"
[data]
train = ["text.tsv"]
valid_size = 20
test_size = 30
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sentences, one that is repeated, and some that are left out, which are read in three blocks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(text_input, "BLOCK_LINES", 24)
    (tmp_path / "text.en").write_text("".join(f"{line}\n" for line in SOURCES), encoding="utf-8")
    return Path("text.en")


def pairs(translator: Translator, **options: Any) -> list[str]:
    """Lines of finished translations of each sentence."""
    lines = []
    for source in SOURCES[:61]:
        (translation,) = translator.translate([source], **options)
        texts = dict.fromkeys(each.text for each in translation.hypotheses if each.finished)
        lines += [f"{source}\t{text}" for text in texts if text.strip()]
    return lines


def written(name: str = "out.tsv") -> list[str]:
    return Path(name).read_text(encoding="utf-8").splitlines()


def test_each_sentence_has_its_translation_but_those_that_the_teacher_cannot_finish(
    source: Path, small_bundle: Path, translator: Translator
) -> None:
    done = succeeded("distill", small_bundle, source, "--out", "out.tsv", *HERE)
    assert written() == (expected := pairs(translator))
    assert f"Wrote out.tsv, {len(expected)} pairs." in done.stdout
    assert 40 < len(expected) < len(SOURCES)
    assert expected.count(expected[0]) == 2
    assert sorted(path.name for path in Path().iterdir()) == ["out.tsv", "text.en"]


def test_several_translations_of_each(source: Path, small_bundle: Path, translator: Translator) -> None:
    options = ("--nbest", "3", "--beam", "3", "--length-penalty", "0.5")
    succeeded("distill", small_bundle, source, "--out", "out.tsv", *options, *HERE)
    assert written() == pairs(translator, n_best=3, beam_size=3, length_penalty=0.5)


def test_an_interruption_is_continued_with_the_same_settings(
    source: Path, small_bundle: Path, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = Translator.translate, [0]

    def translate(self: Translator, *arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            raise KeyboardInterrupt
        return real(self, *arguments, **options)

    monkeypatch.setattr(Translator, "translate", translate)
    arguments = ("distill", small_bundle, source, "--out", "out.tsv", *HERE)
    interruption = run(*arguments)
    assert interruption.exit_code == 130
    assert "The same command continues." in interruption.stderr
    assert not Path("out.tsv").exists()
    assert "differs in `--beam`" in error(*arguments, "--beam", "2")
    assert calls[0] == 2
    assert "24 of 64 lines" in succeeded(*arguments).stderr
    assert calls[0] == 4, "the first block is not translated again"
    assert written() == pairs(translator)


def test_mistakes_are_told_before_the_work(source: Path, small_bundle: Path) -> None:
    arguments = ("distill", small_bundle, source, "--out")
    assert "is an input file" in error(*arguments, source)
    assert "Folder `nowhere` does not exist" in error(*arguments, "nowhere/out.tsv")
    assert "`--nbest` must be at most `--beam` (2)" in error(*arguments, "x", "--beam", "2", "--nbest", "3")
    assert "`nothing` does not exist" in error("distill", "nothing", source, "--out", "out.tsv")
    assert "No such file or directory: lines" in error("distill", small_bundle, "lines", "--out", "out.tsv")
    assert [path.name for path in Path().iterdir()] == ["text.en"]


def test_a_student_learns_from_it(tmp_path: Path, small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its validation and test text are those of the prepared corpus."""
    monkeypatch.chdir(tmp_path)
    Path("text.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS), encoding="utf-8")
    Path("recipe.toml").write_text(RECIPE, encoding="utf-8")
    succeeded("data", "prepare", "recipe.toml", "--out", "corpus")
    succeeded("distill", small_bundle, "corpus/train.en", "--out", "out.tsv", *HERE)
    before, corpus = (load_corpus(DataConfig(corpus="corpus", train=train)) for train in ((), ("out.tsv",)))
    assert (corpus.valid, corpus.test) == (before.valid, before.test)
    assert [list(pair) for pair in corpus.train] == [line.split("\t") for line in dict.fromkeys(written())]
    assert "out.tsv" in corpus.provenance.sha256
    with pytest.raises(ConfigError, match="only a folder that `edgeformer data prepare`"):
        load_corpus(DataConfig(corpus="dates-en-fr", train=("out.tsv",)))


@pytest.mark.slow
def test_a_ray_cluster_writes_the_same(tmp_path: Path, small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the command is killed and continued."""
    pytest.importorskip("ray", reason="needs edgeformer[ray]")
    monkeypatch.chdir(tmp_path)
    words = ("dog", "river", "machine", "house")
    lines = (f"The {a} {b} runs {n} times.\n" for n in range(200) for a in words for b in words)
    Path("text.en").write_text("".join(lines), encoding="utf-8")
    succeeded("distill", small_bundle, "text.en", "--out", "whole.tsv", *HERE)
    options: tuple[str | Path, ...] = ("distill", small_bundle, "text.en", "--out", "out.tsv")
    options += ("--threads", "1", "--workers", "2", "--engine", "ray")
    with running_cluster() as cluster:
        options += ("--ray-address", cluster.address)
        code, _ = interrupted(lambda: any(tmp_path.glob("out.tsv.blocks/0*")), *options, interrupt=kill, cwd=tmp_path)
        assert (code, Path("out.tsv").exists()) == (-9, False)
        done = command(*options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"(512|1,024|2,\d{3}) of 3,200 lines", done.stderr)
    assert written() == written("whole.tsv")
