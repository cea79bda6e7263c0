"""Damaged models of every format: refused in one line, or read, in little memory and time."""

from __future__ import annotations

import shutil
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'edgeformer[bench]'")
pytest.importorskip("sentencepiece", reason="the extra `import` is not installed")

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import read_npz
from edgeformer.importers.ctranslate2.model_file import read_model_file
from edgeformer.importers.marian.binary import read_binary, read_shortlist
from edgeformer.importers.read import read_model
from edgeformer.importers.run_folder import write_run
from tests import amounts
from tests.importers import hugging_face_models, test_argos
from tests.importers.bergamot_models import bergamot_files, binary_model
from tests.importers.ctranslate2_models import write_model_file
from tests.importers.marian_models import MARIAN
from tests.importers.packing import pack
from tests.importers.test_bergamot import VOCABULARY, shortlist
from tests.importers.test_hugging_face_vocabularies import saved_again
from tests.importers.test_unread import POINTER
from tests.robustness import mutations
from tests.robustness.outcomes import Outcome, Result, measured

if not sys.platform.startswith("linux"):
    pytest.skip("limits memory as only Linux can", allow_module_level=True)

MEMORY, SECONDS = 256, 20.0
"""MiB that memory may rise by, for models of less than two megabytes, and seconds that a case may take."""
FAST = (
    "marian.zip",
    "bergamot.gz",
    "argos",
    "huggingface.marian",
    "huggingface.t5",
    "tokenizer.json",
)
"""Formats of the fast tests: one of each reader, and each way to pack them."""
WHOLE_EVERY = 10
"""One model in so many that can be read is also written as a run, which uses its tokenizers and weights."""


def marian(folder: Path) -> None:
    shutil.copytree(MARIAN / "pre-norm", folder, ignore=shutil.ignore_patterns("expected.json"))
    shutil.copyfile(MARIAN / "ssru" / "decoder.yml", folder / "decoder.yml")
    (folder / "decoder.yml").write_text("beam-size: 6\nnormalize: 1\n")


def bergamot(folder: Path) -> None:
    folder.mkdir()
    for name, content in bergamot_files("ssru").items():
        (folder / name).write_bytes(content)
    (folder / "lex.50.50.enfr.s2t.bin").write_bytes(shortlist([[index] for index in range(VOCABULARY)]))


def ctranslate2(folder: Path) -> None:
    root = test_argos.package(folder.parent / "package")
    shutil.copytree(root / "model", folder)
    shutil.copyfile(root / "sentencepiece.model", folder / "sentencepiece.model")


def argos(folder: Path) -> None:
    shutil.copytree(test_argos.package(folder.parent / "package"), folder, ignore=shutil.ignore_patterns("*.npz"))


