"""Report of a precision choice: a Markdown page and, if matplotlib is installed, a plot."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from edgeformer.markdown import markdown_table
from edgeformer_export.choice_table import (
    LATENCY_COLUMNS,
    QUALITY_COLUMNS,
    SENSITIVITY_COLUMNS,
    latency_notes,
    latency_rows,
    quality_notes,
    quality_rows,
    sensitivity_rows,
)
from edgeformer_runtime.bundle.choice import Choice
from edgeformer_runtime.files import write_atomically

REPORT_FILE, PLOT_FILE = "report.md", "candidates.png"


def write_report(folder: Path, name: str, choice: Choice) -> Path:
    """Write :data:`REPORT_FILE` and :data:`PLOT_FILE`.

    Args:
        folder: an existing folder.
        name: name of the bundle.
        choice: measured candidates, one of them chosen.

    Returns:
        Path of the Markdown file.
    """
    plot = []
    if find_spec("matplotlib") is not None:
        from edgeformer_export.auto.plot import plot_candidates

        plot_candidates(choice, folder / PLOT_FILE)
        plot = [
            f"![Quality against size and latency]({PLOT_FILE})",
            "",
            "Bars are 95 % confidence intervals; those of BLEU are of the difference from fp32. Filled points are on "
            "the Pareto front, crosses are inadmissible, a ring marks the chosen candidate, and the dashed line is the "
            "budget. Better is toward the upper left.",
            "",
        ]
    lines = [f"# Precision of {name}: {choice.chosen}", "", choice.reason, ""]
    lines += [*(f"- {remark}" for remark in choice.remarks), "", *plot]
    lines += ["## Quality and size", "", *markdown_table(QUALITY_COLUMNS, quality_rows(choice)), ""]
    lines += _paragraphs(quality_notes(choice))
    lines += ["## Latency", "", *markdown_table(LATENCY_COLUMNS, latency_rows(choice)), ""]
    lines += _paragraphs(latency_notes(choice))
    for precision, order in choice.sensitivity.items():
        lines += [
            f"## Sensitivity of layers in {precision}",
            "",
            f"Each layer alone in {precision}, all others in fp32; the most sensitive first.",
            "",
            *markdown_table(SENSITIVITY_COLUMNS, sensitivity_rows(order)),
            "",
        ]
    path = folder / REPORT_FILE
    write_atomically(path, "\n".join(lines).encode())
    return path


def _paragraphs(lines: list[str]) -> list[str]:
    return [text for line in lines for text in (line, "")]
