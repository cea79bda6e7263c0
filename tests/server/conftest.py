"""Bundles to serve, and a server of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.committed import small_bundle as small_bundle
from tests.committed import small_bundle_int4 as small_bundle_int4
from tests.committed import small_bundle_int8 as small_bundle_int8
from tests.committed import small_bundles as small_bundles
from tests.committed import translator as translator
from tests.server.http import Client, serving
from tests.server.test_workspace import bundle_between


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, small_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles between the languages that the module names in ``BUNDLES``; by default, ``de-en`` and ``en-fr``."""
    folder = tmp_path_factory.mktemp("bundles")
    for name in getattr(request.module, "BUNDLES", ("de-en", "en-fr")):
        bundle_between(small_bundle, folder, name, *name.split("-"))
    return folder


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Path:
    """The bundle ``en-fr`` alone."""
    return folder / "en-fr"


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    """A client of a server of all of them."""
    with serving(folder) as client:
        yield client
