"""OpenDocument texts (``.odt``): paragraphs and headings of the text, and of headers and footers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edgeformer_text.documents.document import Document
from edgeformer_text.documents.office import TEXT as _TEXT
from edgeformer_text.documents.office import OfficeParagraph, TagContent, office_document
from edgeformer_text.documents.packages import Package

if TYPE_CHECKING:
    from lxml.etree import _Element

_PARTS = ("content.xml", "styles.xml")
_PARAGRAPHS = (f"{_TEXT}p", f"{_TEXT}h")
_INLINE = frozenset(f"{_TEXT}{name}" for name in ("span", "a", "meta", "ruby", "ruby-base"))
_BREAKS = (f"{_TEXT}line-break", f"{_TEXT}tab")
"""What ends a sentence inside a paragraph."""
_UNREAD = (f"{_TEXT}ruby-text", f"{_TEXT}script")
"""Elements whose text is not part of that around them."""
_SPACES = f"{_TEXT}s"
_WHITE_SPACE = re.compile(r"[ \t\r\n]+")


class _OpenDocumentParagraph(OfficeParagraph):
    """A paragraph or heading."""

    names_of_paragraphs = _PARAGRAPHS

    def clear(self, element: _Element) -> None:
        """See :meth:`OfficeParagraph.clear`."""
        for child in list(element):
            element.remove(child)
            child.tail = None
        element.text = None

    def append(self, parent: _Element, format: _Element | None, text: str) -> None:
        """See :meth:`OfficeParagraph.append`."""
        if len(parent):
            parent[-1].tail = (parent[-1].tail or "") + text
        else:
            parent.text = (parent.text or "") + text


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
    return office_document(package, roots, [paragraph for paragraph in paragraphs if paragraph.characters])


def _read(element: _Element) -> _OpenDocumentParagraph:
    paragraph = _OpenDocumentParagraph(element=element)
    _read_children(paragraph, element)
    return paragraph


def _read_children(paragraph: _OpenDocumentParagraph, element: _Element) -> None:
    paragraph.plain(_collapsed(element.text))
    for child in element:
        if child.tag in _INLINE:
            paragraph.open(TagContent(container=child))
            _read_children(paragraph, child)
            paragraph.close()
        elif _is_field(child):
            paragraph.point(child, unread=child.text)
        else:  # such as a line break, or a note with paragraphs of its own
            is_space = child.tag == _SPACES and paragraph.characters and not paragraph.characters[-1].isspace()
            paragraph.point(child, character="\n" if child.tag in _BREAKS else " " if is_space else "")
        paragraph.plain(_collapsed(child.tail))


def _is_field(element: _Element) -> bool:
    """Return whether an element stands for its text, such as a page number."""
    return bool(element.text) and not len(element) and isinstance(element.tag, str) and element.tag not in _UNREAD


def _collapsed(text: str | None) -> str:
    """Text with one space in place of white space, as it is shown: a line end does not end a sentence."""
    return _WHITE_SPACE.sub(" ", text or "")
