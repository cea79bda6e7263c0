"""What the attacks found: a file that a later run continues, and the tables of ``docs/security.md``."""

from __future__ import annotations

from pathlib import Path

import msgspec

from edgeformer.errors import ConfigError
from edgeformer.markdown import markdown_table
from edgeformer_runtime.files import write_atomically
from robustness.files import FILES
from robustness.kills import Left
from robustness.outcomes import Outcome
from robustness.texts import TEXT_ATTACK
from robustness.writing import WRITINGS

BEGIN, END = "<!-- made by `make {}`: begin -->", "<!-- made by `make {}`: end -->"
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

    def resumed(self, path: Path) -> Report:
        """This report with the finished attacks of an earlier one, if that had the same settings.

        Raises:
            ConfigError: it had others, or cannot be read.
        """
        if not path.is_file():
            return self
        try:
            earlier = msgspec.json.decode(path.read_bytes(), type=Report)
        except msgspec.DecodeError as error:
            raise ConfigError(f"`{path}` is damaged: {error}; run without --resume.") from None
        if (earlier.seed, earlier.mutations) != (self.seed, self.mutations):
            raise ConfigError(f"`{path}` has --seed {earlier.seed} and --mutations {earlier.mutations}; give the same.")
        return msgspec.structs.replace(self, rows=earlier.rows)


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


def replace_region(page: Path, name: str, lines: list[str]) -> None:
    """Replace what a command made in a page: the lines between its marks.

    Args:
        page: a file in Markdown.
        name: the command, as ``make`` knows it.
        lines: the new content.

    Raises:
        ConfigError: the page lacks the marks.
    """
    text, begin, end = page.read_text(encoding="utf-8"), BEGIN.format(name), END.format(name)
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ConfigError(f"`{page}` lacks the lines `{begin}` and `{end}`, between which the table is written.")
    content = "\n".join(lines).strip()
    write_atomically(page, f"{before}{begin}\n\n{content}\n\n{end}{after}".encode())


def _what(name: str) -> str:
    """What an attack damages, for readers."""
    if name == TEXT_ATTACK:
        return "text to translate"
    if name == "signed":
        return "any file of a signed bundle"
    return f"`{FILES[name]}`"


def _count(row: Row, outcome: str) -> str:
    return f"{row.counts.get(outcome, 0):,}"
