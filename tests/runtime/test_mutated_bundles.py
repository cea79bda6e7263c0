"""Bundles with arbitrary changes and correct hashes: they open and verify, or end in one of our errors."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from edgeformer_runtime.bundle.manifest import decode_manifest
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.contract import GOLDEN_FILE, MANIFEST_FILE
from edgeformer_runtime.errors import BundleError, EdgeformerError
from edgeformer_runtime.selfcheck.golden import check_golden, read_golden
from edgeformer_runtime.selfcheck.operators import check_operators
from edgeformer_runtime.translator import Translator
from tests.amounts import examples
from tests.bundles import copy_of, rehash, write_manifest
from tests.robustness.mutations import HOSTILE, TREE_CHANGES, TreeChange, encoded, mutated

VALUES = st.one_of(
    st.sampled_from(HOSTILE), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=20)
)
CHANGES = st.lists(
    st.tuples(st.integers(0, 2**20), st.sampled_from(TREE_CHANGES), VALUES),
    min_size=1,
    max_size=3,
)
"""Places in a JSON tree, what to do there, and a value."""
UNCHANGED = {"suppress_health_check": [HealthCheck.function_scoped_fixture]}
MUTATED = examples(25, 200, **UNCHANGED)


@pytest.fixture(scope="module")
def folder(small_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to write changed files to."""
    return copy_of(small_bundle, tmp_path_factory.mktemp("mutated"))


@contextlib.contextmanager
def restored(folder: Path, *names: str) -> Iterator[None]:
    """Put files back afterwards."""
    kept = {name: (folder / name).read_bytes() for name in (*names, MANIFEST_FILE)}
    try:
        yield
    finally:
        for name, data in kept.items():
            (folder / name).write_bytes(data)
        write_manifest(folder, kept[MANIFEST_FILE])


def check_manifest(folder: Path, data: bytes) -> None:
    with contextlib.suppress(BundleError):
        decode_manifest(data)
    with restored(folder), contextlib.suppress(EdgeformerError):
        write_manifest(folder, data)
        translator = Translator.open(folder, threads=1)
        check_operators(translator.bundle)
        translator.translate(["The dog runs."], max_length=2)


def check_golden_file(folder: Path, data: bytes) -> None:
    with restored(folder, GOLDEN_FILE), contextlib.suppress(EdgeformerError):
        (folder / GOLDEN_FILE).write_bytes(data)
        check_golden(Translator.open(rehash(folder), threads=1))


def manifest(bundle: Path) -> Any:
    return json.loads((bundle / MANIFEST_FILE).read_bytes())


def golden(bundle: Path) -> Any:
    return json.loads((bundle / GOLDEN_FILE).read_bytes())


@MUTATED
@given(changes=CHANGES)
def test_mutated_manifests(folder: Path, changes: list[TreeChange]) -> None:
    check_manifest(folder, encoded(mutated(manifest(folder), changes)))


@examples(8, 40, **UNCHANGED)
@given(changes=CHANGES)
def test_mutated_golden_files(folder: Path, changes: list[TreeChange]) -> None:
    check_golden_file(folder, encoded(mutated(golden(folder), changes)))


@MUTATED
@given(data=st.binary(max_size=200))
def test_any_bytes_as_manifest_and_golden_file(folder: Path, data: bytes) -> None:
    with pytest.raises(BundleError):
        decode_manifest(data)
    with restored(folder, GOLDEN_FILE):
        (folder / GOLDEN_FILE).write_bytes(data)
        opened = open_bundle(rehash(folder))
        with pytest.raises(BundleError):
            read_golden(opened)


def test_nested_json_is_refused(folder: Path) -> None:
    """Deeper than a parser that recurses can go, in a field that may hold anything and in one that may not."""
    deep = b"[" * 1_000_000 + b"]" * 1_000_000
    for field in (b'"recipe": {', b'"special": {'):
        data = (folder / MANIFEST_FILE).read_bytes().replace(field, field + b'"x": ' + deep + b", ", 1)
        assert deep in data
        with pytest.raises(BundleError, match="manifest is not valid JSON"):
            decode_manifest(data)
    with restored(folder, GOLDEN_FILE):
        (folder / GOLDEN_FILE).write_bytes(deep)
        opened = open_bundle(rehash(folder))
        with pytest.raises(BundleError, match=r"`golden\.json` cannot be parsed"):
            read_golden(opened)
