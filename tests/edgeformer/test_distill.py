"""``edgeformer distill``: a teacher's translations as training text."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgeformer.config import DataConfig, load_recipe
from edgeformer.data.corpora import load_corpus
from edgeformer.distill import distillation as module
from edgeformer.errors import DataError
from edgeformer_export.card import model_card
from edgeformer_runtime.bundle.open import file_sha256, open_bundle
from edgeformer_runtime.bundle.provenance import Provenance
from edgeformer_runtime.files import locked_folder
from edgeformer_runtime.translator import Translator
from tests.bundles import copy_of, edit_manifest
from tests.commands import error, python, run, succeeded
from tests.factory import PAIRS
from tests.ray_cluster import command, interrupted, kill, running_cluster

LONG = "z" * 700  # one word of more tokens than the model takes
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
KILLED = """
import os, signal, sys
from edgeformer.distill import distillation as distill
from edgeformer.cli import main
distill.BLOCK, real, calls, last = 32, os.fsync, [], int(sys.argv.pop(1))
out = sys.argv[sys.argv.index("--out") + 1]
def fsync(descriptor):
    if last == 1 or os.path.exists(out):
        calls.append(descriptor)
    if len(calls) == last:
        os.kill(os.getpid(), signal.SIGKILL)
    real(descriptor)
