"""Bundles by name and language pair, opened on demand, closed within a budget, reloaded when they are replaced."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from edgeformer_runtime import BundleError, EdgeformerError, OptionError, SessionError, Translator
from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.errors import ConfigError, DeviceError
from edgeformer_runtime.models.model import read_model
from edgeformer_server.languages import Hop
from edgeformer_server.workspace import Workspace
from tests.bundles import edit_manifest

TEXT = "The old dog runs."


def bundle_between(bundle: Path, folder: Path, name: str, source: str, target: str) -> Path:
    """Copy a bundle and change its languages."""
    copy = Path(shutil.copytree(bundle, folder / name))
    return edit_manifest(copy, lambda tree: tree.update(source_language=source, target_language=target))


def opened(bundle: Bundle) -> Translator:
    return Translator.open(bundle, threads=1)


def workspace(paths: dict[str, Path], **settings: Any) -> Workspace:
    return Workspace(paths, open_translator=opened, refresh_seconds=0, **settings)


@pytest.fixture
def folder(small_bundle: Path, tmp_path: Path) -> Path:
    """A folder with the bundles ``de-en``, ``en-fr`` and ``en-es``."""
    folder = tmp_path / "bundles"
    folder.mkdir()
    for name in ("de-en", "en-fr", "en-es"):
        bundle_between(small_bundle, folder, name, *name.split("-"))
    return folder


def test_pairs_are_found_directly_and_through_a_third_language(folder: Path) -> None:
    models = workspace({}, folder=folder)
    assert [model.name for model in models.catalog().models] == ["de-en", "en-es", "en-fr"]
    assert models.catalog().route("en", "fr") == (Hop("en-fr", "en", "fr"),)
    assert models.catalog().route("de", "es") == (Hop("de-en", "de", "en"), Hop("en-es", "en", "es"))
    assert models.catalog().targets_of("de") == ["en", "es", "fr"]
    assert models.catalog().targets_of("en") == ["es", "fr"]
    assert models.catalog().targets_of("fr") == []
    with pytest.raises(OptionError, match="No model translates from `fr` to `de`"):
        models.catalog().route("fr", "de")


def test_english_is_the_preferred_third_language(small_bundle: Path, tmp_path: Path) -> None:
    names = ("de-da", "da-fr", "de-en", "en-fr")
    paths = {name: bundle_between(small_bundle, tmp_path, name, *name.split("-")) for name in names}
    assert workspace(paths).catalog().route("de", "fr")[0].target == "en"
    assert workspace({name: paths[name] for name in names[:2]}).catalog().route("de", "fr")[0].target == "da"


def test_languages_of_a_bundle_without_any_come_from_its_name(small_bundle: Path, tmp_path: Path) -> None:
    path = bundle_between(small_bundle, tmp_path, "bundle", "", "")
    assert workspace({"en-fr": path}).catalog().route("en", "fr") == (Hop("en-fr", "en", "fr"),)


def test_a_model_with_several_languages_translates_between_all(small_bundle: Path, tmp_path: Path) -> None:
    path = bundle_between(small_bundle, tmp_path, "many", "", "")
    languages = {"languages": {"en": "a", "fr": "b", "de": "c"}, "source_prefix": ["{source_language}"]}
    edit_manifest(path, lambda tree: tree.update(text=languages | {"target_prefix": ["{target_language}"]}))
    models = workspace({"many": path})
    assert models.catalog().targets_of("fr") == ["de", "en"]
    assert models.catalog().route("fr", "de") == (Hop("many", "fr", "de"),)


def test_arguments_name_bundles_or_a_folder_of_them(folder: Path) -> None:
    models = Workspace.of([f"mine={folder / 'en-fr'}", str(folder / "de-en")])
    assert [model.name for model in models.catalog().models] == ["mine", "de-en"]
    assert len(Workspace.of([str(folder)]).catalog().models) == 3
    with pytest.raises(ConfigError, match="Two bundles have the name `en-fr`"):
        Workspace.of([str(folder / "en-fr"), f"en-fr={folder / 'en-es'}"])
    with pytest.raises(ConfigError, match="Give one folder of bundles"):
        Workspace.of([str(folder), str(folder.parent)])
    with pytest.raises(BundleError, match="has no bundle"):
        Workspace.of([str(folder.parent)])
    with pytest.raises(BundleError, match=r"`.*missing` does not exist; give what"):
        Workspace.of([str(folder / "missing")])


def test_the_least_recently_used_bundle_is_closed_first(folder: Path) -> None:
    one = sum(entry.size for entry in workspace({}, folder=folder).catalog().model("en-fr").manifest.files.values())
    models = workspace({}, folder=folder, memory=2 * one + one // 2)
    for name in ("de-en", "en-fr", "de-en", "en-es"):
        with models.lease(name) as translator:
            translator.translate([TEXT])
    assert set(models.open_models) == {"de-en", "en-es"}
    assert sum(models.open_models.values()) <= 2 * one + one // 2


def test_a_bundle_in_use_is_never_closed(folder: Path) -> None:
    models = workspace({}, folder=folder, memory=1)
    with models.lease("de-en") as first:
        with models.lease("en-fr") as second:
            assert len(models.open_models) == 2
            assert second.translate([TEXT])[0].text == first.translate([TEXT])[0].text
        assert set(models.open_models) == {"de-en"}
        first.translate([TEXT])
    assert not models.open_models
    with pytest.raises(SessionError):
        first.translate([TEXT])


def replace_bundle(path: Path, replacement: Path) -> None:
    path.rename(replacement.with_name(f".{replacement.name}.old"))
    replacement.rename(path)


@pytest.fixture
def path(small_bundle: Path, tmp_path: Path) -> Path:
    """A bundle that may be replaced."""
    return bundle_between(small_bundle, tmp_path, "bundle", "en", "fr")


def test_a_bundle_that_is_replaced_while_it_is_opened_is_opened_again(
    small_bundles: Any, path: Path, tmp_path: Path
) -> None:
    tries: list[str] = []

    def replaced_meanwhile(bundle: Bundle) -> Translator:
        tries.append(bundle.manifest.precision["decoder.onnx"])
        if len(tries) == 1:
            replace_bundle(path, bundle_between(small_bundles["int8"], tmp_path, "new", "en", "fr"))
            raise BundleError("changed")
        return opened(bundle)

    models = Workspace({"bundle": path}, open_translator=replaced_meanwhile)
    with models.lease("bundle") as translator:
        assert translator.translate([TEXT])[0].text
    assert tries == ["fp32", "int8"]
    models.close()


def test_a_replaced_bundle_is_reloaded_while_the_old_one_finishes(
    small_bundles: Any, path: Path, tmp_path: Path
) -> None:
    models = workspace({"bundle": path})
    with models.lease("bundle") as old:
        replace_bundle(path, bundle_between(small_bundles["int8"], tmp_path, "new", "en", "de"))
        with models.lease("bundle") as new:
            assert new is not old
            assert new.bundle.manifest.precision["decoder.onnx"] == "int8"
            assert not models.has_changed(new)
        assert models.has_changed(old)
        assert old.translate([TEXT])[0].text
    with pytest.raises(SessionError):
        old.translate([TEXT])
    assert models.catalog().targets_of("en") == ["de"]


def test_a_damaged_replacement_leaves_the_old_bundle_in_use(small_bundle: Path, path: Path, tmp_path: Path) -> None:
    models = workspace({"bundle": path})
    with models.lease("bundle") as old:
        pass
    damaged = bundle_between(small_bundle, tmp_path, "new", "en", "fr")
    (damaged / "tokenizer.json").write_bytes(b"{}")
    replace_bundle(path, damaged)
    with models.lease("bundle") as translator:
        assert translator is old
    assert not models.is_open(models.catalog().model("bundle"))
    replace_bundle(path, bundle_between(small_bundle, tmp_path, "newer", "en", "fr"))
    with models.lease("bundle") as translator:
        assert translator is not old


def test_a_bundle_that_cannot_be_opened_is_an_error_of_its_own(folder: Path) -> None:
    (folder / "en-es" / "weights.bin").write_bytes(b"")
    models = workspace({}, folder=folder)
    with pytest.raises(EdgeformerError, match="is damaged"), models.lease("en-es"):
        pass
    with models.lease("en-fr") as translator:
        assert translator.translate([TEXT])[0].text
    with pytest.raises(OptionError, match="There is no model `x`; the models are de-en, en-es, en-fr"):
        models.lease("x").__enter__()


def test_bundles_that_appear_and_disappear_are_noticed(folder: Path, small_bundle: Path) -> None:
    models = workspace({}, folder=folder)
    bundle_between(small_bundle, folder, "en-it", "en", "it")
    assert "it" in models.catalog().targets_of("en")
    with models.lease("en-fr") as idle, models.lease("en-it"):
        pass
    with models.lease("de-en") as used:
        shutil.rmtree(folder / "de-en")
        shutil.rmtree(folder / "en-fr")
        assert [model.name for model in models.catalog().models] == ["en-es", "en-it"]
        assert set(models.open_models) == {"en-it"}
        with pytest.raises(SessionError):
            idle.translate([TEXT])
        assert used.translate([TEXT])[0].text
    with pytest.raises(SessionError):
        used.translate([TEXT])
    folder.rename(folder.with_name("elsewhere"))
    assert models.catalog().models == ()
    folder.with_name("elsewhere").rename(folder)
    assert len(models.catalog().models) == 2


class Opener:
    """Opens bundles, unless it has an error to raise."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.attempts = 0

    def __call__(self, bundle: Bundle) -> Translator:
        self.attempts += 1
        if self.error:
            raise self.error
        return opened(bundle)


