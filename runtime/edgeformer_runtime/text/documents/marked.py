"""Text with marks for elements: what a paragraph of an office document is translated as."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from edgeformer_runtime.text.markup.builder import BlockBuilder
from edgeformer_runtime.text.markup.tokens import Token

# Control characters, which XML cannot have.
_MARK = re.compile("\x01(/?)([0-9]+)\x02")
_CONTROLS = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF], "")


@dataclass
class MarkedText(BlockBuilder):
    """Builds a block whose tags are marks with the numbers of elements."""

    escapes: Mapping[int, str] = field(default_factory=lambda: _CONTROLS)
    is_markup: bool = False

    def point(self, number: int, character: str = "") -> None:
        """Add an element without text, or one that stands for a character: a line end ends a sentence."""
        raw = f"\x01{number}\x02"
        if character:
            self.add(character, [raw])
        else:
            self.tag(Token(raw, is_void=True))

    def unread(self, number: int, text: str) -> None:
        """Add an element whose text is read but not translated."""
        self.item(" ".join(text.translate(_CONTROLS).split()), f"\x01{number}\x02")

    def open(self, number: int) -> None:
        """Begin an element."""
        self.tag(Token(f"\x01{number}\x02", str(number)))

    def close(self) -> None:
        """End the element that was begun last."""
        number = self.names[self.opened[-1]]
        self.tag(Token(f"\x01/{number}\x02", number, is_end=True))


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
