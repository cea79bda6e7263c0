"""Options and shared fixtures of the test suite."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from edgeformer.train.run import Run
    from edgeformer_runtime.bundle.manifest import Precision
    from edgeformer_runtime.translator import Translator

# Small models run faster on one thread, above all where other work shares the processor. Set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

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
        from tests.cuda import cuda_problem

        if problem := cuda_problem():
            pytest.skip(problem)
    return name


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real corpora beside the repository; skips where it is not."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no corpora at {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture(scope="session")
def taught_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run folder with a small model that has half learned a toy language, and runs on the device under test."""
    pytest.importorskip("torch")
    from tests import cuda, factory

    sizes = cuda.sizes("post_norm", request.config.getoption("--device"))
    return factory.taught_run(tmp_path_factory.mktemp("taught") / "run", model=sizes)


@pytest.fixture(scope="session")
def small_bundle(taught_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An fp32 bundle of that model. Not to be changed: copy it with ``bundles.copy_of``."""
    return _exported(taught_run, tmp_path_factory.mktemp("fp32") / "bundle", "fp32")


@pytest.fixture(scope="session")
def small_bundle_int8(taught_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An int8 bundle of that model. Not to be changed."""
    return _exported(taught_run, tmp_path_factory.mktemp("int8") / "bundle", "int8")


@pytest.fixture(scope="session")
def small_bundle_int8_block(taught_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of that model whose decoder has 8 bits in blocks. Not to be changed."""
    return _exported(taught_run, tmp_path_factory.mktemp("int8-block") / "bundle", "int8-block")


@pytest.fixture(scope="session")
def small_bundle_int4(taught_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of that model whose decoder has 4 bits in blocks. Not to be changed."""
    return _exported(taught_run, tmp_path_factory.mktemp("int4") / "bundle", "int4")


@pytest.fixture(scope="session")
def small_bundles(
    small_bundle: Path, small_bundle_int8: Path, small_bundle_int8_block: Path, small_bundle_int4: Path
) -> dict[Precision, Path]:
    """That model in every precision."""
    return {
        "fp32": small_bundle,
        "int8": small_bundle_int8,
        "int8-block": small_bundle_int8_block,
        "int4": small_bundle_int4,
    }


@pytest.fixture(scope="session")
def translator(small_bundle: Path, device: str) -> Translator:
    """The fp32 bundle, opened on the device under test."""
    from edgeformer_runtime.translator import Translator

    return Translator.open(small_bundle, device=device, threads=1)


def _exported(run: Run, out: Path, precision: Precision) -> Path:
    pytest.importorskip("onnxscript")
    from edgeformer_export.export import export_run

    return export_run(run, out, precision=precision).bundle
