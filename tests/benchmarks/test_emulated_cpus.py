"""The comparison of processors: here with this one, and with an emulated one where there is an emulator."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edgeformer_bench.studies.emulated_cpus import EMULATOR, main
from tests.factory import PAIRS


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.txt"
    path.write_text("".join(f"{pair[0]}\n" for pair in PAIRS[:3]), encoding="utf-8")
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def test_this_processor_agrees_with_itself(small_bundle: Path, small_bundle_int8: Path, source: Path) -> None:
    result = run(small_bundle, small_bundle_int8, "--source", source, "--python", f"here={sys.executable}")
    assert result.exit_code == 0, result.output
    assert result.output.count("0 of 3") == 2
    assert result.output.count("0.0e+00") == 2


@pytest.mark.skipif(shutil.which(EMULATOR) is None, reason=f"{EMULATOR} is not installed")
def test_a_processor_without_vnni_agrees(small_bundle_int8: Path, source: Path) -> None:
    result = run(small_bundle_int8, "--source", source, "--sentences", "1", "--cpu", "Haswell")
    assert "saturate" in result.output
    assert "0 of 1" in result.output, result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Name a processor"),
        (("--python", "here"), "is not NAME=COMMAND"),
        (("--python", "there=no-such-emulator -cpu x"), "`no-such-emulator` is not installed"),
        (("--python", f"there={sys.executable} -c fail()"), "exited with 1: NameError"),
    ],
)
def test_mistakes_are_explained(
    small_bundle_int8: Path, source: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = run(small_bundle_int8, "--source", source, *arguments)
    assert result.exit_code == (2 if message in ("Name a processor", "is not NAME=COMMAND") else 1)
    assert message in result.output
    assert not isinstance(result.exception, Exception) or isinstance(result.exception, SystemExit)
