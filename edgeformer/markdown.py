"""Tables in Markdown, for reports and model cards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table; the first column is left-aligned, the others right-aligned."""
    rule = ["---", *["---:"] * (len(columns) - 1)]
    lines = (columns, rule, *rows)
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines]
