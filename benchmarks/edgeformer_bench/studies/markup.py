"""Measures what translations of real documents keep of their markup, as parsers read it.

Usage: ``python -m edgeformer_bench.studies.markup BUNDLE FOLDER``, with a folder of Markdown and HTML files
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from lxml import html
from markdown_it import MarkdownIt

from edgeformer_bench.commands import Command
from edgeformer_runtime.cli.output import console, print_json, table
from edgeformer_runtime.errors import ConfigError
from edgeformer_runtime.text import TextTranslator
from edgeformer_runtime.text.documents.files import translate_content
from edgeformer_runtime.text.markup import INLINE
from edgeformer_runtime.translator import Translator

if TYPE_CHECKING:
    from lxml.etree import _Element

KINDS = ("links", "emphasis", "other elements", "code", "images", "footnote marks", "blocks")
"""What is counted: elements that have text, code in the elements that it is in, and blocks in their order."""
_EMPHASIS = frozenset(["b", "del", "em", "i", "s", "strike", "strong", "u"])
_CODE = frozenset(["code", "kbd", "samp", "tt", "var"])
_NOTE = re.compile(r"\[\^[^\]\s]+\]")
_FORMATS = (".htm", ".html", ".markdown", ".md")

Counts = dict[str, Counter[Hashable]]


def features(content: str, name: str) -> Counts:
    """Count what a document has of each kind.

    Args:
        content: the document.
        name: its file name.
    """
    if not name.endswith((".htm", ".html")):
        content = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(content)
    counts: Counts = {kind: Counter() for kind in KINDS}
    root = html.document_fromstring(content.encode() or b"<p>", parser=html.HTMLParser(encoding="utf-8"))
    blocks = []
    for element in root.iter():
        if not isinstance(element.tag, str) or any(each.tag == "pre" for each in element.iterancestors()):
            continue
        if element.tag in INLINE:
            for kind, key in _inline(element):
                counts[kind][key] += 1
        else:
            blocks.append(element.tag)
    counts["footnote marks"].update(_NOTE.findall("".join(root.itertext())))
    counts["blocks"].update(enumerate(blocks))
    return counts


def _inline(element: _Element) -> Iterator[tuple[str, Hashable]]:
    """The kind of an element, and what must be the same in the translation; nothing for those without text."""
    tag, text = str(element.tag), "".join(element.itertext()).strip()
    if tag == "img":
        yield "images", element.get("src")
    elif tag in _CODE:
        yield "code", (text, *(each.tag for each in element.iterancestors() if each.tag in INLINE))
    elif tag == "a" and element.get("href") is not None and text:
        yield "links", element.get("href")
    elif tag in _EMPHASIS and text:
        yield "emphasis", tag
    elif text:
        yield "other elements", (tag, element.get("class"), element.get("id"), element.get("name"))


def kept(source: Counts, translation: Counts) -> dict[str, tuple[int, int]]:
    """For each kind, how many a translation has of what its source has, and how many that is."""
    return {kind: ((source[kind] & translation[kind]).total(), source[kind].total()) for kind in KINDS}


@click.command(cls=Command)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the result of each file as JSON.")
def main(bundle: Path, folder: Path, as_json: bool) -> None:
    """Translate the Markdown and HTML files in a folder, and count what the translations keep of their markup."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _FORMATS)
    if not paths:
        raise ConfigError(f"`{folder}` must have files that end in {', '.join(_FORMATS)}.")
    results: dict[str, dict[str, tuple[int, int]]] = {}
    with Translator.open(bundle, threads=1) as translator:
        for path in paths:
            translated, _ = translate_content(TextTranslator(translator), path.read_bytes(), path.name)
            texts = path.read_text("utf-8"), translated.decode()
            results[str(path.relative_to(folder))] = kept(*(features(text, path.name.lower()) for text in texts))
    if as_json:
        print_json(results)
        return
    rows = table(f"{bundle}, kept of what the source has", "", *KINDS)
    for name, result in results.items():
        rows.add_row(name, *(_share(*result[kind]) for kind in KINDS))
    totals = {
        kind: [sum(column) for column in zip(*(r[kind] for r in results.values()), strict=True)] for kind in KINDS
    }
    rows.add_row(f"all {len(results)}", *(_share(*totals[kind]) for kind in KINDS))
    console().print(rows)


def _share(*counts: Any) -> str:
    return "{:,} of {:,}".format(*counts)


if __name__ == "__main__":
    main()
