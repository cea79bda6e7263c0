"""Paragraphs of office documents as text with tags for their elements, and the way back."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from edgeformer_text.documents.document import Document
from edgeformer_text.documents.packages import Package
from edgeformer_text.markup.builder import BlockBuilder
from edgeformer_text.markup.tokens import MarkupToken

if TYPE_CHECKING:
    from lxml.etree import _Element

# Control characters, which XML cannot have.
_TAG = re.compile("\x01(/?)([0-9]+)\x02")
_CONTROLS = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF], "")
WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
"""Namespaces of the elements of Word documents and of OpenDocument texts."""
_RANGE = re.compile(r"(?P<kind>.*?)-?(?:[sS]tart|(?P<end>[eE]nd))")
"""An element such as ``bookmarkStart`` or ``bookmark-end``."""
_RANGE_NAMES = (f"{WORD}id", f"{TEXT}name", f"{TEXT}id", f"{TEXT}change-id", f"{_OFFICE}name")
"""Attributes with the name that a beginning and its end share."""
_ANNOTATION = f"{_OFFICE}annotation"
"""The beginning of a comment, which has no ``-start`` in its name."""


@dataclass(frozen=True)
class TagContent:
    """What a tag stands for: elements, a container that text goes into, or a format that text has."""

    elements: Sequence[_Element] = ()
    """What is put where it begins."""
    end: _Element | None = None
    """What is put where it ends."""
    container: _Element | None = None
    format: _Element | None = None
    """An element whose copies have the text."""
    is_point: bool = False
    """Whether it has no end."""


@dataclass
class OfficeParagraph(BlockBuilder):
    """Builds the block of a paragraph, whose tags are numbers of contents, and the paragraph from its translation."""

    names_of_paragraphs: ClassVar[tuple[str, ...]]
    """Names of elements that are paragraphs."""
    element: _Element = field(kw_only=True)
    escapes: Mapping[int, str] = field(default_factory=lambda: _CONTROLS)
    is_markup: bool = False
    contents: list[TagContent] = field(default_factory=list)
    """By the number of their tags."""
    bases: dict[_Element, _Element] = field(default_factory=dict)
    """The format that text has in the paragraph and in containers, unless it is that around them."""

    def point(self, *elements: _Element, character: str = "", unread: str | None = None) -> None:
        """Add elements that stay together, and stand for a character, such as a line end, which ends a sentence; or
        have text that is read but not translated."""
        raw = f"\x01{self._number(TagContent(elements, is_point=True))}\x02"
        if unread is not None:
            self.item(" ".join(unread.translate(_CONTROLS).split()), raw)
        elif character:
            self.add(character, [raw])
        else:
            self.tag(MarkupToken(raw, is_void=True))

    def open(self, content: TagContent) -> None:
        """Begin what has translated text."""
        number = self._number(content)
        self.tag(MarkupToken(f"\x01{number}\x02", number))

    def close(self) -> None:
        """End what was begun last."""
        number = self.names[self.opened[-1]]
        self.tag(MarkupToken(f"\x01/{number}\x02", number, is_end=True))

    def rebuild(self, translated: str) -> None:
        """Give the paragraph its translated text."""
        containers = [content.container for content in self.contents if content.container is not None]
        for element in (self.element, *containers):
            self.clear(element)
        opened = [(self.element, self.bases.get(self.element), TagContent())]
        for text, content in self._events(translated):
            parent, format, around = opened[-1]
            if text:
                self.append(parent, format, text)
            elif content is None:
                parent.extend([] if around.end is None else [around.end])
                opened.pop()
            else:
                parent.extend(content.elements)
                if content.container is not None:
                    parent.append(content.container)
                    opened.append((content.container, self.bases.get(content.container, format), content))
                elif not content.is_point:
                    opened.append((parent, format if content.format is None else content.format, content))
        _put_in_order(self.own_elements(self.element))

    @classmethod
    def own_elements(cls, paragraph: _Element) -> Iterator[_Element]:
        """Elements of a paragraph in order, without those of paragraphs inside it, such as text boxes, but with
        these."""
        waiting = list(reversed(paragraph))
        while waiting:
            element = waiting.pop()
            yield element
            if element.tag not in cls.names_of_paragraphs:
                waiting += reversed(element)

    @abstractmethod
    def clear(self, element: _Element) -> None:
        """Remove the content of the paragraph or of a container."""

    @abstractmethod
    def append(self, parent: _Element, format: _Element | None, text: str) -> None:
        """Append text to the paragraph or to a container."""

    def _number(self, content: TagContent) -> str:
        self.contents.append(content)
        return str(len(self.contents) - 1)

    def _events(self, translated: str) -> Iterator[tuple[str, TagContent | None]]:
        """Read a translated block: text, content that begins, or neither where the last one ends."""
        offset = 0
        for match in _TAG.finditer(translated):
            if offset < match.start():
                yield translated[offset : match.start()], None
            yield "", None if match[1] else self.contents[int(match[2])]
            offset = match.end()
        if offset < len(translated):
            yield translated[offset:], None


def office_document(package: Package, roots: Mapping[str, _Element], paragraphs: Sequence[OfficeParagraph]) -> Document:
    """The document of a package with these paragraphs in its XML files."""

    def write(texts: Sequence[str], language: str) -> bytes:
        for paragraph, text in zip(paragraphs, texts, strict=True):
            paragraph.rebuild(text)
        return package.written(roots)

    return Document([paragraph.block() for paragraph in paragraphs], write)


def _put_in_order(elements: Iterable[_Element]) -> None:
    """Move the end of a range, such as a bookmark, that ends before it begins behind its beginning."""
    ends: dict[tuple[str, str], _Element] = {}
    for element in list(elements):
        name = next(filter(None, map(element.get, _RANGE_NAMES)), None)
        match = _RANGE.fullmatch(element.tag) if name and isinstance(element.tag, str) else None
        if name is None or (match is None and element.tag != _ANNOTATION):
            continue
        key = (match["kind"] if match else element.tag, name)
        if match and match["end"]:
            ends[key] = element
        elif key in ends:
            _move(ends.pop(key), element)


def _move(element: _Element, anchor: _Element) -> None:
    """Move an element behind another one; text after either stays where it is."""
    before, parent, text = element.getprevious(), element.getparent(), element.tail or ""
    if before is not None:
        before.tail = (before.tail or "") + text
    elif parent is not None:
        parent.text = (parent.text or "") + text
    element.tail, anchor.tail = anchor.tail, None
    anchor.addnext(element)
