"""What divides text into entries of a vocabulary, whatever kind of file defines it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

Span = tuple[int, int]
"""Where a part of a text begins and ends, in characters."""


class Segmenter(ABC):
    """Encodes and decodes text. Subclasses are immutable after construction, thread-safe, and can be pickled."""

    size: int
    """Number of entries; their ids are the numbers below it."""

    @abstractmethod
    def token(self, index: int) -> str | None:
        """Return the entry with an id; ``None`` if there is no such id."""

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the entry of each id, all of which there are."""
        return [str(self.token(index)) for index in ids]

    @abstractmethod
    def token_id(self, name: str) -> int | None:
        """Return the id of an entry; ``None`` if there is no such entry."""

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts, without special tokens."""

    @abstractmethod
    def encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        """Encode texts, and return which characters of each of them its tokens stand for."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to text. Special tokens are dropped."""

    def decode_batch(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Decode each of several sequences of ids."""
        return [self.decode(ids) for ids in sequences]

    @abstractmethod
    def decode_pieces(self, tokens: Sequence[int | str]) -> str:
        """Decode ids and pieces of text."""

    @abstractmethod
    def pieces(self, text: str) -> list[str]:
        """Return the part of a text that each of its tokens stands for, with a space before it if it begins a word."""

    def spans(self, text: str) -> list[Span]:
        """Return which characters of a text each of its tokens stands for."""
        return self.encode_with_spans([text])[0][1]
