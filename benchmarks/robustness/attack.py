"""Damages bundles and texts in thousands of ways, and counts what survives.

Usage: ``python -m robustness.attack``, which is ``make attack``
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import msgspec

from edgeformer.errors import ConfigError
from edgeformer_bench.commands import Command
from edgeformer_bench.load.report import conclude, json_option
from edgeformer_runtime.cli.output import console, counting
from robustness.files import FILES, SIGNED, Bundles, Case, damage
from robustness.outcomes import Outcome
from robustness.pool import results
from robustness.texts import TEXT_ATTACK, hostile_text

ATTACKS = (*FILES, TEXT_ATTACK)


class Row(msgspec.Struct):
    """The result of one attack."""

    counts: dict[str, int] = {}
    """Number of cases by outcome."""
    peak_mib: float = 0.0
    """How far memory rose at most."""
    problems: list[str] = []
    """What must not happen."""

    def rows(self) -> list[tuple[str, str]]:
        """Figures for people."""
        used = (Outcome.REFUSED, Outcome.SAME, Outcome.OTHER)
        counts = [(outcome.value, f"{self.counts.get(outcome.value, 0):,}") for outcome in used]
        defects = [("defects", f"{len(self.problems):,}"), ("most memory, MiB", f"{self.peak_mib:.0f}")]
        return [("tried", f"{sum(self.counts.values()):,}"), *counts, *defects]


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
    help="Folder for bundles that --case keeps.",
)
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Processes that use bundles.")
@click.option("--seconds", default=20.0, show_default=True, help="Time limit of a case.")
@click.option(
    "--memory", default=1024, show_default=True, type=click.IntRange(1), help="Limit of memory of a case, in MiB."
)
@click.option("--case", "single", metavar="ATTACK:NUMBER", help="Reproduce one case, and keep its bundle.")
@json_option
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
    """Damage bundles, translate hostile texts, and count what survives.

    Every file of a bundle is damaged at random, half of the time with its new hash in the manifest. A worker process
    opens each bundle and translates. It must refuse the bundle in one line, or use it: with the same output, or with
    another where nothing tells that the file changed.

    Exits with 1 if something else happened, and prints how to reproduce it.
    """
    if not sys.platform.startswith("linux"):
        raise ConfigError("This measures memory in a way that only Linux has.")
    limits = {"workers": workers, "seconds": seconds, "memory_mib": memory}
    if single is not None:
        sys.exit(_reproduced(_case(single, seed), out, **limits))
    rows: dict[str, Row] = {}
    with suppress(KeyboardInterrupt):  # what is done by then is shown
        for name in (name for name in ATTACKS if name in (only or ATTACKS)):
            if name in SIGNED and find_spec("cryptography") is None:
                console(stderr=True).print(f"Skipped {name}: cryptography is not installed.")
                continue
            rows[name] = Row()
            _try(rows[name], name, mutations, seed, **limits)
    conclude(rows, as_json=as_json)


def _try(row: Row, name: str, count: int, seed: int, **limits: Any) -> None:
    """Run all cases of an attack."""
    with counting(f"cases of {name}") as progress:
        progress(0, count)
        cases = (Case(name, number, seed) for number in range(count))
        for case, result in results(cases, **limits):
            row.counts[result.outcome.value] = row.counts.get(result.outcome.value, 0) + 1
            row.peak_mib = max(row.peak_mib, result.peak_mib)
            if result.outcome.is_defect:
                how = f"see it with --case {case.name} --seed {seed}"
                row.problems.append(f"{result.outcome.value}; {how}\n{result.detail}")
            progress(sum(row.counts.values()), count)


def _case(text: str, seed: int) -> Case:
    """The case that ``--case`` names."""
    attack, _, number = text.partition(":")
    if attack not in ATTACKS or not number.isdecimal():
        raise click.UsageError(f"--case must be ATTACK:NUMBER with one of the attacks {', '.join(ATTACKS)}.")
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


if __name__ == "__main__":
    main()
