"""The program behind ``make gpu``: its half that needs no GPU, and what it says of parts that fail or are not run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from edgeformer.config import load_recipe
from edgeformer_bench import gpu
from edgeformer_bench.peers.base import PeerError
from edgeformer_runtime.errors import DeviceError


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(device: str) -> str:
        raise DeviceError(f"there is no {device}")

    monkeypatch.setattr(gpu, "check_device", refuse)


def rows_of(code: int) -> dict[str, dict[str, Any]]:
    result = CliRunner().invoke(gpu.main, ["--json"])
    assert result.exit_code == code, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    assert report["device"] == "cpu"
    rows: dict[str, dict[str, Any]] = report["rows"]
    assert rows["CUDA"] == {"not run": "there is no cuda"}
    return rows


def test_parts_that_fail_are_told_and_do_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*command: str, **options: object) -> str:
        raise PeerError(f"{command[1]} is broken")

    monkeypatch.setattr(gpu, "_run", fail)
    rows = rows_of(1)
    named = [f"training {name}" for name in gpu.TRAININGS["cpu"]] + ["tests", "parity fp32", "parity fp16", "decoding"]
    assert {name for name, figures in rows.items() if "failed" in figures} == {*named}
    assert rows["training LSTM"] == {"failed": "train is broken"}


def test_a_command_that_prints_no_result_has_failed() -> None:
    """Python ends with 1 after a traceback, and so does ``verify`` if it reports differences."""
    with pytest.raises(PeerError, match=r"No module named edgeformer_bench\.nothing"):
        gpu._run("edgeformer_bench.nothing", statuses=(0, 1))


@pytest.mark.slow
def test_the_half_for_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    trainings = {"model": "dates-en-fr train.max_steps=5", "LSTM": "dates-en-fr-lstm train.max_steps=5"}
    monkeypatch.setattr(gpu, "TRAININGS", {"cpu": trainings})
    monkeypatch.setattr(gpu, "TESTS", ["--collect-only", "tests/benchmarks/test_speeds.py"])
    monkeypatch.setattr(gpu, "SENTENCES", 4)
    rows = rows_of(0)
    assert rows["training LSTM"]["updates"] == 5
    assert rows["training LSTM"]["updates/s"] > 0
    assert rows["parity fp32"]["same with beam 1"] == 1
    assert rows["parity fp32"]["largest difference of a logit"] < rows["parity fp16"]["largest difference of a logit"]
    assert "collected" in rows["tests"]["pytest"]
    for system in ("fp32", "fp16", "torch eager"):
        assert {f"{name} ms" for name in gpu.CALLS} < rows[system].keys()
    assert rows["torch eager"]["1x1 same"] == rows["fp32"]["1x1 same"] == "1"


@pytest.mark.parametrize("recipe", [recipe for named in gpu.TRAININGS.values() for recipe in named.values()])
def test_its_recipes_and_settings_exist(recipe: str) -> None:
    name, *settings = recipe.split()
    assert load_recipe(name, settings).train.max_steps
