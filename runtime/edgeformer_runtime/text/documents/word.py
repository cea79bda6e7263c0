"""Word documents (``.docx``): paragraphs of the text, of headers, footers, notes and comments."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgeformer_runtime.errors import DataError
from edgeformer_runtime.text.documents.document import Document
from edgeformer_runtime.text.documents.marked import MarkedText, events
from edgeformer_runtime.text.documents.packages import Package

if TYPE_CHECKING:
    from lxml.etree import _Element

_PART = re.compile(r"word/(?:document|header|footer|footnotes|endnotes|comments)\d*\.xml")
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_Format = tuple[object, ...]
_INVISIBLE = frozenset(f"{_W}{name}" for name in ("lang", "noProof"))
"""What the format of a run says about spelling checks."""
_CONTAINERS = frozenset(
    f"{_W}{name}"
    for name in ("bdo", "customXml", "dir", "fldSimple", "hyperlink", "ins", "moveTo", "sdt", "sdtContent", "smartTag")
)
"""Elements of a paragraph that have runs."""
_PROPERTIES = frozenset(f"{_W}{name}" for name in ("customXmlPr", "pPr", "sdtEndPr", "sdtPr", "smartTagPr"))
"""What stays at the beginning of a paragraph or container."""

_BREAKS = frozenset(f"{_W}{name}" for name in ("br", "cr", "tab"))
"""What ends a sentence inside a paragraph."""


@dataclass
class _Paragraph:
    """A paragraph as marked text. Text whose format is not that of most text of its paragraph, link or the like is
    marked."""

    element: _Element
    marked: MarkedText = field(default_factory=MarkedText)
    elements: list[_Element] = field(default_factory=list)
    """Elements by number: those without text, an empty run for text of another format, or a link or the like."""
    bases: dict[_Element, _Element] = field(default_factory=dict)
    """For paragraph and containers: an empty run of the format that most of their text has."""


def read_docx(content: bytes, name: str) -> Document:
    """Read a Word document.

    Raises:
        ConfigError: lxml is not installed.
        DataError: the document is damaged.
    """
    package = Package(content, name)
    roots = {part: package.xml(part) for part in package.names if _PART.fullmatch(part)}
    if not any(root.tag == f"{_W}document" for root in roots.values()):
        package.xml("word/document.xml")
        raise DataError(f"`{name}` has no text in the usual format of Word; save it again, not as Strict Open XML.")
    elements = [
        element
        for root in roots.values()
        for element in root.iter(f"{_W}p")
        if any(text.text for text in _own_texts(element))
    ]
    paragraphs = [_read(element) for element in elements]

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
    _read_children(paragraph, element)
    return paragraph


def _read_children(paragraph: _Paragraph, element: _Element) -> None:
    """Add what a paragraph or a container has."""
    base = _most_common_run(element)
    if base is not None:
        paragraph.bases[element] = _empty(base)
    last: _Format | None = None
    for child in element:
        if child.tag in _PROPERTIES or child.tag == f"{_W}proofErr":
            continue
        if base is not None and _is_text_run(child):
            last = _read_run(paragraph, child, _format(base), last)
            continue
        if last is not None:
            paragraph.marked.close()
            last = None
        paragraph.elements.append(child)
        number = len(paragraph.elements) - 1
        if child.tag in _CONTAINERS:
            paragraph.marked.open(number)
            _read_children(paragraph, child)
            paragraph.marked.close()
        else:
            is_break = child.tag == f"{_W}r" and any(part.tag in _BREAKS for part in child)
            paragraph.marked.point(number, "\n" if is_break else "")
    if last is not None:
        paragraph.marked.close()


def _most_common_run(element: _Element) -> _Element | None:
    """The first run of the format that most text has; ``None`` if there is no text."""
    sizes: Counter[_Format] = Counter()
    runs: dict[_Format, _Element] = {}
    for run in filter(_is_text_run, element):
        sizes[_format(run)] += len("".join(run.itertext(f"{_W}t")))
        runs.setdefault(_format(run), run)
    return runs[sizes.most_common(1)[0][0]] if sizes else None


def _read_run(paragraph: _Paragraph, run: _Element, base: _Format, last: _Format | None) -> _Format | None:
    """Add a run; return its format if its element stays open, for runs of the same format that follow."""
    own = _format(run)
    if last is not None and own != last:
        paragraph.marked.close()
        last = None
    if own != base and last is None:
        paragraph.elements.append(_empty(run))
        paragraph.marked.open(len(paragraph.elements) - 1)
        last = own
    for child in list(run):
        if child.tag == f"{_W}t":
            paragraph.marked.text(child.text or "")
        elif child.tag != f"{_W}rPr":  # such as a line break
            alone = _empty(run)
            alone.append(child)  # not a copy: it may have paragraphs, as text boxes do
            paragraph.elements.append(alone)
            paragraph.marked.point(len(paragraph.elements) - 1, "\n" if child.tag in _BREAKS else "")
    return last


def _empty(run: _Element) -> _Element:
    """A run with the format of another, and without its content."""
    copy = deepcopy(run)
    copy.tail = None
    for child in list(copy):
        if child.tag != f"{_W}rPr":
            copy.remove(child)
    return copy


def _write(paragraph: _Paragraph, text: str) -> None:
    opened = [(paragraph.element, paragraph.bases.get(paragraph.element))]
    _clear(paragraph.element)
    for kind, value in events(text):
        parent, format = opened[-1]
        if kind == "text":
            _append_text(parent, format, str(value))
        elif kind == "close":
            opened.pop()
        else:
            element = paragraph.elements[int(value)]
            if element.tag in _CONTAINERS:
                parent.append(element)
                opened.append((element, paragraph.bases.get(element, format)))
                _clear(element)
            elif _is_point(paragraph, int(value)):
                parent.append(element)
            else:
                opened.append((parent, element))


def _clear(element: _Element) -> None:
    for child in list(element):
        if child.tag not in _PROPERTIES:
            element.remove(child)


def _is_point(paragraph: _Paragraph, number: int) -> bool:
    return all(tag.raw != f"\x01/{number}\x02" for tag in paragraph.marked.tags)


def _append_text(parent: _Element, format: _Element | None, text: str) -> None:
    """Append text as a run."""
    run = parent.makeelement(f"{_W}r") if format is None else deepcopy(format)
    content = run.makeelement(f"{_W}t")
    content.text = text
    content.set(_SPACE, "preserve")
    run.append(content)
    parent.append(run)
