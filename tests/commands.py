"""Runs ``edgeformer`` commands in the test process, with the output that a user would see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from edgeformer.cli import main


def run(*arguments: str | Path, stdin: bytes | str | None = None) -> Result:
    """Run a command; any exception other than ``SystemExit`` fails the test."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def succeeded(*arguments: str | Path) -> Result:
    """Run a command that must succeed."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def error(*arguments: str | Path, stdin: bytes | str | None = None, code: int = 1) -> str:
    """Run a command that must fail with a one-line error message and no output; return that line."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if not line.endswith(" …")]  # without progress notes
    if code == 2:  # click prints usage lines first
        lines = lines[-1:]
    (line,) = lines
    assert line.startswith("Error: "), line
    return line.removeprefix("Error: ")


def python(
    code: str, *arguments: str | Path, check: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a fresh interpreter, from a folder that is not the repository."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        check=check,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=Path(sys.executable).anchor,
        env={**os.environ, **environment},
        timeout=120,
    )


def two_processes(*command: str | Path) -> str:
    """Run Python with a command line twice, as ``torchrun`` does; return what both print."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    done = subprocess.run(
        [sys.executable, *torchrun, sys.executable, *map(str, command)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def verified(bundle: Path, *options: str | Path, code: int = 0) -> dict[str, Any]:
    """Return the JSON report of ``edgeformer verify``, which must pass, or fail if ``code`` is 1."""
    result = run("verify", bundle, "--json", *options)
    assert result.exit_code == code, result.output
    content: dict[str, Any] = json.loads(result.stdout)
    assert content["passed"] == (code == 0)
    assert bool(content["problems"]) == (code != 0)
    return content


def problems(bundle: Path, *options: str | Path) -> list[str]:
    """Return the problems found by ``edgeformer verify``, which must fail."""
    return list(verified(bundle, *options, code=1)["problems"])
