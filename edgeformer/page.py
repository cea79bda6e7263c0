"""Reports as HTML pages: one file each, without scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
table { border-collapse: collapse; margin: 1rem 0 2rem; } caption { text-align: left; font-weight: 600; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; border-bottom: 1px solid #888; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; } code { background: #f4f4f4; padding: 0 .2rem; }
"""


def document(title: str, parts: Iterable[str]) -> str:
    """A page.

    Args:
        title: plain text.
        parts: elements of its body.
    """
    head = f"<meta charset='utf-8'><title>{escape(title)}</title><style>{STYLE}</style>"
    return f"<!doctype html>\n<html lang='en'><head>{head}</head><body>\n" + "\n".join(parts) + "\n</body></html>\n"


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain text; the first column holds names."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line("td", row) for row in rows)
    return f"<table><caption>{escape(title)}</caption>{line('th', columns)}{body}</table>"
