"""What the attacks found, and the tables of ``docs/security.md``."""

from __future__ import annotations

from pathlib import Path

import msgspec

from edgeformer.markdown import markdown_table
from edgeformer_runtime.files import write_atomically
from robustness.files import FILES
from robustness.interruptions.kills import Left
from robustness.interruptions.writing import WRITINGS
from robustness.outcomes import Outcome
from robustness.texts import TEXT_ATTACK

KINDS = {"kill": "kill", "power": "power failure", "ext4": "power cut of ext4"}
"""How writing is interrupted, and the words for readers."""


class Defect(msgspec.Struct, frozen=True):
    """Something that must not happen."""

    case: str
    """What reproduces it: attack and number, or the system call."""
    outcome: str
    detail: str


class Row(msgspec.Struct):
    """The result of one attack."""

    tried: int = 0
    counts: dict[str, int] = {}
    """Number of cases by outcome."""
    peak_mib: float = 0.0
    """How far memory rose at most."""
    defects: list[Defect] = []

    def add(self, outcome: str, peak_mib: float, defect: Defect | None) -> None:
        """Count one case."""
        self.tried += 1
        self.counts[outcome] = self.counts.get(outcome, 0) + 1
        self.peak_mib = max(self.peak_mib, peak_mib)
        if defect is not None:
            self.defects.append(defect)


class Report(msgspec.Struct, kw_only=True):
    """The results of all attacks."""

    command: str
    machine: str
    versions: str
    seed: int
    mutations: int
    rows: dict[str, Row] = {}
    """Finished attacks by name."""
    skipped: dict[str, str] = {}
    """Why attacks could not be made, by name."""

    @property
    def defects(self) -> list[Defect]:
        """Everything that must not happen."""
        return [defect for row in self.rows.values() for defect in row.defects]

    def save(self, path: Path) -> None:
        """Write the report."""
        write_atomically(path, msgspec.json.format(msgspec.json.encode(self), indent=1))


def tables(report: Report) -> list[str]:
    """The report in Markdown."""
    lines: list[str] = []
    opened = {name: report.rows[name] for name in (*FILES, TEXT_ATTACK) if name in report.rows}
    if opened:
        used = (Outcome.REFUSED, Outcome.SAME, Outcome.OTHER)
        columns = ["damaged", "tried", *(outcome.value for outcome in used), "defects", "most memory, MiB"]
        rows = [
            [
                _what(name),
                f"{row.tried:,}",
                *(_count(row, outcome.value) for outcome in used),
                f"{len(row.defects):,}",
                f"{row.peak_mib:.0f}",
            ]
            for name, row in opened.items()
        ]
        lines += [*markdown_table(columns, rows), ""]
    columns = ["interrupted writing of", "interrupted by", "tried", *(left.value for left in Left)]
    rows = [
        [WRITINGS[name].what, words, f"{row.tried:,}", *(_count(row, left.value) for left in Left)]
        for name in WRITINGS
        for kind, words in KINDS.items()
        if (row := report.rows.get(f"{kind}-{name}")) is not None
    ]
    if rows:
        lines += [*markdown_table(columns, rows), ""]
    lines += [f"Skipped `{name}`: {reason}." for name, reason in report.skipped.items()]
    made = f"`make attack` with {report.mutations:,} cases of each kind, seed {report.seed}"
    return [*lines, f"{made}; {report.machine}; {report.versions}."]


def _what(name: str) -> str:
    """What an attack damages, for readers."""
    if name == TEXT_ATTACK:
        return "text to translate"
    if name == "signed":
        return "any file of a signed bundle"
    return f"`{FILES[name]}`"


def _count(row: Row, outcome: str) -> str:
    return f"{row.counts.get(outcome, 0):,}"
