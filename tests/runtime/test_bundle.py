"""Opening a bundle: nothing that was changed, cut, lost or replaced is used."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from edgeformer_runtime import BundleError, Translator, open_bundle
from edgeformer_runtime.bundle.open import file_sha256, manifest_hash_line
from tests.amounts import combinations
from tests.bundles import BUNDLE_FILES, copy_of, write_manifest
from tests.commands import error


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def replace_by_symlink(path: Path) -> None:
    path.rename(path.parent.parent / path.name)
    path.symlink_to(path.parent.parent / path.name)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = (flip_byte, truncate, empty, append, Path.unlink, replace_by_symlink, replace_by_folder)


def test_the_list_of_files_is_complete(small_bundle: Path) -> None:
    assert sorted(path.name for path in small_bundle.iterdir()) == sorted(BUNDLE_FILES)
    assert {*open_bundle(small_bundle).manifest.files, "manifest.json", "manifest.json.sha256"} == set(BUNDLE_FILES)


@combinations(name=BUNDLE_FILES, damage=DAMAGES)
def test_damage_is_refused_and_the_file_named(
    small_bundle: Path, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    damage(bundle / name)
    # A hash file that does not fit does not tell which of the two was changed.
    named = f"`{name.removesuffix('.sha256')}"
    with pytest.raises(BundleError) as caught:
        open_bundle(bundle)
    assert named in str(caught.value)
    assert named in error("translate", bundle, "The dog runs.")


def test_a_value_of_the_manifest_that_stays_valid_is_refused_too(small_bundle: Path, tmp_path: Path) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    data = (bundle / "manifest.json").read_bytes()
    for old, new in ((b'"beam_size": 4', b'"beam_size": 5'), (b'"source_language": "en"', b'"source_language": "el"')):
        changed = data.replace(old, new, 1)
        assert changed != data
        write_manifest(bundle, changed)
        open_bundle(bundle)  # with its hash it would pass
        (bundle / "manifest.json.sha256").write_bytes(manifest_hash_line(data))
        with pytest.raises(BundleError, match=r"`manifest\.json` does not match its SHA-256"):
            open_bundle(bundle)


def test_every_bad_file_is_listed(small_bundle: Path, tmp_path: Path) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    for name in ("weights.bin", "decoder.onnx"):
        flip_byte(bundle / name)
    with pytest.raises(BundleError, match=r"`decoder\.onnx` does not match its SHA-256; `weights\.bin` does not match"):
        open_bundle(bundle)
    truncate(bundle / "encoder.onnx")
    (bundle / "golden.json").unlink()
    with pytest.raises(BundleError) as caught:
        open_bundle(bundle)
    message = str(caught.value)
    size = (small_bundle / "encoder.onnx").stat().st_size
    assert f"`encoder.onnx` has {size - 1} bytes instead of {size}" in message
    assert "`golden.json` is missing" in message


def test_a_file_that_cannot_be_read_is_named(
    small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = copy_of(small_bundle, tmp_path)

    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("edgeformer_runtime.bundle.open.file_sha256", refuse)
    with pytest.raises(BundleError, match=r"`weights\.bin` cannot be read \(Permission denied\)"):
        open_bundle(bundle)


def test_a_missing_folder_and_a_file_are_told_apart(small_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="does not exist"):
        open_bundle(tmp_path / "nowhere")
    with pytest.raises(BundleError, match="is not a folder"):
        open_bundle(small_bundle / "manifest.json")
    with pytest.raises(BundleError, match=r"has no `manifest\.json`"):
        open_bundle(tmp_path)


def test_files_beside_the_listed_ones_are_ignored(small_bundle: Path, tmp_path: Path) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    (bundle / "notes.txt").write_text("mine", encoding="utf-8")
    opened = open_bundle(bundle)
    with pytest.raises(BundleError, match=r"has no `notes\.txt`"):
        opened.file("notes.txt")


def test_a_bundle_that_was_opened_by_a_relative_path_stays_found(
    small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_of(small_bundle, tmp_path).rename(tmp_path / "naïve [café] name")
    monkeypatch.chdir(tmp_path)
    translator = Translator.open("naïve [café] name", threads=1)
    monkeypatch.chdir("/")
    translations = translator.translate(["The old dog runs."])
    assert translator.attention(translations)[0].weights.size
    copy = pickle.loads(pickle.dumps(translator))
    assert copy.translate(["The old dog runs."])[0].text == translations[0].text


def test_no_file_is_read_if_one_has_the_wrong_size(
    small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    truncate(bundle / "weights.bin")
    monkeypatch.setattr("edgeformer_runtime.bundle.open.file_sha256", lambda path: pytest.fail(f"{path} was read"))
    with pytest.raises(BundleError, match=r"`weights\.bin` has \d+ bytes instead of"):
        open_bundle(bundle)


def test_the_hash_file_is_what_sha256sum_writes(small_bundle: Path) -> None:
    data = (small_bundle / "manifest.json").read_bytes()
    assert (small_bundle / "manifest.json.sha256").read_bytes() == manifest_hash_line(data)
    assert manifest_hash_line(b"") == (
        b"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  manifest.json\n"
    )
    assert file_sha256(small_bundle / "manifest.json") == manifest_hash_line(data)[:64].decode()
