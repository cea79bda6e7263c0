"""Models by name: where they are looked for, and that commands take their names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from edgeformer_runtime.workspace.names import find_bundle, named_models
from edgeformer_runtime.workspace.workspace import Workspace
from tests.commands import run
from tests.runtime.test_workspace import bundle_between


@pytest.fixture
def folders(small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two folders of models, with ``en-fr`` in both, and what is no model."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        bundle_between(small_bundle, folder, "en-fr", "en", "fr")
    bundle_between(small_bundle, second, "de-en", "de", "en")
    (first / "notes").mkdir()
    (first / "broken").mkdir()
    (first / "broken" / "manifest.json").write_text("{")
    monkeypatch.setenv("EDGEFORMER_MODELS", os.pathsep.join(map(str, (first, tmp_path / "missing", second))))
    monkeypatch.chdir(tmp_path)
    return first, second


def test_the_first_folder_wins_and_what_is_no_bundle_is_left_out(folders: tuple[Path, Path]) -> None:
    first, second = folders
    assert [(model.name, model.path) for model in named_models()] == [
        ("en-fr", first / "en-fr"),
        ("de-en", second / "de-en"),
    ]
    assert [model.name for model in named_models([second])] == ["de-en", "en-fr"]


def test_what_is_listed_is_what_is_served_and_found(folders: tuple[Path, Path], small_bundle: Path) -> None:
    first, second = folders
    bundle_between(small_bundle, second, ".hidden", "es", "en")
    bundle_between(small_bundle, second, "broken", "it", "en")
    for folder in folders:
        served = [(model.name, model.path) for model in Workspace({}, folder=folder).models()]
        assert [(model.name, model.path) for model in named_models([folder])] == served
    assert [model.name for model in named_models([second])] == ["broken", "de-en", "en-fr"]
    assert find_bundle(".hidden") == Path(".hidden")
    listed = {model.name: model.path for model in named_models()}
    assert "broken" not in listed, "the first of this name, which commands find, cannot be read"
    assert find_bundle("broken") == first / "broken"
    assert {name: find_bundle(name) for name in listed} == listed


def test_what_is_left_out_is_said(folders: tuple[Path, Path]) -> None:
    first, second = folders
    (first / ".hidden").mkdir()
    (first / "notes.txt").touch()
    reasons = run("models", first, second, first, "--json").stderr.splitlines()
    assert [reason.partition(" (")[0] for reason in dict.fromkeys(reasons)] == [
        f"`{first / 'broken'}` is left out: The bundle's manifest is not valid JSON",
        f"`{first / 'notes'}` is left out: it has no `manifest.json`.",
        f"`{second / 'en-fr'}` is left out: `{first / 'en-fr'}` has the same name.",
    ]
    assert run("models", second).stderr == ""


def test_a_path_comes_before_a_name(folders: tuple[Path, Path], tmp_path: Path) -> None:
    _, second = folders
    assert find_bundle("de-en") == second / "de-en"
    assert find_bundle("first/en-fr") == Path("first/en-fr")
    assert find_bundle("none") == Path("none")
    (tmp_path / "en-fr").mkdir()
    assert find_bundle("en-fr") == Path("en-fr")
    assert find_bundle("notes") == Path("notes"), "a folder without manifest is no model"


def test_commands_take_names(folders: tuple[Path, Path]) -> None:
    listed = json.loads(run("models", "--json").stdout)
    assert [(model["name"], model["sources"], model["targets"]) for model in listed] == [
        ("en-fr", ["en"], ["fr"]),
        ("de-en", ["de"], ["en"]),
    ]
    assert listed[0]["bytes"] == sum(
        path.stat().st_size for path in (folders[0] / "en-fr").iterdir() if not path.name.startswith("manifest.json")
    )
    by_path = run("translate", folders[0] / "en-fr", "The old dog runs.")
    assert by_path.exit_code == 0
    assert run("translate", "en-fr", "The old dog runs.").stdout == by_path.stdout
    assert "en-fr" in run("models").stdout
    missing = run("translate", "fr-en", "The old dog runs.")
    assert missing.exit_code != 0
    assert "`edgeformer models` lists" in missing.stderr


def test_a_workspace_takes_names(folders: tuple[Path, Path]) -> None:
    workspace = Workspace.of(["de-en", "en-fr"])
    assert [model.name for model in workspace.models()] == ["de-en", "en-fr"]


def test_without_models_there_is_nothing_to_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGEFORMER_MODELS", raising=False)
    monkeypatch.chdir(tmp_path)
    assert named_models() == []
    assert "There are no models in `models`" in run("models").stderr
    assert "There is no model to serve" in run("serve").stderr
