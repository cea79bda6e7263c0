"""Options and shared fixtures of the test suite."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run tests that take minutes")
    parser.addoption("--device", default="cpu", choices=["cpu", "cuda"], help="device of the bundles under test")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="takes minutes; run with --slow"))


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """Device of the bundles under test; skips where onnxruntime cannot use it."""
    name = str(request.config.getoption("--device"))
    if name == "cuda":
        ort = pytest.importorskip("onnxruntime")
        if "CUDAExecutionProvider" not in ort.get_available_providers():
            pytest.skip("the installed onnxruntime has no CUDA provider")
    return name


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real corpora beside the repository; skips where it is not."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no corpora at {SHARED_DATA}")
    return SHARED_DATA
