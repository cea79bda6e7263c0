"""Text with marks for elements: what a paragraph of an office document is translated as."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from edgeformer_runtime.text.block import Block, Item, Tag

# Control characters, which XML cannot have.
_MARK = re.compile("\x01(/?)([0-9]+)\x02")
_CONTROLS = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF], "")


@dataclass
class MarkedText:
    """Builds a block whose tags are marks with the numbers of elements."""

    characters: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    tags: list[Tag] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    opened: list[tuple[int, int]] = field(default_factory=list)

    def text(self, text: str) -> None:
        """Add text."""
        self.characters += text
        self.raw += text

    def point(self, number: int, character: str = "") -> None:
        """Add an element without text, or one that stands for a character: a line end ends a sentence."""
        if character:
            self.characters.append(character)
            self.raw.append(f"\x01{number}\x02")
        else:
            self._tag(f"\x01{number}\x02", is_alone=True)

    def item(self, number: int, text: str) -> None:
        """Add an element whose text is read but not translated."""
        text = " ".join(text.translate(_CONTROLS).split())
        if not text:
            self.point(number)
            return
        start, raw = len(self.characters), f"\x01{number}\x02"
        self.characters += text
        self.raw += [raw, *[""] * (len(text) - 1)]
        self.items.append(Item(start, len(self.characters), text, raw))

    def open(self, number: int) -> None:
        """Begin an element."""
        self._tag(f"\x01{number}\x02")
        self.opened.append((len(self.tags) - 1, number))

    def close(self) -> None:
        """End the element that was begun last."""
        start, number = self.opened.pop()
        opening = self.tags[start]
        self.tags[start] = Tag(opening.offset, opening.raw, len(self.tags), opening.parent)
        self.tags.append(Tag(len(self.characters), f"\x01/{number}\x02", start, opening.parent))

    def block(self) -> Block:
        """Return the block."""
        text = "".join(self.characters)
        return Block(text, self.raw, (), tuple(self.tags), tuple(self.items), escapes=_CONTROLS)

    def _tag(self, raw: str, *, is_alone: bool = False) -> None:
        parent = self.opened[-1][0] if self.opened else None
        self.tags.append(Tag(len(self.characters), raw, None, parent, is_alone=is_alone))


def events(marked: str) -> Iterator[tuple[str, str | int]]:
    """Read a translated block: pairs of ``text`` and text, or of ``open`` or ``close`` and a number."""
    offset = 0
    for match in _MARK.finditer(marked):
        if offset < match.start():
            yield "text", marked[offset : match.start()]
        yield "close" if match[1] else "open", int(match[2])
        offset = match.end()
    if offset < len(marked):
        yield "text", marked[offset:]
