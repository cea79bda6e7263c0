"""The command line as a whole: help, versions, errors, and what its commands print with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import edgeformer
from edgeformer.cli import CommandGroup
from edgeformer_runtime.cli.output import (
    console,
    counting,
    human_bytes,
    json_text,
    stages,
    table,
)
from edgeformer_runtime.errors import BundleError
from tests.commands import error, run

COMMANDS = [entry.name for entry in entry_points(group="edgeformer.commands")]


def test_every_command_is_listed_with_its_purpose() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for name in COMMANDS:
        (line,) = [line for line in result.stdout.splitlines() if line.startswith(f"  {name} ")]
        assert len(line.split()) > 3


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    result = run(command, "-h")
    assert result.exit_code == 0
    assert command in result.stdout.partition("\n")[0]


def test_version() -> None:
    assert run("--version").stdout == f"edgeformer, version {edgeformer.__version__}\n"


def test_unknown_commands_and_options_are_usage_errors(small_bundle: Path) -> None:
    assert "No such command 'transalte'" in error("transalte", code=2)
    assert "No such option" in error("translate", small_bundle, "--beams", "2", code=2)
    assert "Missing argument 'BUNDLE'" in error("translate", code=2)


@pytest.mark.slow  # imports torch again
@pytest.mark.parametrize("own", [None, "ACTIVE"])
def test_threads_of_torch_soon_sleep_while_they_wait_unless_the_user_chose_otherwise(own: str | None) -> None:
    """Every command is imported after the command line, and torch's OpenMP reads its settings when it is loaded."""
    pytest.importorskip("torch", reason="torch is not installed: pip install 'edgeformer[train]'")
    settings = {"OMP_DISPLAY_ENV": "verbose"} | ({} if own is None else {"OMP_WAIT_POLICY": own})
    environment = {
        name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    }
    shown = subprocess.run(
        [sys.executable, "-c", "import sys, edgeformer.cli; assert 'torch' not in sys.modules; import torch"],
        env=environment | settings,
        check=True,
        capture_output=True,
        text=True,
    )
    counts = {int(count) for count in re.findall(r"GOMP_SPINCOUNT *= *'(\d+)'", shown.stderr)}
    assert counts == {20000} if own is None else min(counts) > 300_000


@pytest.mark.parametrize("name", ["lines", "beam_size", "max_length", "target_prefix", "engine"])
def test_names_of_files_are_shown_as_they_were_given(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path(name), Path(name) / "bundle"):
        assert f"`{path}`" in error("translate", path, "text")
    assert f"`{name}`" in error("evaluate", name, "--source", name, "--reference", name)


def failing(problem: Exception) -> CommandGroup:
    group = CommandGroup("edgeformer")
    group.get_command = lambda ctx, cmd_name: command  # type: ignore[method-assign]  # stands for an entry point

    @click.command()
    def command() -> None:
        raise problem

    return group


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (BundleError("`x` is gone; copy it again."), "Error: `x` is gone; copy it again."),
        (FileNotFoundError(2, "No such file or directory", "/a/b"), "Error: No such file or directory: /a/b."),
        (OSError("disk on fire"), "Error: disk on fire."),
        (
            ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn"),
            "Error: This command needs `torch.nn`: pip install 'edgeformer[train]'.",
        ),
        (
            ModuleNotFoundError("No module named 'sacrebleu'", name="sacrebleu"),
            "Error: This command needs `sacrebleu`: pip install 'edgeformer[eval]'.",
        ),
        (MemoryError(), "Error: not enough memory; try a smaller --beam or --batch-tokens."),
    ],
)
def test_a_users_mistake_is_one_line(problem: Exception, line: str) -> None:
    result = CliRunner().invoke(failing(problem), ["command"])
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"{line}\n")


@pytest.mark.parametrize("problem", [ValueError("ours"), ModuleNotFoundError("x", name="unheard_of")])
def test_our_own_mistake_keeps_its_traceback(problem: Exception) -> None:
    assert CliRunner().invoke(failing(problem), ["command"]).exception is problem


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (1_234_567, "1.23 MB"), (5e9, "5.00 GB"), (2e13, "20000.00 GB")],
)
def test_human_bytes(count: float, text: str) -> None:
    assert human_bytes(count) == text


def test_json_of_paths_dataclasses_and_what_has_none() -> None:
    @dataclass
    class Point:
        x: int
        path: Path

    assert json.loads(json_text({"a": [Point(1, Path("b/c"))]})) == {"a": [{"x": 1, "path": "b/c"}]}
    with pytest.raises(NotImplementedError, match="object has no JSON form"):
        json_text(object())


def test_tables_show_brackets_as_they_are() -> None:
    rows = table("[/x] title", "a [b]", "c")
    rows.add_row("[red]cell", "[/red]")
    with console().capture() as capture:
        console().print(rows)
    for text in ("[/x] title", "a [b]", "[red]cell", "[/red]"):
        assert text in capture.get()


def test_stages_are_noted_once_each_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with stages({"one": "First", "two": "Second"}) as report:
        for fraction in (0.0, 0.5, 1.0):
            report("one", fraction)
        report("two", 0.0)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "First …\nSecond …\n")
    with stages({"one": "First"}, quiet=True) as report:
        report("one", 1.0)
    assert capsys.readouterr().err == ""


def test_long_stages_tell_percentage_and_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("edgeformer_runtime.cli.output.time.monotonic", lambda: clock[0])
    with stages() as report:
        for stage, seconds, fraction in (("A", 0, 0.0), ("A", 20, 0.1), ("A", 10, 0.4), ("A", 10, 0.5), ("B", 5, 1.0)):
            clock[0] += seconds
            report(stage, fraction)
    expected = ["A …", "A: 10%, 0:03:00 left …", "A: 50%, 0:00:40 left …", "B …"]
    assert capsys.readouterr().err.splitlines() == expected


def test_counts_are_told_with_speed_and_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("edgeformer_runtime.cli.output.time.monotonic", lambda: clock[0])
    with counting("cakes") as report:
        report(1000, 4000)  # what was done before says nothing about the speed
        for seconds, done in ((10, 1010), (10, 1050), (1, 1051), (19, 4000)):
            clock[0] += seconds
            report(done, 4000)
    expected = ["1,000 of 4,000 cakes …", "1,050 of 4,000 cakes  2.5/s  0:19:40 left …"]
    expected.append("4,000 of 4,000 cakes  75.0/s  0:00:00 left …")
    assert capsys.readouterr().err.splitlines() == expected
    with counting("cakes", quiet=True) as report:
        report(1, 2)
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with counting("cakes") as report:
        report(0, 4000)
        report(2000, 4000)
    assert "━" in (text := capsys.readouterr().err)
    assert "2,000 of 4,000 cakes" in text
