"""OpenDocument texts (``.odt``): paragraphs and headings of the text, and of headers and footers."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgeformer_runtime.text.documents.document import Document
from edgeformer_runtime.text.documents.marked import MarkedText, events
from edgeformer_runtime.text.documents.packages import Package
from edgeformer_runtime.text.documents.ranges import nested_pairs, own_elements, put_in_order

if TYPE_CHECKING:
    from lxml.etree import _Element

_PARTS = ("content.xml", "styles.xml")
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_PARAGRAPHS = (f"{_TEXT}p", f"{_TEXT}h")
_INLINE = frozenset(f"{_TEXT}{name}" for name in ("span", "a", "meta", "ruby", "ruby-base"))
_BREAKS = (f"{_TEXT}line-break", f"{_TEXT}tab")
"""What ends a sentence inside a paragraph."""
_UNREAD = (f"{_TEXT}ruby-text", f"{_TEXT}script")
"""Elements whose text is not part of that around them."""
_NAMES = (f"{_TEXT}name", f"{_TEXT}id", f"{_TEXT}change-id", "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}name")
"""Attributes with the name that a beginning and its end share."""
_ANNOTATION = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}annotation"
"""A comment, which has no ``-start`` in its name."""
_SPACES = f"{_TEXT}s"
_WHITE_SPACE = re.compile(r"[ \t\r\n]+")


@dataclass
class _Paragraph:
    """A paragraph as marked text."""

    element: _Element
    marked: MarkedText = field(default_factory=MarkedText)
    elements: list[_Element] = field(default_factory=list)
    """Elements by number; those with marked text lose it."""
    ends: dict[_Element, _Element] = field(default_factory=dict)
    """The end of what an element begins, such as a bookmark."""


def read_odt(content: bytes, name: str) -> Document:
    """Read an OpenDocument text.

    Raises:
        ConfigError: lxml is not installed.
        DataError: the document is damaged.
    """
    package = Package(content, name)
    package.xml("content.xml")
    roots = {part: package.xml(part) for part in package.names if part in _PARTS}
    paragraphs = [_read(element) for root in roots.values() for element in package.paragraphs(root, *_PARAGRAPHS)]
    paragraphs = [paragraph for paragraph in paragraphs if paragraph.marked.characters]

    def write(texts: Sequence[str], language: str) -> bytes:
        for paragraph, text in zip(paragraphs, texts, strict=True):
            _write(paragraph, text)
        return package.written(roots)

    return Document([paragraph.marked.block() for paragraph in paragraphs], write)


def _read(element: _Element) -> _Paragraph:
    paragraph = _Paragraph(element)
    _read_children(paragraph, element)
    return paragraph


def _read_children(paragraph: _Paragraph, element: _Element) -> None:
    marked = paragraph.marked
    marked.plain(_collapsed(element.text))
    ends = nested_pairs(element, _read_range)
    paragraph.ends |= ends
    closing = set(ends.values())
    for child in element:
        paragraph.elements.append(child)
        number = len(paragraph.elements) - 1
        if child.tag in _INLINE:
            marked.open(number)
            _read_children(paragraph, child)
            marked.close()
        elif child in ends:
            marked.open(number)
        elif child in closing:
            marked.close()
        elif _is_field(child):
            marked.unread(number, child.text or "")
        else:  # such as a line break, or a note with paragraphs of its own
            is_space = child.tag == _SPACES and marked.characters and not marked.characters[-1].isspace()
            marked.point(number, "\n" if child.tag in _BREAKS else " " if is_space else "")
        marked.plain(_collapsed(child.tail))


def _is_field(element: _Element) -> bool:
    """Return whether an element stands for its text, such as a page number."""
    return bool(element.text) and not len(element) and isinstance(element.tag, str) and element.tag not in _UNREAD


def _read_range(element: _Element) -> tuple[Hashable, bool] | None:
    """What an element such as ``bookmark-start`` marks, and whether it is its end."""
    tag = element.tag if isinstance(element.tag, str) else ""
    name = next(filter(None, map(element.get, _NAMES)), None)
    if name is None or not (tag == _ANNOTATION or tag.endswith(("-start", "-end"))):
        return None
    return (tag.removesuffix("-start").removesuffix("-end"), name), tag.endswith("-end")


def _collapsed(text: str | None) -> str:
    """Text with one space in place of white space, as it is shown: a line end does not end a sentence."""
    return _WHITE_SPACE.sub(" ", text or "")


def _write(paragraph: _Paragraph, text: str) -> None:
    inline = [element for element in paragraph.elements if element.tag in _INLINE]
    for element in (paragraph.element, *inline):
        for child in list(element):
            element.remove(child)
        element.text = None
    for element in paragraph.elements:
        element.tail = None
    opened: list[tuple[_Element, _Element | None]] = [(paragraph.element, None)]  # and what follows
    for kind, value in events(text):
        parent, end = opened[-1]
        if kind == "text":
            if len(parent):
                parent[-1].tail = (parent[-1].tail or "") + str(value)
            else:
                parent.text = (parent.text or "") + str(value)
        elif kind == "close":
            parent.extend([] if end is None else [end])
            opened.pop()
        else:
            element = paragraph.elements[int(value)]
            parent.append(element)
            if element.tag in _INLINE:
                opened.append((element, None))
            elif element in paragraph.ends:
                opened.append((parent, paragraph.ends[element]))
    put_in_order(own_elements(paragraph.element, _PARAGRAPHS), _read_range)
