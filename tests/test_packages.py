"""The source distribution and the wheel: what an index shows of them, and what is inside."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("packages")
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True, capture_output=True)
    (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return source, wheel


def test_an_index_shows_no_link_into_the_repository(packages: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(packages[1]) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        description = email.message_from_bytes(wheel.read(name)).get_payload()
    assert isinstance(description, str)
    assert "pip install" in description
    assert not re.findall(r"\]\((?!https?:)[^)]+\)", description)


def test_weights_under_another_license_stay_in_the_repository(packages: tuple[Path, Path]) -> None:
    with tarfile.open(packages[0]) as source, zipfile.ZipFile(packages[1]) as wheel:
        names = [*source.getnames(), *wheel.namelist()]
    assert any(name.endswith("/runtime/edgeformer_runtime/translator.py") for name in names)
    assert not [name for name in names if name.endswith(("weights.bin", ".safetensors", ".npz"))]


def test_a_container_is_built_from_what_the_wheel_needs() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert all((ROOT / name).exists() for name in kept)
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert all(any(f"{package}/".startswith(f"{name}/") for name in kept) for package in packages["packages"])
    assert {"pyproject.toml", "README.md", "LICENSE", "constraints.txt"} <= kept


def test_a_device_has_the_tested_versions_of_the_dependencies() -> None:
    pinned = [line for line in (ROOT / "requirements-device.txt").read_text("utf-8").splitlines() if line[0] != "#"]
    assert set(pinned) <= set((ROOT / "constraints.txt").read_text("utf-8").splitlines())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    direct = [*project["dependencies"], *project["optional-dependencies"]["cpu"]]
    names = {re.split("[<>=]", line)[0] for line in direct} | {"typing_extensions"}
    assert {line.partition("==")[0] for line in pinned} == names
