"""What people read of a load."""

from __future__ import annotations

import click
import pytest

from edgeformer_bench.load.phases import Phase
from edgeformer_bench.load.report import conclude


def test_many_results_can_be_read_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = ["waiting", "overloaded", *(f"ended {number}" for number in range(1, 11))]
    results = {
        name: Phase(
            seconds=10.0,
            outcomes={"200": 12_345 + number},
            latency=None,
            samples=[],
            figures={"usual again after, s": 0.5},
            problems=["it ended"] * (name == "ended 3"),
        )
        for number, name in enumerate(names)
    }
    with click.Context(click.Command("load"), info_name="load"), pytest.raises(SystemExit) as ended:
        conclude(results, as_json=False)
    output = capsys.readouterr()
    assert all(name in output.out and f"12,{345 + number}" in output.out for number, name in enumerate(names))
    assert max(map(len, output.out.splitlines())) <= 80
    assert "BROKEN ended 3: it ended" in output.err
    assert ended.value.code == 1
