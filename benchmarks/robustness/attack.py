"""Damages bundles in thousands of ways, interrupts what is written, and counts what survives.

Usage: ``python -m robustness.attack``, which is ``make attack``
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from edgeformer.errors import ConfigError
from edgeformer_bench.commands import Command, command_line
from edgeformer_runtime.cli.output import console, counting, print_json
from edgeformer_runtime.selfcheck.machine import machine_summary
from robustness.files import FILES, SIGNED, Bundles, Case, damage
from robustness.interruptions.ext4 import cuts, mount_problem
from robustness.interruptions.kills import Left, Moment, kills
from robustness.interruptions.power import power_failures
from robustness.interruptions.strace import strace_problem
from robustness.interruptions.writing import WRITINGS, Writing, writing_problem
from robustness.pool import results
from robustness.report import KINDS, Defect, Report, Row, tables
from robustness.texts import TEXT_ATTACK, hostile_text

CASES = (*FILES, TEXT_ATTACK)
INTERRUPTIONS = tuple(f"{kind}-{name}" for name in WRITINGS for kind in KINDS)
ATTACKS = (*CASES, *INTERRUPTIONS)


@click.command(cls=Command)
@click.option("--only", multiple=True, type=click.Choice(ATTACKS), help="Attack to make; may be repeated. Default: all")
@click.option(
    "--mutations",
    default=10_000,
    show_default=True,
    type=click.IntRange(1),
    help="Damaged bundles per file, and texts.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of all random choices.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs/attack"),
    show_default=True,
    help="Folder for the results, and for bundles that --case keeps.",
)
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Processes that use bundles.")
@click.option("--seconds", default=20.0, show_default=True, help="Time limit of a case.")
@click.option(
    "--memory", default=1024, show_default=True, type=click.IntRange(1), help="Limit of memory of a case, in MiB."
)
@click.option("--case", "single", metavar="ATTACK:NUMBER", help="Reproduce one case, and keep its bundle.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def main(
    only: tuple[str, ...],
    mutations: int,
    seed: int,
    out: Path,
    workers: int,
    seconds: float,
    memory: int,
    single: str | None,
    as_json: bool,
) -> None:
    """Damage bundles, translate hostile texts and interrupt writing, and count what survives.

    Every file of a bundle is damaged at random, half of the time with its new hash in the manifest. A worker process
    opens each bundle and translates. It must refuse the bundle in one line, or use it: with the same output, or with
    another where nothing tells that the file changed. Programs that write bundles and checkpoints are ended at each
    system call, and every state that a power failure may leave is created; as root, power cuts of an image of ext4 are
    tried, too.

    Prints tables in Markdown, and writes OUT/attack.json after each attack. Exits with 1 if something else happened,
    and prints how to reproduce it.
    """
    if not sys.platform.startswith("linux"):
        raise ConfigError("This measures memory and system calls in ways that only Linux has.")
    limits = {"workers": workers, "seconds": seconds, "memory_mib": memory}
    if single is not None:
        sys.exit(_reproduced(_case(single, seed), out, **limits))
    report = Report(
        command=command_line(),
        machine=machine_summary(),
        versions=", ".join(f"{name} {version(name)}" for name in ("onnxruntime", "tokenizers")),
        seed=seed,
        mutations=mutations,
    )
    path = out / "attack.json"
    interrupted = False
    try:
        for name in (name for name in ATTACKS if name in (only or ATTACKS)):
            if problem := _problem(name):
                report.skipped[name] = problem
                continue
            if name in CASES:
                report.rows[name] = _cases(name, mutations, seed, **limits)
            else:
                report.rows[name] = _interruptions(name, seed)
            report.save(path)
    except KeyboardInterrupt:
        interrupted = True
    _print(report, as_json=as_json)
    if interrupted:
        console(stderr=True).print("Interrupted; continue with --only.")
        sys.exit(128 + signal.SIGINT)
    sys.exit(1 if report.defects else 0)


def _problem(name: str) -> str | None:
    """Why an attack cannot be made here; ``None`` if it can."""
    if name in SIGNED and find_spec("cryptography") is None:
        return "cryptography is not installed"
    if name in INTERRUPTIONS:
        kind, _, writing = name.partition("-")
        mount = mount_problem() if kind == "ext4" else None
        return mount or strace_problem() or writing_problem(WRITINGS[writing])
    return None


def _cases(name: str, count: int, seed: int, **limits: Any) -> Row:
    """Run all cases of an attack."""
    row = Row()
    with counting(f"cases of {name}") as progress:
        progress(0, count)
        cases = (Case(name, number, seed) for number in range(count))
        for case, result in results(cases, **limits):
            defect = Defect(case.name, result.outcome.value, result.detail) if result.outcome.is_defect else None
            row.add(result.outcome.value, result.peak_mib, defect)
            progress(row.tried, count)
    return row


def _interruptions(name: str, seed: int) -> Row:
    """Interrupt a program at every system call, or in every state of the disk."""
    row = Row()
    kind, _, writing = name.partition("-")
    with tempfile.TemporaryDirectory(prefix="edgeformer-attack-") as folder, counting(f"moments of {name}") as progress:
        progress(0, 1)
        interrupt: dict[str, Callable[[Writing, Path], Iterator[tuple[int, Moment]]]]
        interrupt = {"kill": kills, "power": partial(power_failures, seed=seed), "ext4": cuts}
        for total, moment in interrupt[kind](WRITINGS[writing], Path(folder)):
            lost = moment.left is Left.LOST
            row.add(moment.left.value, 0.0, Defect(name, moment.left.value, moment.when) if lost else None)
            progress(row.tried, max(total, row.tried))
    return row


def _case(text: str, seed: int) -> Case:
    """The case that ``--case`` names."""
    attack, _, number = text.partition(":")
    if attack not in CASES or not number.isdecimal():
        raise click.UsageError(f"--case must be ATTACK:NUMBER with one of the attacks {', '.join(CASES)}.")
    return Case(attack, int(number), seed)


def _reproduced(case: Case, out: Path, **limits: Any) -> int:
    """Run one case and keep its bundle, or its text; returns the exit status."""
    kept = out / f"{case.attack}-{case.number}"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    if case.attack == TEXT_ATTACK:
        (kept / "text.txt").write_text(hostile_text(case), encoding="utf-8", errors="surrogatepass")
    else:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(Bundles(Path(folder)).path(case), kept, dirs_exist_ok=True)
        damage(kept, case)
    ((_, result),) = results([case], **limits)
    console().print(f"{case.name}: {result.outcome.value}; {result.detail}")
    console().print(f"Memory rose by {result.peak_mib:.0f} MiB. Kept in {kept}")
    return 1 if result.outcome.is_defect else 0


def _print(report: Report, *, as_json: bool) -> None:
    if as_json:
        print_json(report)
    else:
        console().print("\n".join(tables(report)))
    for defect in report.defects:
        how = f"; see it with --case {defect.case} --seed {report.seed}" if ":" in defect.case else ""
        console(stderr=True).print(f"DEFECT {defect.case}: {defect.outcome}{how}\n{defect.detail}", style="red")


if __name__ == "__main__":
    main()
