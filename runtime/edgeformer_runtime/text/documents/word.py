"""Word documents (``.docx``): paragraphs of the text, of headers, footers, notes and comments."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgeformer_runtime.text.documents.document import Document
from edgeformer_runtime.text.documents.marked import MarkedText, events
from edgeformer_runtime.text.documents.packages import Package

if TYPE_CHECKING:
    from lxml.etree import _Element

_PART = re.compile(r"word/(?:document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml")
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_Format = tuple[object, ...]
_INVISIBLE = frozenset(f"{_W}{name}" for name in ("lang", "noProof"))
"""What the format of a run says about spelling checks."""
_CONTAINERS = frozenset(f"{_W}{name}" for name in ("hyperlink", "ins", "smartTag", "sdt", "sdtContent", "fldSimple"))

_BREAKS = frozenset(f"{_W}{name}" for name in ("br", "cr", "tab"))
"""What ends a sentence inside a paragraph."""


@dataclass
class _Paragraph:
    """A paragraph as marked text. Most of its text has one format; text of other formats is marked."""

    element: _Element
    marked: MarkedText = field(default_factory=MarkedText)
    elements: list[_Element] = field(default_factory=list)
    """Elements by number: those without text, or an empty run or link for text of another format."""
    base: _Element | None = None
    """An empty run of the format that most text has."""


def read_docx(content: bytes, name: str) -> Document:
    """Read a Word document.

    Raises:
        ConfigError: lxml is not installed.
        DataError: the document is damaged.
    """
    package = Package(content, name)
    roots = {part: package.xml(part) for part in package.names if _PART.fullmatch(part)}
    paragraphs = [
        _read(paragraph)
        for root in (roots or {"": package.xml("word/document.xml")}).values()
        for paragraph in root.iter(f"{_W}p")
        if any(text.text for text in _own_texts(paragraph))
    ]

    def write(texts: Sequence[str], language: str) -> bytes:
        for paragraph, text in zip(paragraphs, texts, strict=True):
            _write(paragraph, text)
        return package.written(roots)

    return Document([[paragraph.marked.block()] for paragraph in paragraphs], write)


def _own_texts(paragraph: _Element) -> list[_Element]:
    """Text elements of a paragraph, without those of paragraphs inside it, such as text boxes."""
    return [text for text in paragraph.iter(f"{_W}t") if next(text.iterancestors(f"{_W}p")) is paragraph]


def _is_text_run(element: _Element) -> bool:
    return element.tag == f"{_W}r" and any(child.tag == f"{_W}t" and child.text for child in element)


def _format(run: _Element) -> _Format:
    """The format of a run, to be compared with that of others."""
    properties = run.find(f"{_W}rPr")
    if properties is None:
        return ()
    content = _content(properties)
    return () if content == (properties.tag,) else content


def _content(element: _Element) -> tuple[object, ...]:
    children = [child for child in element if child.tag not in _INVISIBLE]
    return (element.tag, *sorted(element.attrib.items()), *map(_content, children))


def _read(element: _Element) -> _Paragraph:
    paragraph = _Paragraph(element)
    sizes: Counter[_Format] = Counter()
    for child in element:
        if _is_text_run(child):
            sizes[_format(child)] += len("".join(child.itertext(f"{_W}t")))
    base = sizes.most_common(1)[0][0] if sizes else None
    last: _Format | None = None
    for child in list(element):
        if child.tag in (f"{_W}pPr", f"{_W}proofErr"):
            continue
        if _is_text_run(child):
            last = _read_run(paragraph, child, base, last)
            continue
        if last is not None:
            paragraph.marked.close()
            last = None
        text = _linked_text(child)
        paragraph.elements.append(child)
        if text:
            paragraph.marked.open(len(paragraph.elements) - 1)
            paragraph.marked.text(text)
            paragraph.marked.close()
        else:
            is_break = child.tag == f"{_W}r" and any(part.tag in _BREAKS for part in child)
            paragraph.marked.point(len(paragraph.elements) - 1, is_break=is_break)
    if last is not None:
        paragraph.marked.close()
    return paragraph


def _read_run(paragraph: _Paragraph, run: _Element, base: _Format | None, last: _Format | None) -> _Format | None:
    """Add a run; return its format if its element stays open, for runs of the same format that follow."""
    own = _format(run)
    if last is not None and own != last:
        paragraph.marked.close()
        last = None
    if own == base:
        paragraph.base = _empty(run) if paragraph.base is None else paragraph.base
    elif last is None:
        paragraph.elements.append(_empty(run))
        paragraph.marked.open(len(paragraph.elements) - 1)
        last = own
    for child in run:
        if child.tag == f"{_W}t":
            paragraph.marked.text(child.text or "")
        elif child.tag != f"{_W}rPr":  # such as a line break
            alone = _empty(run)
            alone.append(deepcopy(child))
            paragraph.elements.append(alone)
            paragraph.marked.point(len(paragraph.elements) - 1, is_break=child.tag in _BREAKS)
    return last


def _empty(run: _Element) -> _Element:
    """A run with the format of another, and without its content."""
    copy = deepcopy(run)
    copy.tail = None
    for child in list(copy):
        if child.tag != f"{_W}rPr":
            copy.remove(child)
    return copy


def _linked_text(element: _Element) -> str:
    """Text of a link or the like, whose runs all get the format of its first."""
    if element.tag not in _CONTAINERS:
        return ""
    texts = list(element.iter(f"{_W}t"))
    has_paragraphs = next(element.iter(f"{_W}p"), None) is not None
    return "" if has_paragraphs else "".join(text.text or "" for text in texts)


def _write(paragraph: _Paragraph, text: str) -> None:
    element = paragraph.element
    for child in list(element):
        if child.tag != f"{_W}pPr":
            element.remove(child)
    opened: list[int] = []
    for kind, value in events(text):
        if kind == "text":
            format = paragraph.elements[opened[-1]] if opened else paragraph.base
            _append_text(element, format, str(value))
        elif kind == "close":
            opened.remove(int(value))
        else:
            template = paragraph.elements[int(value)]
            if _is_point(paragraph, int(value)):
                element.append(template)
            else:
                opened.append(int(value))


def _is_point(paragraph: _Paragraph, number: int) -> bool:
    return all(tag.raw != f"\x01/{number}\x02" for tag in paragraph.marked.tags)


def _append_text(paragraph: _Element, template: _Element | None, text: str) -> None:
    """Append text as a run of a format, or as a link."""
    if template is None:
        template = paragraph.makeelement(f"{_W}r")
    if template.tag == f"{_W}r":
        run = copy = deepcopy(template)
    else:
        copy = deepcopy(template)
        copy.tail = None
        runs = [run for run in copy.iter(f"{_W}r") if _is_text_run(run)]
        run = runs[0]
        for other in runs[1:]:
            parent = other.getparent()
            if parent is not None:
                parent.remove(other)
        for child in list(run):
            if child.tag == f"{_W}t":
                run.remove(child)
    content = run.makeelement(f"{_W}t")
    content.text = text
    content.set(_SPACE, "preserve")
    run.append(content)
    paragraph.append(copy)
