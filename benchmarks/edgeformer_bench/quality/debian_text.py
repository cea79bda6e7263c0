"""Test text with references: English prose and its translations in Debian's packages, which are aligned as they are.

Usage: unpack the packages of Debian 12 (``dpkg -x PACKAGE FOLDER``) ``debian-handbook``, a book; ``gnome-user-docs``,
help for users; and ``wesnoth-1.16-data``, the world of a fantasy game; then
``python -m edgeformer_bench.quality.debian_text FOLDER --language pt_BR --out OUT``.
"""

from __future__ import annotations

import gettext
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import click
from lxml import etree, html

from edgeformer_bench.commands import Command

Pairs = Iterator[tuple[str, str]]

SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[\"“(]?[A-ZÀ-Ý])")
SENTENCE = re.compile(r"[\"“(]?[A-ZÀ-Ý].*[.!?][\"”)]?")
NO_PROSE = re.compile(r"[<>{}\[\]|=\\_~#$%@*]|//|→|--|\d\.\d|/[a-z]|[a-z]\(|[a-z][A-Z]")
MALLARD = "{http://projectmallard.org/1.0/}"
CATALOGS = ("wesnoth-units", "wesnoth-help", "wesnoth-tutorial")
"""Catalogs of prose; others have labels."""


def handbook(root: Path, language: str) -> Pairs:
    """Yield the paragraphs of pages that have the same elements in both languages."""
    for page in sorted((root / "doc/debian-handbook/html/en-US").glob("*.html")):
        translated = page.parents[1] / language.replace("_", "-") / page.name
        if translated.exists():
            sides = [[*html.parse(file).getroot().iter("p", "li", "div", "pre")] for file in (page, translated)]
            kinds = [[(element.tag, element.get("class")) for element in side] for side in sides]
            if kinds[0] == kinds[1]:
                for kind, *pair in zip(kinds[0], *sides, strict=True):
                    if kind == ("div", "para") and pair[0].find(".//div") is None:
                        yield _text(pair[0]), _text(pair[1])


def gnome(root: Path, language: str) -> Pairs:
    """Yield the paragraphs of pages that have the same number of them in both languages."""
    for page in sorted((root / "help/C/gnome-help").glob("*.page")):
        translated = root / "help" / language / "gnome-help" / page.name
        if translated.exists():
            sides = [
                [p for p in etree.parse(file).iter(f"{MALLARD}p") if not any(p.iterancestors(f"{MALLARD}info"))]
                for file in (page, translated)
            ]
            if len(sides[0]) == len(sides[1]):
                yield from ((_text(english), _text(other)) for english, other in zip(*sides, strict=True))


def wesnoth(root: Path, language: str) -> Pairs:
    """Yield the lines of messages that have the same number of them in both languages."""
    for name in CATALOGS:
        for file in root.glob(f"games/wesnoth/*/locale/{language}/LC_MESSAGES/{name}.mo"):
            with file.open("rb") as stream:
                messages = vars(gettext.GNUTranslations(stream))["_catalog"]
            for key, message in messages.items():
                if isinstance(key, str):
                    english = re.split(r"[\x04^]", key)[-1].split("\n")
                    other = message.split("\n")
                    if len(english) == len(other):
                        yield from zip(english, other, strict=True)


def _text(element: etree._Element) -> str:
    return " ".join("".join(element.itertext()).split())


def sentences(pairs: Pairs) -> dict[str, str]:
    """Split paragraphs and keep the sentences of 6 to 45 words of prose, English to translation."""
    kept: dict[str, str] = {}
    for paragraph in pairs:
        sides = [[" ".join(part.split()) for part in SENTENCE_END.split(text.strip())] for text in paragraph]
        if len(sides[0]) == len(sides[1]):
            kept |= {english: other for english, other in zip(*sides, strict=True) if is_prose(english, other)}
    return kept


def is_prose(english: str, other: str) -> bool:
    """Return whether two texts look like a whole sentence of prose and its translation."""
    return (
        6 <= len(english.split()) <= 45
        and all(SENTENCE.fullmatch(text) and not NO_PROSE.search(text) for text in (english, other))
        and 0.6 < len(other) / len(english) < 1.8
        and english != other
        and not {"the", "and", "of", "is"} & set(other.split())
        and re.findall(r"\d+", english) == re.findall(r"\d+", other)
    )


@click.command(cls=Command)
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
@click.option("--language", required=True, help="Language of the translations, as `pt_BR`.")
@click.option("--limit", default=500, show_default=True, help="Number of sentences from each package.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder for the two files, line by line.")
def main(folder: Path, language: str, limit: int, out: Path) -> None:
    """Write OUT/en.txt and OUT/LANGUAGE.txt; the sentences are drawn by their hashes, the same each time."""
    pairs: list[tuple[str, str]] = []
    for source in (handbook, gnome, wesnoth):
        found = sorted(sentences(source(folder / "usr/share", language)).items(), key=lambda pair: _hash(pair[0]))
        click.echo(f"{source.__name__}: {len(found[:limit]):,} of {len(found):,} sentences")
        pairs += found[:limit]
    out.mkdir(parents=True, exist_ok=True)
    for name, lines in zip(("en", language), zip(*pairs, strict=True), strict=True):
        (out / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


if __name__ == "__main__":
    main()
