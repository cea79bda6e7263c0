"""The arithmetic that a device can do."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeformer.train.processes import cpu_has_bf16
from edgeformer_runtime.engine import cpus


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("flags\t\t: fpu sse avx2 fma\n", False),
        ("model name\t: x\nflags\t\t: fpu avx512f avx512_bf16\n", True),
        ("flags : amx_bf16 amx_tile\n", True),
        ("Features\t: fp asimd bf16 i8mm\n", True),
        ("Features\t: fp asimd\n", False),
        ("processor\t: 0\n", True),
    ],
)
def test_processors_say_whether_they_have_bf16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: bool
) -> None:
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(cpus, "CPU_INFO", path)
    assert cpu_has_bf16()
    path.write_text(text, encoding="utf-8")
    assert cpu_has_bf16() == expected
