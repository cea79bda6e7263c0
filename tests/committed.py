"""Bundles of the tests of what runs on a device: committed, so that they need neither torch nor an export.

These fixtures replace those of the same names in ``tests/conftest.py``, which export such bundles.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeformer_runtime.precision import Precision
from edgeformer_runtime.translator import Translator
from tests.store import COMMITTED, CPU_PRECISIONS, Store


@pytest.fixture(scope="session")
def small_bundles() -> dict[Precision, Path]:
    """A small Transformer, partially trained on a toy language, in every precision supported on CPUs. Do not modify the
    bundles."""
    return {precision: COMMITTED / precision for precision in CPU_PRECISIONS}


@pytest.fixture(scope="session")
def small_bundle(request: pytest.FixtureRequest, small_bundles: dict[Precision, Path], device: str) -> Path:
    """The fp32 bundle of that model. Do not modify it: use ``bundles.copy_of``."""
    if device == "cuda":  # whose kernels need wider heads than such a small model has
        store: Store = request.getfixturevalue("store")
        return store.bundle(**request.getfixturevalue("taught"))
    return small_bundles["fp32"]


@pytest.fixture(scope="session")
def small_bundle_int8(small_bundles: dict[Precision, Path]) -> Path:
    """The int8 bundle of that model. Do not modify it: use ``bundles.copy_of``."""
    return small_bundles["int8"]


@pytest.fixture(scope="session")
def small_bundle_int4(small_bundles: dict[Precision, Path]) -> Path:
    """The bundle of that model whose decoder is quantized to 4 bits in blocks. Do not modify it."""
    return small_bundles["int4"]


@pytest.fixture(scope="session")
def translator(small_bundle: Path, device: str) -> Translator:
    """The fp32 bundle, opened on the device under test."""
    return Translator.open(small_bundle, device=device, threads=1)