os.fsync = fsync
main()
"""


def prepare(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Go to a folder with a recipe and its text: known sentences, one that is repeated, and one too long."""
    pairs = [*PAIRS, (PAIRS[0][0], "encore"), (LONG, "trop long")]
    (folder / "text.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in pairs), encoding="utf-8")
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    patch.chdir(folder)
    patch.setattr(module, "BLOCK", 32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; see :func:`prepare`."""
    prepare(tmp_path, monkeypatch)
    return tmp_path


def distilled(teacher: Path, out: str, *options: str | Path) -> dict[str, Any]:
    result = run(
        "distill", teacher, "recipe.toml", "--out", out, "--threads", "1", "--workers", "1", "--json", *options
    )
    assert result.exit_code == 0, result.output
    summary: dict[str, Any] = json.loads(result.stdout)
    return summary


@pytest.fixture(scope="module")
def whole(small_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """What the teacher makes of the text, and what the command says. Do not modify it."""
    path = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        prepare(path, patch)
        return path / "out", distilled(small_bundle, "out")


@pytest.fixture
def out(folder: Path, whole: tuple[Path, dict[str, Any]]) -> Path:
    """A copy of it in the current folder."""
    return Path(shutil.copytree(whole[0], folder / "out"))


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def original() -> Any:
    return load_corpus(load_recipe("recipe.toml").data)


def usable(translator: Translator, **options: Any) -> dict[str, list[str]]:
    """Finished translations of each sentence of the text."""
    sources = [source for source, _ in original().train if source != LONG]
    texts = {
        translation.source.text: [each.text for each in translation.hypotheses if each.finished]
        for translation in translator.translate(sources, **options)
    }
    return {LONG: [], **texts}


def test_training_targets_are_the_teachers_and_the_rest_is_as_it_was(
    out: Path, whole: tuple[Path, dict[str, Any]], translator: Translator
) -> None:
    corpus, before = load_corpus(DataConfig(corpus="out")), original()
    assert (corpus.valid, corpus.test) == (before.valid, before.test)
    texts = [source for source, _ in before.train if source != LONG]
    translations = dict(zip(texts, translator.translate(texts), strict=True))
    expected: dict[tuple[str, str], None] = {}
    unfinished = 0
    for source, target in before.train:
        translation = translations.get(source)
        use = translation is not None and translation.best.finished
        unfinished += translation is not None and not use
        expected[source, translation.text if translation and use else target] = None
    assert list(corpus.train) == list(expected)
    assert (LONG, "trop long") in corpus.train
    assert sum(target != dict(PAIRS).get(source) for source, target in corpus.train) > 20, "the teacher is no echo"
    counts = whole[1]["distilled"]
    assert (counts["sentences"], counts["pairs"]) == (len(before.train),) * 2
    assert (counts["too_long"], counts["unfinished"]) == (1, unfinished)
    assert sorted(path.name for path in out.iterdir()) == sorted(
        [*(f"{part}.{side}" for part in ("train", "valid", "test") for side in ("source", "target")), "report.json"]
    )


def test_what_a_corpus_was_made_with_goes_into_its_provenance(folder: Path, small_bundle: Path) -> None:
    distilled(small_bundle, "out", "--beam", "3", "--length-penalty", "0.5")
    provenance = msgspec.to_builtins(load_corpus(DataConfig(corpus="out"), folder).provenance)
    assert provenance["sha256"] == {path.name: file_sha256(path) for path in (folder / "out").glob("t*.*")} | {
        path.name: file_sha256(path) for path in (folder / "out").glob("valid.*")
    }
    job = provenance["distilled"]
    assert (job["teacher"], job["beam_size"], job["length_penalty"]) == ("bundle", 3, 0.5)
    assert job["teacher_sha256"] == file_sha256(small_bundle / "manifest.json")
    assert job["corpus_sha256"] == {"text.tsv": file_sha256(folder / "text.tsv")}
    assert "distilled" not in msgspec.to_builtins(original().provenance), "runs from before keep comparing equal"


def test_several_translations_of_each(folder: Path, small_bundle: Path, translator: Translator) -> None:
    distilled(small_bundle, "out", "--nbest", "3")
    lines = [
        (folder / "out" / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("source", "target")
    ]
    expected = []
    texts = usable(translator, n_best=3)
    for source, target in original().train:
        expected += [(source, text) for text in dict.fromkeys(texts[source] or [target])]
    assert list(zip(*lines, strict=True)) == expected
    assert len(expected) > len(original().train)


def test_the_closest_of_the_beam(folder: Path, small_bundle: Path, translator: Translator) -> None:
    from sacrebleu import sentence_bleu  # type: ignore[attr-defined, unused-ignore]

    distilled(small_bundle, "out", "--closest")
    lines = (folder / "out/train.target").read_text(encoding="utf-8").splitlines()
    others, found = 0, usable(translator, n_best=4)
    for (source, target), line in zip(original().train, lines, strict=True):
        texts = found[source]
        bleu = [sentence_bleu(text, [target]).score for text in texts]
        assert line == (texts[bleu.index(max(bleu))] if texts else target)
        others += line != next(iter(texts), target)
    assert others > 5, "not merely the best"


@pytest.mark.parametrize("last", [10, *(pytest.param(last, marks=pytest.mark.slow) for last in (1, 3, 4, 8, 13))])
def test_killed_at_any_point_it_ends_with_the_same_bytes(
    folder: Path, whole: tuple[Path, dict[str, Any]], small_bundle: Path, last: int
) -> None:
    """There are two waits for the disk per block: its file, and the name of that."""
    arguments: list[str | Path] = [
        "distill",
        small_bundle,
        folder / "recipe.toml",
        "--out",
        folder / "out",
        "--data",
        folder,
    ]
    killed = python(KILLED, str(last), *arguments, "--threads", "1", "--workers", "1", check=False)
    assert killed.returncode == -9, killed.stderr
    if last == 1:  # when the first progress was to be written, before the folder has its name
        assert not (folder / "out").exists()
        distilled(small_bundle, "out")
    else:
        assert (folder / "out/report.json").exists() is False
        with pytest.raises(DataError, match=r"does not hold a complete corpus, since it has no report.json"):
            load_corpus(DataConfig(corpus="out"))
        succeeded("distill", small_bundle, "--out", "out", "--resume", "--workers", "2", "--json")
    assert contents(folder / "out") == contents(whole[0])


@pytest.mark.slow
def test_a_ray_cluster_writes_the_same_bytes(folder: Path, small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the command is killed and continued."""
    pytest.importorskip("ray", reason="needs edgeformer[ray]")
    monkeypatch.setattr(module, "BLOCK", 1024)
    words = ("dog", "river", "machine", "house")
    lines = (
        f"The {a} {b} runs {n} times near the {c}.\t{n}\n"
        for n in range(60)
        for a in words
        for b in words
        for c in words
    )
    (folder / "text.tsv").write_text("".join(lines), encoding="utf-8")
    distilled(small_bundle, "whole")
    arguments = ("distill", small_bundle, "--out", "out", "--threads", "1", "--workers", "2", "--engine", "ray")
    with running_cluster() as cluster:
        options = (*arguments, "--ray-address", cluster.address)
        code, _ = interrupted(
            lambda: any(folder.glob("out/blocks/0*")),
            *options,
            "recipe.toml",
            interrupt=kill,
            cwd=folder,
        )
        assert (code, (folder / "out/report.json").exists()) == (-9, False)
        done = command(*options, "--resume", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert re.search(r"(718|[1-3],\d{3}) of 3,790 sentences …", done.stderr)  # the last block has 718
    assert contents(folder / "out") == contents(folder / "whole")


def test_one_process_at_a_time_works_in_a_folder(folder: Path, small_bundle: Path) -> None:
    (folder / "out").mkdir()
    with locked_folder(folder / "out"):
        assert "`out` is being used by another process" in error("distill", small_bundle, "--out", "out", "--resume")
    assert "holds nothing to resume" in error("distill", small_bundle, "--out", "out", "--resume")


def test_ctrl_c_says_how_to_go_on(
    folder: Path, whole: tuple[Path, dict[str, Any]], small_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, summary = whole
    real, calls = Translator.translate, [0]

    def translate(self: Translator, *arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        return real(self, *arguments, **options)

    monkeypatch.setattr(Translator, "translate", translate)
    result = run("distill", small_bundle, "recipe.toml", "--out", "out", "--threads", "1", "--workers", "1")
    assert result.exit_code == 130
    assert "Stopped after 64 sentences. Continue with:" in result.stderr
    assert f"  edgeformer distill {small_bundle} --out out --resume\n" in result.stderr
    again = succeeded("distill", small_bundle, "--out", "out", "--resume", "--threads", "1", "--workers", "1")
    assert f"64 of {summary['distilled']['sentences']} sentences …" in again.stderr
    assert "Next: edgeformer train RECIPE --set data.corpus=out" in again.stdout
    assert contents(folder / "out") == contents(expected)


def test_a_full_disk_loses_nothing(
    folder: Path, whole: tuple[Path, dict[str, Any]], small_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.fsync, [0]

    def fsync(descriptor: int) -> None:
        calls[0] += (folder / "out").exists()
        if calls[0] == 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    message = error("distill", small_bundle, "recipe.toml", "--out", "out", "--threads", "1", "--json")
    assert message.startswith("`out` cannot be written: No space left on device.")
    assert message.endswith("once that is fixed, continue with --resume.")
    distilled(small_bundle, "out", "--resume")
    assert contents(folder / "out") == contents(whole[0])


@pytest.fixture(scope="module")
def stopped(small_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose work has stopped after two blocks. Do not modify it."""

    def stop(done: int, total: int) -> None:
        if done == 64:
            raise KeyboardInterrupt

    path = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch:
        prepare(path, patch)
        teacher, recipe = Translator.open(small_bundle, threads=1), load_recipe("recipe.toml")
        with pytest.raises(KeyboardInterrupt):
            module.distill(teacher, Path("out"), recipe, report=stop)
    return path / "out"


@pytest.fixture
def begun(folder: Path, stopped: Path) -> Path:
    """A copy of it in the current folder."""
    return Path(shutil.copytree(stopped, folder / "out"))


def test_another_teacher_is_refused(begun: Path, small_bundle: Path, small_bundle_int8: Path) -> None:
    before = contents(begun)
    message = error("distill", small_bundle_int8, "--out", "out", "--resume")
    assert message.startswith("`out` was started with another teacher, `bundle`, whose manifest has SHA-256 ")
    assert file_sha256(small_bundle / "manifest.json") in message
    assert contents(begun) == before
    distilled(small_bundle, "out", "--resume")
    assert "was started with another teacher" in error("distill", small_bundle_int8, "--out", "out", "--resume")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--beam", "2"), "`--beam` was 4 and is now 2"),
        (("--nbest", "2"), "`--nbest` was 1 and is now 2"),
        (("--length-penalty", "0.5", "--closest"), "`--length-penalty` was 1.0 and is now 0.5; `--closest` was ''"),
        (("recipe.toml", "--set", "data.max_words=9"), "another recipe, which differs in `data.max_words`"),
    ],
)
def test_other_settings_are_refused(begun: Path, small_bundle: Path, options: tuple[str, ...], message: str) -> None:
    before = contents(begun)
    assert message in error("distill", small_bundle, *options, "--out", "out", "--resume")
    assert contents(begun) == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("original.source", b"other\n", "has changed; start again"),
        ("original.target", None, "is missing or has changed; start again"),
        ("blocks/00000001", b"lost", "is damaged"),
        ("progress.json", b"{", "is damaged"),
        ("progress.json", None, "holds nothing to resume; start without --resume"),
    ],
)
def test_what_was_kept_must_be_whole(
    begun: Path, small_bundle: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is None:
        (begun / name).unlink()
    else:
        (begun / name).write_bytes(content)
    assert message in error("distill", small_bundle, "--out", "out", "--resume")


def test_a_complete_one_is_left_as_it_is(out: Path, whole: tuple[Path, dict[str, Any]], small_bundle: Path) -> None:
    before, first = whole
    (out / "original.source").write_text("left by a stop just before the end", encoding="utf-8")
    again = distilled(small_bundle, "out", "--resume")
    assert (again["pairs"], again["distilled"]) == (first["pairs"], first["distilled"])
    assert contents(out) == contents(before)
    assert "`out` is not empty; choose another --out" in error("distill", small_bundle, "recipe.toml", "--out", "out")


def test_mistakes_are_told_before_the_work(folder: Path, small_bundle: Path, tmp_path: Path) -> None:
    recipe = ("distill", small_bundle, "recipe.toml", "--out")
    assert "RECIPE is missing" in error("distill", small_bundle, "--out", "out", code=2)
    assert "--set needs RECIPE" in error("distill", small_bundle, "--out", "out", "--resume", "--set", "a=1", code=2)
    assert "is a file" in error(*recipe, "text.tsv")
    assert "`--nbest` must be at most `--beam` (2)" in error(*recipe, "out", "--beam", "2", "--nbest", "3")
    assert "`--closest` picks one of several hypotheses" in error(*recipe, "out", "--nbest", "2", "--closest")
    assert "`--tokenize` must be one of" in error(*recipe, "out", "--closest", "--tokenize", "klingon")
    assert "`nothing` does not exist" in error("distill", "nothing", "recipe.toml", "--out", "out")
    german = edit_manifest(copy_of(small_bundle, tmp_path / "german"), lambda tree: tree.update(target_language="de"))
    message = error("distill", german, "recipe.toml", "--out", "out")
    assert message == "The teacher's target language is `de`, but the corpus's is `fr`; choose another corpus."
    assert not (folder / "out").exists()


@pytest.mark.usefixtures("out")
def test_a_student_learns_from_it(folder: Path, small_bundle: Path) -> None:
    """And its run says who taught it."""
    sets = ["data.corpus=out", "data.train=[]", "tokenizer.vocab_size=300", "train.max_steps=1", "train.threads=1"]
    sets += ["model.d_model=16", "model.d_ff=16", "model.encoder_layers=1", "model.decoder_layers=1"]
    succeeded("train", "recipe.toml", "--out", "student", *(word for item in sets for word in ("--set", item)))
    info = json.loads((folder / "student/run.json").read_bytes())
    assert info["provenance"]["distilled"]["teacher_sha256"] == file_sha256(small_bundle / "manifest.json")
    assert info["provenance"]["distilled"]["too_long"] == 1
    assert info["valid_pairs"] == len(original().valid)
    provenance = Provenance(training=info)
    manifest = msgspec.structs.replace(open_bundle(small_bundle).manifest, provenance=provenance)
    sha256 = file_sha256(small_bundle / "manifest.json")
    assert f"- targets: translations by `bundle`, beam 4 (manifest {sha256})" in model_card(manifest, 0)


def test_changed_text_is_refused(out: Path) -> None:
    shutil.copy("out/valid.source", "out/valid.target")
    with pytest.raises(DataError, match=r"valid\.target` changed after the corpus was written"):
        load_corpus(DataConfig(corpus="out"))
    (out / "report.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="is damaged"):
        load_corpus(DataConfig(corpus="out"))


@pytest.mark.usefixtures("out")
def test_own_validation_text_takes_the_place_of_its_own(folder: Path) -> None:
    corpus = load_corpus(DataConfig(corpus="out", valid=("text.tsv",)), folder)
    assert len(corpus.valid) == len(PAIRS) + 2
    assert corpus.provenance.sha256["text.tsv"] == file_sha256(folder / "text.tsv")
