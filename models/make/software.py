"""The strings and the help of programs, from Debian packages.

English sentences and their translations from LibreOffice (MPL-2.0) and the GNOME user documentation (CC-BY-SA 3.0). On
Debian or Ubuntu, this writes the French text::

    apt-get download libreoffice-help-en-us libreoffice-help-fr libreoffice-l10n-fr gnome-user-docs
    python -m models.make.software fr *.deb --out software.en-fr.tsv
"""

from __future__ import annotations

import argparse
import gettext
import io
import lzma
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from edgeformer.data.text import opened
from edgeformer.errors import DataError

_AR_MAGIC, _AR_HEADER = b"!<arch>\n", 60
_HELP = re.compile(r"\./usr/share/libreoffice/help/(?P<language>[\w-]+)/(?P<page>text/.+\.html)")
_MESSAGES = re.compile(r"\./usr/lib/libreoffice/program/resource/(?P<language>[\w-]+)/LC_MESSAGES/(?P<page>\w+)\.mo")
_GNOME = re.compile(r"\./usr/share/help/(?P<language>[\w-]+)/gnome-help/(?P<page>[\w.-]+\.page)")
_ACCESS_KEY = re.compile(r"[_~](?=\w)")
_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-ZÀ-Þ])")
_PAGE_TAGS = ("p", "title", "desc", "cite", "td")

Texts = dict[tuple[str, object], str]
"""Texts of one language by page and place in it."""


def software_pairs(packages: Sequence[Path], language: str) -> list[tuple[str, str, str]]:
    """Return English texts, their translations and the names of their sources, without repetitions.

    Paragraphs of LibreOffice's help are paired by their ids, messages by their keys, and those of GNOME's pages by
    order, if both languages have the same number.

    Args:
        packages: Debian packages.
        language: as the packages write it, such as ``fr`` or ``pt-BR``.

    Raises:
        DataError: a file is missing, damaged or not a Debian package, or the packages hold no pairs.
    """
    help_texts: dict[str, Texts] = {"en-US": {}, language: {}}
    gnome: dict[str, Texts] = {"C": {}, language: {}}
    messages: list[tuple[str, str]] = []
    for path, content in chain.from_iterable(map(_files, packages)):
        if (match := _HELP.fullmatch(path)) and match["language"] in help_texts:
            help_texts[match["language"]] |= _paragraphs(match["page"], content)
        elif (match := _GNOME.fullmatch(path)) and match["language"] in gnome:
            gnome[match["language"]] |= _page(match["page"], content)
        elif (match := _MESSAGES.fullmatch(path)) and match["language"] == language:
            messages += _catalog(content)
    sizes = [Counter(page for page, _ in texts) for texts in gnome.values()]
    same = {page for page in sizes[0] if sizes[0][page] == sizes[1][page]}
    found = [(*pair, "libreoffice-help") for pair in _aligned(help_texts["en-US"], help_texts[language])]
    found += [(*pair, "libreoffice-ui") for pair in messages]
    in_both = {key: text for key, text in gnome["C"].items() if key[0] in same}
    found += [(*pair, "gnome-user-docs") for pair in _aligned(in_both, gnome[language])]
    distinct = {
        pair: name
        for source, target, name in found
        for pair in _sentences(source, target)
        if all(pair) and pair[0] != pair[1]
    }
    if not distinct:
        raise DataError(f"The packages hold no text in English and `{language}`; give those of both languages.")
    return [(source, target, name) for (source, target), name in distinct.items()]


def _sentences(source: str, target: str) -> list[tuple[str, str]]:
    """The sentences of a paragraph, if both languages have the same number, else the paragraph."""
    sides = _SENTENCE_END.split(source), _SENTENCE_END.split(target)
    return list(zip(*sides, strict=True)) if len(sides[0]) == len(sides[1]) else [(source, target)]


def _aligned(source: Mapping[tuple[str, object], str], target: Texts) -> Iterator[tuple[str, str]]:
    return ((source[key], target[key]) for key in source if target.get(key))


def _files(package: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files that a Debian package installs: those of a tar archive in an ar archive."""
    with opened(package) as stream:
        content = stream.read()
    if not content.startswith(_AR_MAGIC):
        raise DataError(f"`{package}` is not a Debian package; give files whose names end in .deb.")
    position = len(_AR_MAGIC)
    try:
        while position < len(content):
            name, size = content[position : position + 16], int(content[position + 48 : position + 58])
            position += _AR_HEADER
            if position + size > len(content):
                raise EOFError("it ends early")
            if name.startswith(b"data.tar"):
                with tarfile.open(fileobj=io.BytesIO(content[position : position + size])) as archive:
                    for member in archive:
                        if member.isfile() and (file := archive.extractfile(member)):
                            yield member.name, file.read()
            position += size + size % 2
    except (ValueError, EOFError, tarfile.TarError, lzma.LZMAError) as error:
        raise DataError(f"`{package}` is damaged: {error}. Fetch it again.") from None


def _paragraphs(page: str, content: bytes) -> Texts:
    """Paragraphs, titles and cells of a page of LibreOffice's help; of names of keys, not those of a Mac."""
    from lxml import html

    texts: Texts = {}
    root = html.fromstring(content)
    for mac in root.xpath("//span[@class='MAC']"):
        mac.drop_tree()
    for element in root.iter("p", "h1", "h2", "h3", "h4", "h5", "h6", "td", "th"):
        if element.get("id") and not any(child.tag in ("p", "table", "div") for child in element.iterdescendants()):
            texts[page, element.get("id")] = _clean(element.text_content())
    return texts


def _page(page: str, content: bytes) -> Texts:
    """Elements of a page of GNOME's documentation."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    root = etree.fromstring(content, parser)
    elements = [element for element in root.iter("{*}*") if etree.QName(element).localname in _PAGE_TAGS]
    return {(page, number): _clean("".join(element.itertext())) for number, element in enumerate(elements)}


def _catalog(content: bytes) -> Iterator[tuple[str, str]]:
    """Messages of a gettext catalog whose keys are ``context EOT text``, without access keys."""
    catalog: dict[Any, str] = gettext.GNUTranslations(io.BytesIO(content))._catalog  # type: ignore[attr-defined]
    for key, text in catalog.items():
        if isinstance(key, str) and "\x04" in key:
            yield _unmarked(key.partition("\x04")[2]), _unmarked(text)


def _unmarked(text: str) -> str:
    """A label without the mark of its access key, if it has one mark."""
    text = _clean(text)
    return _ACCESS_KEY.sub("", text) if len(_ACCESS_KEY.findall(text)) == 1 else text


def _clean(text: str) -> str:
    return re.sub(r"[ \t\r\n]+", " ", text).strip()


def main() -> None:
    """Write lines of English, translation and name of the source."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language", help="of the translations, such as fr")
    parser.add_argument("packages", type=Path, nargs="+", help="files whose names end in .deb")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    options = parser.parse_args()
    pairs = software_pairs(options.packages, options.language)
    options.out.write_text("".join("\t".join(pair) + "\n" for pair in pairs), encoding="utf-8")
    for name, count in Counter(name for *_, name in pairs).items():
        print(f"{name}: {count:,} pairs")


if __name__ == "__main__":
    main()
