"""Models by name: where they are looked for, and that commands take their names."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest

from edgeformer.cli import main
from edgeformer_runtime import BundleError, Translator
from edgeformer_runtime.cli.options import BundlePath
from edgeformer_runtime.models.names import find_bundle, model_folders, named_models, user_folder
from edgeformer_server.workspace import Workspace
from tests.commands import error, run
from tests.server.test_workspace import bundle_between

OTHER_PATHS = {("distill", "source"), ("export", "run"), ("models", "folders")}
"""Arguments of commands that are paths, but not of bundles."""


@pytest.fixture
def folders(small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two folders of models, with ``en-fr`` in both, and what is no model."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        bundle_between(small_bundle, folder, "en-fr", "en", "fr")
    bundle_between(small_bundle, second, "de-en", "de", "en")
    (first / "notes").mkdir()
    (first / "notes" / "README.md").touch()
    (first / "rest").mkdir()
    (first / "rest" / "decoder.onnx").touch()
    (first / "broken").mkdir()
    (first / "broken" / "manifest.json").write_text("{")
    monkeypatch.setenv("EDGEFORMER_MODELS", os.pathsep.join(map(str, (first, tmp_path / "missing", second))))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
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
        served = [(model.name, model.path) for model in Workspace({}, folder=folder).catalog().models]
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
        f"`{first / 'broken'}` is skipped: The bundle's manifest is not valid JSON",
        f"`{first / 'rest'}` is skipped: it has no `manifest.json`.",
        f"`{second / 'en-fr'}` is skipped: `{first / 'en-fr'}` has the same name.",
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


def test_the_variable_comes_first_then_the_current_folder_then_ones_own(
    folders: tuple[Path, Path], small_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = folders
    monkeypatch.setenv("EDGEFORMER_MODELS", str(first))
    assert model_folders() == [first, Path("models"), user_folder()]
    assert user_folder().is_relative_to(os.environ["XDG_DATA_HOME"]) or sys.platform != "linux"
    for folder, names in ((Path("models"), ("en-fr", "es-en")), (user_folder(), ("en-fr", "es-en", "it-en"))):
        folder.mkdir(parents=True)
        for name in names:
            bundle_between(small_bundle, folder, name, *name.split("-"))
    found = {"en-fr": first, "es-en": Path("models"), "it-en": user_folder()}
    assert {model.name: model.path.parent for model in named_models()} == found
    assert {name: find_bundle(name).parent for name in found} == found
    titles = [line for line in run("models").stdout.splitlines() if line.startswith("Models in ")]
    assert [line.split()[-1] for line in titles] == [str(first), "models", str(user_folder())]
    monkeypatch.setenv("EDGEFORMER_MODELS", str(Path("models").resolve()))
    assert len(model_folders()) == 2, "a folder that is named twice is searched once"


def test_no_command_can_forget_names(folders: tuple[Path, Path]) -> None:
    taking = set()
    for entry in entry_points(group="edgeformer.commands"):
        command = main.get_command(click.Context(main), entry.name)
        assert command is not None
        for parameter in command.params:
            if not isinstance(parameter, click.Argument) or not isinstance(parameter.type, click.Path):
                continue
            if (entry.name, parameter.name) in OTHER_PATHS:
                continue
            assert isinstance(parameter.type, BundlePath), f"{entry.name} {parameter.human_readable_name}"
            assert parameter.type.convert("de-en", parameter, None) == folders[1] / "de-en"
            taking.add(entry.name)
    assert {"bench", "distill", "evaluate", "inspect", "score", "sign", "translate", "verify"} <= taking


def test_a_device_with_only_what_translates_has_no_models_of_its_own(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert model_folders()[-1] == Path("models")
    assert find_bundle("de-en") == folders[1] / "de-en"
    with pytest.raises(BundleError, match="`missing` does not exist"):
        Translator.open("missing")


def test_a_model_is_removed(folders: tuple[Path, Path], small_bundle: Path) -> None:
    first, second = folders
    own = user_folder() / "own"
    own.parent.mkdir(parents=True, exist_ok=True)
    bundle_between(small_bundle, own.parent, "own", "en", "fr")
    with Translator.open("own", threads=1) as translator:
        assert f"Removed `{own}`" in run("models", "--remove", "own").stderr
        assert translator.translate(["The old dog runs."])[0].text
    assert not own.exists()
    assert not [path for path in own.parent.iterdir() if "own" in path.name]
    assert "no model `own`" in error("models", "--remove", "own")
    assert f"it is in `{second}`" in error("models", "--remove", "de-en")
    run("models", second, "--remove", "de-en", "--remove", "en-fr")
    assert [model.path for model in named_models()] == [first / "en-fr"]
    for name in ("", ".", "..", "../first/en-fr", "notes", "missing"):
        assert "There is no model" in (message := error("models", first, "--remove", name))
        assert message.endswith("see `edgeformer models`.")
    assert (first / "en-fr").is_dir()


def test_a_workspace_takes_names(folders: tuple[Path, Path]) -> None:
    workspace = Workspace.of(["de-en", "en-fr"])
    assert [model.name for model in workspace.catalog().models] == ["de-en", "en-fr"]


def test_without_models_there_is_nothing_to_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert named_models() == []
    assert "There are no models in `models`, " in run("models").stderr
    assert "There is no model to serve" in run("serve").stderr