@pytest.mark.parametrize("room", [1.5, 9])
def test_a_closed_bundle_is_never_leased_nor_a_refused_one_opened_again(
    small_bundle: Path, path: Path, tmp_path: Path, room: float
) -> None:
    """A replacement that only the engine refuses, within a budget that has room for both or not."""
    opener, memory = Opener(), int(room * read_model("bundle", path).nbytes)
    models = Workspace({"bundle": path}, open_translator=opener, refresh_seconds=0, memory=memory)
    with models.lease("bundle") as old:
        pass
    replace_bundle(path, bundle_between(small_bundle, tmp_path, "new", "en", "fr"))
    opener.error = DeviceError("refused")
    for _ in range(3):
        with models.lease("bundle") as translator:
            assert translator is old
            assert translator.translate([TEXT])[0].text
    assert opener.attempts == 2
    opener.error = None
    replace_bundle(path, bundle_between(small_bundle, tmp_path, "newer", "en", "fr"))
    with models.lease("bundle") as translator:
        assert translator is not old
    with pytest.raises(SessionError):
        old.translate([TEXT])


def test_a_bundle_whose_replacement_was_interrupted_can_be_closed(
    small_bundle: Path, path: Path, tmp_path: Path
) -> None:
    opener = Opener()
    models = Workspace({"bundle": path}, open_translator=opener, refresh_seconds=0)
    with models.lease("bundle") as old:
        pass
    replace_bundle(path, bundle_between(small_bundle, tmp_path, "new", "en", "fr"))
    opener.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt), models.lease("bundle"):
        pass
    opener.error = None
    with models.lease("bundle"):
        pass
    with pytest.raises(SessionError):
        old.translate([TEXT])


def test_a_model_is_open_if_what_is_open_is_what_is_on_disk(small_bundle: Path, path: Path, tmp_path: Path) -> None:
    models = workspace({"bundle": path})
    assert not models.is_open(models.catalog().model("bundle"))
    with models.lease("bundle"):
        assert models.is_open(models.catalog().model("bundle"))
    assert models.is_open(models.catalog().model("bundle"))
    replace_bundle(path, bundle_between(small_bundle, tmp_path, "new", "en", "fr"))
    assert not models.is_open(models.catalog().model("bundle"))
    with models.lease("bundle"):
        assert models.is_open(models.catalog().model("bundle"))
    with models.lease("bundle") as translator:
        pass
    models.close()
    assert not models.is_open(models.catalog().model("bundle"))
    with pytest.raises(SessionError):
        translator.translate([TEXT])
