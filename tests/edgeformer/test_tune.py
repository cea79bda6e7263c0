"""``edgeformer tune``: the length penalty with the best BLEU on the validation set."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgeformer.config import DataConfig
from edgeformer.data.corpora import load_corpus
from edgeformer.quality import tuning as module
from edgeformer.quality.evaluation import translate_all
from edgeformer.quality.translators import open_translator
from edgeformer.quality.tuning import PENALTIES, Candidate, Tuning, best_text
from edgeformer.train.run import Run
from edgeformer_runtime.bundle.generation import Generation
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.interval import Interval
from edgeformer_runtime.translator import Translation, Translator
from tests.bundles import copy_of, edit_manifest
from tests.commands import error, run
from tests.factory import PAIRS

pytest.importorskip("sacrebleu")

LONG = "x" * 700
DATA: dict[str, Any] = {"train": ["text.tsv"], "valid_size": 40, "test_size": 40}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "text.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS), encoding="utf-8")
    return folder


@pytest.fixture
def trained(taught_run: Run, data: Path, tmp_path: Path) -> Path:
    """A run that may be changed, of a recipe whose text is in ``data``."""
    folder = tmp_path / "run"
    shutil.copytree(taught_run.path, folder)
    recipe = json.loads((folder / "recipe.json").read_bytes())
    (folder / "recipe.json").write_text(json.dumps({**recipe, "data": DATA}), encoding="utf-8")
    return folder


@pytest.fixture
def bundle(small_bundle: Path, tmp_path: Path) -> Path:
    """The same as a bundle."""
    return edit_manifest(copy_of(small_bundle, tmp_path), lambda tree: tree["provenance"]["recipe"].update(data=DATA))


def tuned(model: Path, data: Path, *options: str) -> dict[str, Any]:
    result = run("tune", model, "--data", data, "--threads", "1", "--json", *options)
    assert result.exit_code == 0, result.output
    content: dict[str, Any] = json.loads(result.stdout)
    return content


@pytest.mark.parametrize("beam_size", [2, 5])
@pytest.mark.parametrize("penalty", [0.0, 0.3, 1.0, 1.7, -0.5, 10.0])
def test_ranking_anew_gives_what_a_search_gives(translator: Translator, beam_size: int, penalty: float) -> None:
    sources = [source for source, _ in PAIRS[::5]]
    plain = translator.translate(sources, beam_size=beam_size, n_best=beam_size, length_penalty=0.0)
    searched = translator.translate(sources, beam_size=beam_size, length_penalty=penalty)
    assert [best_text(found, penalty) for found in plain] == [found.text for found in searched]


def test_a_penalty_changes_something(translator: Translator) -> None:
    """Else the test above would prove nothing."""
    sources = [source for source, _ in PAIRS[::5]]
    plain = translator.translate(sources, beam_size=5, n_best=5, length_penalty=0.0)
    assert len({tuple(best_text(found, penalty) for found in plain) for penalty in (0.0, 1.0, 10.0)}) == 3


def test_bleu_is_that_of_evaluate(bundle: Path, data: Path, tmp_path: Path) -> None:
    result = tuned(bundle, data, "--beam", "3", "--length-penalty", "0", "--length-penalty", "1.5")["result"]
    assert [candidate["length_penalty"] for candidate in result["candidates"]] == [0.0, 1.0, 1.5]
    sides = [tmp_path / "valid.en", tmp_path / "valid.fr"]
    valid = load_corpus(DataConfig(train=("text.tsv",), valid_size=40, test_size=40), data).valid
    for side, path in enumerate(sides):
        path.write_text("".join(f"{pair[side]}\n" for pair in valid), encoding="utf-8")
    for candidate in result["candidates"]:
        options = ("--source", sides[0], "--reference", sides[1], "--beam", "3", "--json", "--threads", "1")
        scores = run("evaluate", bundle, *options, "--length-penalty", str(candidate["length_penalty"]))
        assert json.loads(scores.stdout)["scores"]["bleu"] == pytest.approx(candidate["bleu"])
    assert result["sentences"] == 40


def test_of_those_not_surely_worse_the_nearest_to_one_is_chosen(bundle: Path, data: Path) -> None:
    result = tuned(bundle, data)["result"]
    assert [candidate["length_penalty"] for candidate in result["candidates"]] == list(PENALTIES)
    highest = max(candidate["bleu"] for candidate in result["candidates"])
    as_good = [c["length_penalty"] for c in result["candidates"] if c["deficit"]["low"] <= 0]
    assert abs(result["chosen"]["length_penalty"] - 1) == min(abs(penalty - 1) for penalty in as_good)
    assert {(*c["deficit"].values(),) for c in result["candidates"] if c["bleu"] == highest} == {(0.0, 0.0)}


@pytest.mark.parametrize(("worse", "chosen"), [(1, 1.0), (20, 1.5)])
def test_a_difference_counts_if_its_interval_excludes_zero(
    bundle: Path, data: Path, monkeypatch: pytest.MonkeyPatch, worse: int, chosen: float
) -> None:
    """With a penalty of 1.5 all sentences are right, and with others some are not."""
    pairs = load_corpus(DataConfig(train=("text.tsv",), valid_size=40, test_size=40), data).valid
    monkeypatch.setattr(module, "translate_all", lambda *_, **__: list(enumerate(target for _, target in pairs)))

    def text(numbered: tuple[int, str], penalty: float) -> str:
        return f"{numbered[1]} !" if penalty != 1.5 and numbered[0] < worse else numbered[1]

    monkeypatch.setattr(module, "best_text", text)
    result = module.tune(open_translator(bundle, threads=1), module.validation_text(bundle, data))
    assert max(result.candidates, key=lambda candidate: candidate.bleu).length_penalty == 1.5
    assert result.chosen.length_penalty == chosen


@pytest.mark.parametrize(("penalties", "best"), [((0.7, 0.9, 1.0, 1.3), 1.0), ((0.7, 0.9, 1.3), 1.0), ((0.0,), 1.0)])
def test_equal_ones_leave_the_penalty_at_one(
    bundle: Path, data: Path, monkeypatch: pytest.MonkeyPatch, penalties: Sequence[float], best: float
) -> None:
    monkeypatch.setattr(module, "best_text", lambda translation, penalty: "the same")
    result = module.tune(open_translator(bundle, threads=1), module.validation_text(bundle, data), penalties=penalties)
    assert result.chosen.length_penalty == best


def test_only_validation_text_is_translated(bundle: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def watched(translator: Any, texts: Sequence[str], *arguments: Any, **options: Any) -> list[Translation]:
        seen.extend(texts)
        return translate_all(translator, texts, *arguments, **options)

    monkeypatch.setattr(module, "translate_all", watched)
    tuned(bundle, data)
    corpus = load_corpus(DataConfig(train=("text.tsv",), valid_size=40, test_size=40), data)
    assert seen == [source for source, _ in corpus.valid]
    assert not set(seen) & {source for source, _ in (*corpus.test, *corpus.train)}


@pytest.mark.slow
def test_a_run_keeps_it_and_export_writes_it(trained: Path, bundle: Path, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    result = tuned(trained, data, "--beam", "3", "--length-penalty", "0.25", "--length-penalty", "1")
    of_bundle = tuned(bundle, data, "--beam", "3", "--length-penalty", "0.25", "--length-penalty", "1")
    assert (result["saved"], of_bundle["saved"]) == (True, False)
    assert result["result"]["candidates"] == of_bundle["result"]["candidates"]
    best = result["result"]["chosen"]["length_penalty"]
    info = Run.open(trained).info
    assert (info.generation.beam_size, info.generation.length_penalty) == (3, best)

    Run.open(trained).update(generation=replace_penalty(info.generation, 0.25))
    options = open_translator(trained).defaults
    assert (options.beam_size, options.length_penalty) == (3, 0.25)
    exported = tmp_path / "exported"
    assert run("export", trained, "--out", exported).exit_code == 0
    assert open_bundle(exported).manifest.generation == Run.open(trained).info.generation
    assert "| default search | beam 3, length penalty 0.25 |" in (exported / "README.md").read_text(encoding="utf-8")
    assert Translator.open(exported, threads=1).defaults.length_penalty == 0.25
    assert run("verify", exported, "--checkpoint", trained).exit_code == 0


def replace_penalty(generation: Any, length_penalty: float) -> Any:
    return type(generation)(beam_size=generation.beam_size, length_penalty=length_penalty)


def test_the_table_and_what_to_do_next(trained: Path, bundle: Path, data: Path) -> None:
    options = ("--data", data, "--threads", "1", "--length-penalty", "0.5")
    saved = run("tune", trained, *options)
    assert (saved.exit_code, "default" in saved.stdout, "chosen" in saved.stdout) == (0, True, True)
    assert f"Next: edgeformer export {trained} --out BUNDLE" in saved.stdout
    before = open_bundle(bundle).manifest
    result = run("tune", bundle, *options)
    assert "40 validation sentences, beam 4" in result.stdout
    assert "The bundle was not changed: tune its run" in result.stdout
    assert open_bundle(bundle).manifest == before


def test_figures_are_shown_even_if_they_cannot_be_saved(
    trained: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "update", lambda *_, **__: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    result = run("tune", trained, "--data", data, "--threads", "1", "--length-penalty", "0.5")
    assert result.exit_code == 1
    assert "chosen" in result.stdout
    assert "Saved" not in result.stdout
    assert f"`{trained}` cannot be written, so nothing was saved: Permission denied." in result.stderr
    assert json.loads(run("tune", trained, "--data", data, "--json").stdout)["saved"] is False


def test_a_sentence_too_long_is_left_out(bundle: Path, data: Path) -> None:
    (data / "valid.tsv").write_text(f"{PAIRS[0][0]}\t{PAIRS[0][1]}\n{LONG}\ttrop long\n", encoding="utf-8")
    recipe = {**DATA, "valid": ["valid.tsv"]}
    edit_manifest(bundle, lambda tree: tree["provenance"]["recipe"].update(data=recipe))
    assert "1 sentence has more tokens" in run("tune", bundle, "--data", data, "--threads", "1").stdout
    result = tuned(bundle, data)["result"]
    assert (result["sentences"], result["too_long"]) == (1, 1)
    (data / "valid.tsv").write_text(f"{LONG}\ttrop long\n", encoding="utf-8")
    assert "No validation pair is short enough" in error("tune", bundle, "--data", data)


def test_mistakes(bundle: Path, trained: Path, data: Path, tmp_path: Path) -> None:
    assert "is not in the range x>=2" in error("tune", bundle, "--data", data, "--beam", "1", code=2)
    assert "`length_penalty` must be from -10 to 10" in error("tune", bundle, "--data", data, "--length-penalty", "11")
    assert "does not exist" in error("tune", tmp_path / "nothing", "--data", data)
    assert "`text.tsv` does not exist" in error("tune", bundle).replace(f"{tmp_path}/", "")
    info = json.loads((trained / "run.json").read_bytes())
    provenance = {"name": "files", "licence": "", "origin": "", "sha256": {"text.tsv": "0" * 64}}
    (trained / "run.json").write_text(json.dumps({**info, "provenance": provenance}), encoding="utf-8")
    assert "was trained on other text than these files contain" in error("tune", trained, "--data", data)
    edit_manifest(bundle, lambda tree: tree["generation"].update(beam_size=1))
    assert "changes nothing with a beam of 1" in error("tune", bundle, "--data", data)
    edit_manifest(bundle, lambda tree: tree.update(provenance={}, generation={}))
    assert "does not say what it was trained on" in error("tune", bundle, "--data", data)


def test_a_lower_case_model_is_compared_with_lower_case(bundle: Path, data: Path) -> None:
    upper = [(source, target.upper()) for source, target in PAIRS]
    plain = tuned(bundle, data)["result"]["chosen"]["bleu"]
    (data / "text.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in upper), encoding="utf-8")
    assert tuned(bundle, data)["result"]["chosen"]["bleu"] < plain
    edit_manifest(bundle, lambda tree: tree["provenance"]["recipe"]["tokenizer"].update(lowercase=True))
    assert tuned(bundle, data)["result"]["chosen"]["bleu"] == pytest.approx(plain)


def test_options_of_a_run_are_its_own(trained: Path) -> None:
    options = open_translator(trained).defaults
    assert replace(options, beam_size=4, length_penalty=1.0) == options


def test_what_is_not_tuned_is_kept() -> None:
    candidate = Candidate(length_penalty=0.5, bleu=20.0, deficit=Interval(low=0.0, high=0.0), length_ratio=1.0)
    tuned = Tuning(beam_size=3, candidates=(candidate,), chosen=candidate, sentences=1, too_long=0, bleu_signature="")
    before = Generation(beam_size=6, max_len_a=3.0, beam_shrinks=True)
    assert tuned.applied_to(before) == Generation(beam_size=3, length_penalty=0.5, max_len_a=3.0, beam_shrinks=True)