def pickled(folder: Path, *, archive: bool) -> None:
    hugging_face_models.t5(folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin", _use_new_zipfile_serialization=archive)


def saved_today(folder: Path) -> None:
    hugging_face_models.t5(folder.parent / "t5")
    saved_again("t5", folder.parent / "t5", folder)


FORMATS: dict[str, tuple[Callable[[Path], object], str]] = {
    "marian": (marian, ""),
    "marian.zip": (marian, "zip"),
    "bergamot": (bergamot, ""),
    "bergamot.gz": (bergamot, "gz"),
    "ctranslate2": (ctranslate2, ""),
    "argos": (argos, "argosmodel"),
    **{f"huggingface.{name}": (write, "") for name, write in hugging_face_models.ARCHITECTURES.items()},
    "pickled": (partial(pickled, archive=True), ""),
    "pickled-before-torch-1.6": (partial(pickled, archive=False), ""),
    "tokenizer.json": (saved_today, ""),
}
"""Makers of models, and what they are packed in."""
LANGUAGES = {f"huggingface.{name}": languages for name, languages in hugging_face_models.TRANSLATES.items()}
"""Languages to choose for models of several."""


def damage(random: Random, files: list[Path]) -> str:
    """Damage one or two files; return how."""
    file = random.choice(files)
    data = file.read_bytes()
    kind = random.choice(("edited", "edited", "truncated", "pointer", "swapped", "emptied", "missing", "json"))
    if kind == "json" and file.suffix == ".json":
        file.write_bytes(mutations.random_json(random, data))
    elif kind == "truncated":
        file.write_bytes(data[: random.randrange(len(data) + 1)])
    elif kind == "pointer":
        file.write_bytes(POINTER)
    elif kind == "swapped":
        other = random.choice(files)
        content = other.read_bytes()
        other.write_bytes(data)
        file.write_bytes(content)
    elif kind == "emptied":
        file.write_bytes(b"")
    elif kind == "missing":
        file.unlink()
    else:
        file.write_bytes(mutations.random_edits(random, data))
    return f"{kind} {file.name}"


def make(name: str, folder: Path) -> None:
    """Write an undamaged model, and the same packed."""
    folder.mkdir()
    write, how = FORMATS[name]
    write(folder / "model")
    shutil.copytree(folder / "model", folder / "packed" / "model")
    if how and pack(folder / "packed" / "model", how).is_file():
        shutil.rmtree(folder / "packed" / "model")


def case(number: int, name: str, original: Path, folder: Path) -> tuple[str, Result]:
    """Read a damaged copy of a model; one that is packed may be damaged before or afterwards."""
    random, (_, how) = Random(f"{name}:{number}"), FORMATS[name]
    shutil.rmtree(folder, ignore_errors=True)
    packed_first = bool(how) and random.random() < 0.8
    shutil.copytree(original / "packed" if packed_first else original, folder, ignore=shutil.ignore_patterns("packed"))
    (path,) = [path for path in folder.iterdir() if path.name.startswith("model")]
    what = damage(random, [file for file in sorted(path.rglob("*") if path.is_dir() else [path]) if file.is_file()])
    path = path if packed_first or not how else pack(path, how)

    def read() -> Result:
        source, target = LANGUAGES.get(name, ("", ""))
        found = read_model(path, None, source_language=source, target_language=target)
        if number % WHOLE_EVERY == 0:
            write_run(found.model, folder / "run", found.origin, text=["a"])
        return Result(Outcome.OTHER)

    return what, measured(read, MEMORY)


@pytest.mark.parametrize("name", [pytest.param(name, marks=amounts.slow_unless(name in FAST)) for name in FORMATS])
def test_damaged_models_are_refused_or_read(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    count = amounts.cases(8, 30 if name.startswith("pickled") else 150)  # a process reads each file of torch first
    original, outcomes = tmp_path / "original", Counter[str]()
    make(name, original)
    for number in range(count):
        start = time.monotonic()
        what, result = case(number, name, original, tmp_path / "case")
        assert not result.outcome.is_defect, f"{name}:{number}, {what}: {result.detail}"
        assert time.monotonic() - start < SECONDS, f"{name}:{number}, {what}"
        if what.startswith("pointer") and not what.endswith(("README.md", "source.tcmodel")):
            assert "is a pointer of git-LFS" in result.detail, f"{name}:{number}, {what}: {result.detail}"
        outcomes[result.outcome.value] += 1
    record_property("outcomes", dict(outcomes))
    assert outcomes[Outcome.REFUSED.value] > count / 4
    assert count < 100 or outcomes[Outcome.OTHER.value] > count / 100


# Headers, which state the sizes of what follows.

ALLOWANCE = 4 << 20
"""Bytes that a reader may take beside twice the size of its file."""


def npz_file(path: Path) -> None:
    np.savez(path, a=np.arange(12, dtype=np.float32).reshape(3, 4), b=np.zeros((1, 4)))


def bergamot_file(path: Path) -> None:
    options = np.frombuffer(b"type: transformer\0", np.int8)
    arrays: dict[str, Any] = {
        "encoder_Wemb": np.arange(12, dtype=np.float32).reshape(4, 3) - 5,
        "special:model.yml": options,
    }
    path.write_bytes(binary_model(arrays, {"none_QuantMultA": 2.5}))


def ctranslate2_file(path: Path) -> None:
    arrays: dict[str, Any] = {"a": np.ones((4, 3), np.float32), "b": np.ones(5, np.int8)}
    write_model_file(path, arrays, version=6, aliases={"c": "a"})


def shortlist_file(path: Path) -> None:
    path.write_bytes(shortlist([[1], [2, 3]]))


READERS: dict[str, tuple[Callable[[Path], None], Callable[[Path], object]]] = {
    "npz": (npz_file, read_npz),
    "bergamot": (bergamot_file, read_binary),
    "ctranslate2": (ctranslate2_file, read_model_file),
    "shortlist": (shortlist_file, lambda path: read_shortlist(path, 2, 50)),
}
"""Writers of small files, which are almost nothing but header, and their readers."""


@pytest.mark.parametrize("name", READERS)
@amounts.examples(40, 2000)
@given(data=st.data())
def test_damaged_headers_take_little_memory(
    name: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    write, read = READERS[name]
    path = tmp_path_factory.getbasetemp() / f"damaged.{name}"
    write(path)
    read(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        size = data.draw(st.sampled_from([1, 4, 8]))
        start = data.draw(st.integers(0, len(content) - size))
        content[start : start + size] = data.draw(st.binary(min_size=size, max_size=size))
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))] if data.draw(st.booleans()) else content)
    tracemalloc.start()
    try:
        read(path)
    except ImporterError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak <= 2 * len(content) + ALLOWANCE
