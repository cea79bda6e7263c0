"""Errors and translators in other processes, and the end of a translator."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

import edgeformer
import edgeformer_runtime
from edgeformer import errors
from edgeformer_runtime.errors import BundleError, EdgeformerError, InputError, InputTooLongError, SessionError
from edgeformer_runtime.translator import Translator
from tests.bundles import copy_of, edit_manifest
from tests.commands import python

TEXTS = ["The old dog runs.", "", "The green river sings."]
MODULES = [edgeformer_runtime.errors, errors, import_module("edgeformer_bench.peers.base")]
if find_spec("onnx_ir"):
    MODULES.append(import_module("edgeformer_export.export"))
ERRORS = {
    kind: kind("A sentence.")
    for module in MODULES
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, EdgeformerError) and not issubclass(kind, InputError)
}
ERRORS |= {InputError: InputError(3, "is wrong."), InputTooLongError: InputTooLongError(3, length=20, limit=10)}
FORKED = """
import os, sys
from edgeformer_runtime.errors import SessionError
from edgeformer_runtime.translator import Translator

translator = Translator.open(sys.argv[1], threads=2)
before = translator.translate(["dog"])
child = os.fork()
if child == 0:
    try:
        translator.translate(["dog"])
    except SessionError as error:
        print(error, flush=True)
        os._exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
assert translator.translate(["dog"]) == before
"""
posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling(kind: type[EdgeformerError]) -> None:
    error = ERRORS[kind]
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (kind, str(error), vars(error))


def test_the_versions_agree() -> None:
    assert edgeformer.__version__ == edgeformer_runtime.__version__ == version("edgeformer")


def test_a_translator_is_pickled_as_its_path_and_settings(
    small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    monkeypatch.chdir(tmp_path)
    translator = Translator.open("bundle", threads=1, workers=2, truncate=True)
    data = pickle.dumps(translator)
    monkeypatch.chdir("/")
    copy = pickle.loads(data)
    assert (copy.workers, copy.truncate, copy.defaults) == (2, True, translator.defaults)
    assert copy.translate(TEXTS) == translator.translate(TEXTS)
    assert len(data) < sum(path.stat().st_size for path in bundle.iterdir()) / 4
    edit_manifest(bundle, lambda tree: tree.update(source_language="new"))
    with pytest.raises(BundleError, match="has changed since it was opened"):
        pickle.loads(data)


def test_a_translator_goes_to_a_spawned_process(small_bundle: Path) -> None:
    translator = Translator.open(small_bundle, threads=1)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map_async(translator.translate, [TEXTS]).get(timeout=120) == [translator.translate(TEXTS)]


@posix
def test_a_forked_process_is_told_to_open_its_own(small_bundle: Path) -> None:
    output = python(FORKED, small_bundle).stdout
    assert f"`{small_bundle}` was opened before this process was forked" in output
    assert "open it in every process" in output


def test_a_closed_translator_says_so(small_bundle: Path) -> None:
    with Translator.open(small_bundle, threads=1) as translator:
        expected = translator.translate(TEXTS)
        stream = translator.translate_stream(TEXTS, chunk=1)
        assert next(stream).text == expected[0].text
    with pytest.raises(SessionError, match=r"is closed; open it again\.$"):
        translator.translate(TEXTS)
    with pytest.raises(SessionError, match="is closed"):
        list(stream)
    with pytest.raises(SessionError, match="is closed"):
        translator.attention(expected)
    translator.close()
    assert Translator.open(translator.bundle, threads=1).translate(TEXTS) == expected
