"""What computes here, as the system tells it."""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort
import pytest

from edgeformer_runtime.check.machine import Machine, this_machine
from edgeformer_runtime.engines import cpus

X86 = "processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\nflags\t\t: fpu sse2 avx2 avx512f avx512_vnni\n\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\nCPU part\t: 0xd0b\n\n"


def found(content: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    (folder / "cpuinfo").write_text(content * 2, encoding="utf-8")
    monkeypatch.setattr(cpus, "CPU_INFO", folder / "cpuinfo")
    return this_machine("cpu")


def test_instruction_sets_come_from_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x86 = found(X86, tmp_path, monkeypatch)
    assert x86.processor == "Some CPU @ 3 GHz"
    assert x86.instructions == ("AVX2", "AVX512", "AVX512-VNNI")
    arm = found(ARM, tmp_path, monkeypatch)
    assert arm.processor == ""
    assert (arm.engine, arm.provider) == (ort.__version__, "CPUExecutionProvider")
    assert arm.instructions == ("NEON", "NEON dotprod", "NEON i8mm")
    assert found("nothing to see", tmp_path, monkeypatch).instructions == ()


def test_without_such_a_file_numpy_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpus, "CPU_INFO", tmp_path / "missing")
    assert this_machine("cpu").instructions
