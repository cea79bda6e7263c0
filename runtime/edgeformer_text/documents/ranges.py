"""Elements of office documents that mark where something begins and where it ends, such as a bookmark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lxml.etree import _Element

ReadBoundary = Callable[["_Element"], "tuple[Hashable, bool] | None"]
"""Returns what an element bounds and whether it is the end of that; ``None`` for elements that bound nothing."""


def own_elements(paragraph: _Element, paragraphs: Collection[str]) -> Iterator[_Element]:
    """Elements of a paragraph in order, without those of paragraphs inside it, such as text boxes, but
    with these, which have one of the names."""
    waiting = list(reversed(paragraph))
    while waiting:
        element = waiting.pop()
        yield element
        if element.tag not in paragraphs:
            waiting += reversed(element)


def put_in_order(elements: Iterable[_Element], read: ReadBoundary) -> None:
    """Move the end of what ends before it begins to its beginning."""
    ends: dict[Hashable, _Element] = {}
    for element in list(elements):
        boundary = read(element)
        if boundary is not None and boundary[1]:
            ends[boundary[0]] = element
        elif boundary is not None and boundary[0] in ends:
            _move(ends.pop(boundary[0]), element)


def _move(element: _Element, anchor: _Element) -> None:
    """Move an element after another one; text after either stays where it is."""
    before, parent, text = element.getprevious(), element.getparent(), element.tail or ""
    if before is not None:
        before.tail = (before.tail or "") + text
    elif parent is not None:
        parent.text = (parent.text or "") + text
    element.tail, anchor.tail = anchor.tail, None
    anchor.addnext(element)
