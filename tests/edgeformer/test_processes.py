"""The arithmetic that a device can do, and how processes that train together begin."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from edgeformer.errors import TrainingError
from edgeformer.train.processes import cpu_has_bf16, wait_for_all
from edgeformer_runtime.engines import cpus


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


def test_why_the_processes_cannot_begin_is_told() -> None:
    """The first of their collective operations also meets what is wrong with the network."""
    fabric = mock.Mock()
    fabric.barrier.side_effect = RuntimeError("NCCL error: no socket interface found\nLast error:\nBootstrap")
    with pytest.raises(TrainingError, match=r"see its output \(NCCL error: no socket interface found\)\.$"):
        wait_for_all(fabric)
