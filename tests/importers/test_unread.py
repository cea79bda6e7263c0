"""Files that are no models, or not yet: what an import says about them, and what it unpacks."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from edgeformer.errors import ConfigError, ImporterError
from edgeformer.importers.archive import parse_yaml, read_npz, unpacked
from edgeformer.importers.read import read_model
from tests import commands
from tests.importers.marian_models import MARIAN
from tests.importers.packing import pack

pytest.importorskip("sentencepiece", reason="the extra `import` is not installed")

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:7d32a94b48c6609e076117af40de560e\nsize 13099731\n"


def reads(path: Path) -> str:
    """What an import says."""
    with pytest.raises((ConfigError, ImporterError)) as caught:
        read_model(path, None)
    message = str(caught.value)
    assert message.isprintable()
    return message


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of Marian. May be modified."""
    return Path(shutil.copytree(MARIAN / "ssru", tmp_path / "model"))


FOREIGN = {
    "LoRA": (["config.json", "adapter_config.json", "adapter_model.safetensors"], "is a LoRA adapter; merge it"),
    "GGUF": (["model.gguf"], "has a GGUF file"),
    "NeMo": (["model.nemo"], "is a model of NeMo"),
    "Optimum": (["config.json", "encoder_model.onnx", "decoder_model_merged.onnx"], "has ONNX graphs, as Optimum"),
    "TensorFlow": (["config.json", "tf_model.h5"], "has weights of TensorFlow only"),
    "Flax": (["config.json", "flax_model.msgpack"], "has weights of Flax only"),
    "fairseq": (["checkpoint_best.pt", "dict.en.txt"], "`ct2-fairseq-converter`, and import the folder"),
    "fairseq without its dictionaries": (["checkpoint_last.pt"], "`ct2-fairseq-converter`, and import the folder"),
    "OpenNMT-py": (["model_step_1000.pt"], "is a model of OpenNMT-py; convert it with `ct2-opennmt-py-converter`, and"),
    "code of one's own": (
        ["model.pt"],
        "has weights of PyTorch, but their network is defined in the code that trained it",
    ),
    "JoeyNMT": (["best.ckpt", "config.yaml", "src_vocab.txt"], "export it from that code, as docs/your-own-model"),
    "Sockeye": (["params.best", "config", "vocab.src.0.json"], "export it from that code, as docs/your-own-model"),
    "OpenNMT-tf": (["checkpoint", "ckpt-1000.index", "ckpt-1000.data-00000-of-00001"], "`ct2-opennmt-tf-converter`"),
    "Eole": (["config.json", "model.00.safetensors", "vocab.json"], "ctranslate2.converters.eole_ct2`"),
    "a packed folder": (["model.tar.gz", "notes.md"], "is packed; unpack the archive, and import the folder"),
    "a bundle": (["manifest.json", "encoder.onnx"], "is a bundle; put it into a folder of models"),
    "a run": (["run.json", "recipe.toml"], "is a run; make a bundle of it"),
    "weights alone": (["model.safetensors"], "give the folder that also has config.json"),
    "nothing": (["notes.md"], "is not recognized. Formats: argos, bergamot"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_models_of_others_are_named(name: str, tmp_path: Path) -> None:
    files, words = FOREIGN[name]
    for file in files:
        (tmp_path / file).write_bytes(b"{}")
    if name in {"LoRA", "Optimum", "TensorFlow", "Flax"}:  # which transformers saves beside a configuration
        config = {"model_type": "marian", "architectures": ["MarianMTModel"]}
        (tmp_path / "config.json").write_text(json.dumps(config))
    assert words in reads(tmp_path)
    single = next((tmp_path / file for file in files if not file.endswith((".json", ".txt", "checkpoint"))), tmp_path)
    if name in {"GGUF", "NeMo", "Optimum", "TensorFlow", "Flax", "weights alone", "a packed folder", "nothing"}:
        assert words in reads(single)


def test_a_folder_one_level_up_names_the_folder(model: Path) -> None:
    (model.parent / "other").mkdir()
    assert f"has no model, but `{model}` has one" in reads(model.parent)


@pytest.mark.parametrize("file", ["vocab.spm", "decoder.yml"])
def test_pointers_of_git_lfs_are_named(model: Path, file: str) -> None:
    (model / file).write_bytes(POINTER)
    assert f"`{model / file}` is a pointer of git-LFS instead of the file; run `git lfs pull`" in reads(model)


@pytest.mark.parametrize(
    "file", ["model.safetensors", "pytorch_model.bin", "spiece.model", "vocab.json", "model.npz", "model.bin", "x.gz"]
)
def test_a_pointer_is_named_whatever_its_format(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_bytes(POINTER)
    assert "is a pointer of git-LFS" in reads(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}))
    assert "is a pointer of git-LFS" in reads(tmp_path)
    assert "is a pointer of git-LFS" in reads(tmp_path / file)


@pytest.mark.parametrize("name", ["model.npz", "x.argosmodel"])
@pytest.mark.parametrize("content", [b"", b"<html>404</html>", (MARIAN / "ssru/model.npz").read_bytes()[:100_000]])
def test_a_zip_file_that_is_none_is_damaged(model: Path, name: str, content: bytes) -> None:
    (model / "model.npz").unlink()
    (model / name).write_bytes(content)
    for path in (model, model / name):
        assert f"`{model / name}` is damaged: it is incomplete, or not a zip file. Download it again." in reads(path)


def test_messages_name_the_archive_and_not_where_it_is_unpacked(model: Path) -> None:
    (model / "model.npz").write_bytes(POINTER)
    archive = Path(shutil.make_archive(str(model), "zip", model))
    assert reads(archive).startswith(f"`{archive}/model.npz` is a pointer of git-LFS")


@pytest.mark.parametrize(
    ("stated", "tag"),
    [("en", "en"), ("EN", "en"), ("eng", "en"), ("en_us", "en-US"), ("eng_Latn", "en"), ("zt", "zh-Hant"), ("", "")],
)
def test_languages_are_recorded_as_bcp_47_tags(model: Path, stated: str, tag: str) -> None:
    assert read_model(model, None, source_language=stated).model.source_language == tag


@pytest.mark.parametrize("stated", ["English", "en fr", "x", "../.."])
def test_what_is_not_a_language_is_refused(model: Path, stated: str) -> None:
    with pytest.raises(ConfigError, match=f"`{stated}` is not a language; give a BCP 47 tag, such as en or pt-BR"):
        read_model(model, None, target_language=stated)


def test_a_tokenizer_is_told_by_its_content(model: Path, tmp_path: Path) -> None:
    own, other = model / "vocab.spm", tmp_path / "vocab.spm"
    assert read_model(model, None, tokenizers=[own]).importer == "marian"
    shutil.copy(MARIAN / "pre-norm/source.spm", other)
    with pytest.raises(ConfigError, match="is not needed: the model has a tokenizer of its own"):
        read_model(model, None, tokenizers=[other])


def test_gzip_files_are_unpacked(model: Path) -> None:
    expected = read_model(model, None)
    pack(model, "gz")
    for path in (model, model / "model.npz.gz"):
        found = read_model(path, None)
        assert found.importer == "marian"
        assert found.origin["name"].startswith("marian: model")
        assert {"model.npz.gz", "vocab.spm.gz"} <= found.model.hashes.keys()
        assert found.model.source_tokenizer == expected.model.source_tokenizer
        for name, array in found.model.weights.items():
            np.testing.assert_array_equal(array, expected.model.weights[name])
    (model / "vocab.spm.gz").unlink()
    message = reads(model)
    assert f"`{model}` must have one vocabulary or two" in message


def test_damaged_gzip_files_and_bombs_are_refused(model: Path) -> None:
    pack(model, "gz")
    path = model / "vocab.spm.gz"
    content = path.read_bytes()
    for damaged in (content[:1000], content[:-4] + b"abcd", b"xx" + content, POINTER):
        path.write_bytes(damaged)
        message = reads(model)
        assert "`vocab.spm` of" in message or "pointer of git-LFS" in message
    with gzip.open(path, "wb", 1) as stream:
        stream.write(bytes(65 << 20))
    assert "is compressed more than weights can be" in reads(model)


# Hostile archives and options.


def zipped(compression: int, content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        archive.writestr("model.npz", content)
    return stream.getvalue()


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_whose_unpacked_size_has_no_bound_are_refused(compression: int, tmp_path: Path) -> None:
    """A hundred bytes of bzip2 stand for gigabytes, which come in one piece."""
    for name in ("x.zip", "x.npz", "x.argosmodel"):
        (tmp_path / name).write_bytes(zipped(compression, bytes(1 << 20)))
    with pytest.raises(ImporterError, match="uses a compression method that zip files usually do not"):
        read_npz(tmp_path / "x.npz")
    with pytest.raises(ImporterError, match="uses a compression method"), unpacked(tmp_path / "x.zip"):
        pass
    assert "uses a compression method" in reads(tmp_path / "x.argosmodel")
    assert bz2.decompress(bz2.compress(b"a")) == b"a"


LIMITED = """
import resource, sys
from pathlib import Path
from edgeformer.errors import ImporterError
from edgeformer.importers.archive import parse_yaml

size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (300 << 20),) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
for file in sorted(Path(sys.argv[1]).iterdir()):
    try:
        parse_yaml(file.read_text())
        print("read")
    except ValueError as error:
        print(error)
"""
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + index)}: &{chr(98 + index)} [{','.join([f'*{chr(97 + index)}'] * 9)}]\n" for index in range(9)
)
MERGES = "a: &a {k: 1}\n" + "".join(
    f"{chr(98 + index)}: &{chr(98 + index)} {{<<: [{','.join([f'*{chr(97 + index)}'] * 9)}]}}\n" for index in range(9)
)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's limit of memory")
def test_yaml_takes_time_and_memory_of_its_size(tmp_path: Path) -> None:
    hostile = {
        "aliases": BOMB,
        "merged keys": MERGES,
        "an alias of itself": "a: &a [*a]",
        "a long number": "a: " + "9" * 900_000,
        "a long number to base 60": "a: 1:" + ":".join(["59"] * 150_000),
        "brackets": "a: " + "[" * 20_000 + "]" * 20_000,
        "a long file": "a: b\n" * 300_000,
        "an object": "a: !!python/object/apply:os.system [id]",
    }
    for name, text in hostile.items():
        (tmp_path / name).write_text(text)
    lines = commands.python(LIMITED, tmp_path).stdout.splitlines()
    assert len(lines) == len(hostile)
    assert "read" not in lines
    assert parse_yaml("a: [1, 0.5, x]\nb: {c: true}\n") == {"a": [1, 0.5, "x"], "b": {"c": True}}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("name", ["model.bin", "config.json", "model.npz", "vocab.spm", "README.md", "x.gz"])
def test_pipes_are_refused(model: Path, name: str) -> None:
    """They would be waited for."""
    (model / name).unlink(missing_ok=True)
    os.mkfifo(model / name)
    assert f"`{model / name}` is neither a file nor a folder" in reads(model)
    assert "is neither a file nor a folder" in reads(model / name)
