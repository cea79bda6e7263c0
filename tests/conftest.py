"""Options and shared fixtures of the test suite."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests import amounts
from tests.store import CPU_PRECISIONS, RunSettings, Store

if TYPE_CHECKING:
    from edgeformer.run.folder import Run
    from edgeformer_runtime.bundle.manifest import Precision
    from edgeformer_runtime.translator import Translator

# Small models run faster on one thread, especially under other load. Must be set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the long tail of slow tests")
    parser.addoption("--device", default="cpu", choices=["cpu", "cuda"], help="device of the bundles under test")


def pytest_configure(config: pytest.Config) -> None:
    amounts.are_slow_tests_run = bool(config.getoption("--slow"))
    # What a test asserts does not depend on what else the machine does, nor on chance where a failure stops a change.
    settings.register_profile(
        "any machine",
        max_examples=100 if amounts.are_slow_tests_run else 50,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize="CI" in os.environ,
    )
    settings.load_profile("any machine")
    if (device := config.getoption("--device")) != "cpu":
        from tests.cuda import refuse_unusable

        refuse_unusable(device)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "slow" in item.keywords and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow; run with --slow"))
        elif "slow" in item.keywords:
            item.add_marker(pytest.mark.timeout(4 * float(config.getini("timeout"))))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what is imported, which is a million objects, whenever it runs."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let it collect all of that at the end: libraries of extensions report what is left as leaks."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def no_models_of_ones_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the user who runs the tests have no models, and no variable that names some."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        patch.delenv("EDGEFORMER_MODELS", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """Let files be written without waiting for the disk, which takes a quarter of a small training.

    What survives a crash is tested in processes of their own.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """Device of the bundles under test."""
    return str(request.config.getoption("--device"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real corpora next to the repository; skips the test if it does not exist."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no corpora at {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture(scope="session")
def shared_temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of the session share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def store(shared_temporary: Path) -> Iterator[Store]:
    """Small runs and bundles, each made once per session. Do not modify them: use ``bundles.copy_of``."""
    (shared_temporary / "store").mkdir(exist_ok=True)
    store = Store(shared_temporary / "store")
    yield store
    store.check()


@pytest.fixture(scope="session")
def taught(request: pytest.FixtureRequest) -> RunSettings:
    """Settings of a small model, partially trained on a toy language, that runs on the device under test."""
    from tests import cuda

    return {"steps": 100, "model": cuda.sizes("post_norm", request.config.getoption("--device"))}


@pytest.fixture(scope="session")
def taught_run(store: Store, taught: RunSettings) -> Run:
    """The run folder of that model."""
    pytest.importorskip("torch")
    return store.run(**taught)


@pytest.fixture(scope="session")
def small_bundles(store: Store, taught: RunSettings) -> dict[Precision, Path]:
    """That model in every precision supported on CPUs. Do not modify the bundles."""
    pytest.importorskip("onnxscript")
    return {precision: store.bundle(precision=precision, **taught) for precision in CPU_PRECISIONS}


@pytest.fixture(scope="session")
def small_bundle(store: Store, taught: RunSettings) -> Path:
    """The fp32 bundle of that model. Do not modify it: use ``bundles.copy_of``."""
    pytest.importorskip("onnxscript")
    return store.bundle(precision="fp32", **taught)


@pytest.fixture(scope="session")
def small_bundle_int8(store: Store, taught: RunSettings) -> Path:
    """The int8 bundle of that model. Do not modify it: use ``bundles.copy_of``."""
    pytest.importorskip("onnxscript")
    return store.bundle(precision="int8", **taught)


@pytest.fixture(scope="session")
def small_bundle_int4(store: Store, taught: RunSettings) -> Path:
    """The bundle of that model whose decoder is quantized to 4 bits in blocks. Do not modify it."""
    pytest.importorskip("onnxscript")
    return store.bundle(precision="int4", **taught)


@pytest.fixture(scope="session")
def translator(small_bundle: Path, device: str) -> Translator:
    """The fp32 bundle, opened on the device under test."""
    from edgeformer_runtime.translator import Translator

    return Translator.open(small_bundle, device=device, threads=1)
