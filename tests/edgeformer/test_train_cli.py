from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgeformer.config import load_recipe, recipe_names
from edgeformer.data.catalog import CORPORA
from tests.commands import error, run, succeeded
from tests.edgeformer.trainings import write_recipe


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_recipe(tmp_path)
    return tmp_path


def arguments(folder: Path, *more: str) -> list[str]:
    return ["train", str(folder / "transformer.json"), "--data", str(folder), "--out", str(folder / "run"), *more]


def test_a_training_names_the_next_command_and_is_finished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = succeeded(*arguments(folder)).output
    assert "stopped by max_steps = 6" in trained
    assert f"edgeformer export {folder / 'run'} --out BUNDLE" in trained
    assert (folder / "run" / "training.png").read_bytes().startswith(b"\x89PNG")

    before = {path: path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()}
    options = ["--out", str(folder / "run"), "--data", str(folder), "--resume"]
    result = succeeded("train", *options)
    assert "There is nothing to do: max_steps = 6 was reached after 6 steps." in result.output
    assert "--set train.max_steps=VALUE" in result.output
    assert "--resume" in error(*arguments(folder))
    assert {path: path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()} == before
    with monkeypatch.context() as context:
        context.setenv("RANK", "1")  # a process other than the first prints nothing
        assert succeeded("train", *options).output == ""
    assert "stopped by max_steps = 8" in succeeded("train", *options, "--set", "train.max_steps=8").output


def test_files_beside_the_recipe_are_found(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    succeeded("train", "../transformer.json", "--out", "run")
    (folder / "letters.tsv").rename(folder / "renamed.tsv")
    assert "`letters.tsv` does not exist; check the path" in error("train", "../transformer.json", "--out", "other")


def test_without_matplotlib_there_is_a_note_and_no_picture(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "edgeformer.train.report.picture", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = succeeded(*arguments(folder))
    assert "A picture of the training needs `matplotlib`: pip install 'edgeformer[plot]'." in result.output
    assert not (folder / "run" / "training.png").exists()


def test_the_current_folder_is_refused_early(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "empty").mkdir()
    monkeypatch.chdir(folder / "empty")
    monkeypatch.setattr("edgeformer.train.trainer.load_corpus", lambda *_: pytest.fail("too late"))
    assert "`.` is the current folder" in error(*arguments(folder)[:-1], ".")


def test_missing_recipe_is_a_usage_error(folder: Path) -> None:
    result = run("train", "--out", folder / "run")
    assert result.exit_code == 2
    assert all(name in result.output for name in recipe_names())


@pytest.mark.parametrize("name", recipe_names())
def test_shipped_recipes_are_valid_and_described(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.description
    assert f"{recipe.source_language}-{recipe.target_language}" in name
    assert recipe.data.corpus
    assert recipe.data.corpus in CORPORA
    assert name.startswith(str(recipe.data.corpus).removesuffix("-tok"))
