"""Encoding and decoding by the ``tokenizers`` library."""

from __future__ import annotations

from collections.abc import Sequence

import tokenizers
from tokenizers import models

from edgeformer_runtime.limits import MAX_TEXT_CHARACTERS


class Library:
    """Encodes and decodes by the library's tokenizer, whose settings it changes. Thread-safe."""

    max_characters = MAX_TEXT_CHARACTERS

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True  # "</s>" typed by a user is plain text
        drop_cache(tokenizer.model)
        self._tokenizer = tokenizer

    def __reduce__(self) -> tuple[type[Library], tuple[tokenizers.Tokenizer]]:
        return Library, (self._tokenizer,)  # whose pickle lacks some of the settings

    def vocabulary(self) -> dict[str, int]:
        """Return all entries and their ids."""
        entries: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        return entries

    def token(self, index: int) -> str | None:
        """Return the entry with an id."""
        name: str | None = self._tokenizer.id_to_token(index) if 0 <= index < 2**32 else None
        return name

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts, without special tokens."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: list[int]) -> str:
        """Decode ids to text. Special tokens are dropped."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def decode_pieces(self, tokens: Sequence[int | str]) -> str:
        """Decode ids and pieces of text."""
        names = [token if isinstance(token, str) else str(self._tokenizer.id_to_token(token)) for token in tokens]
        text: str = self._tokenizer.decoder.decode(names) if self._tokenizer.decoder is not None else " ".join(names)
        return text

    def pieces(self, text: str) -> list[str]:
        """Return the part of a text that each of its tokens stands for, with a space before it if it begins a word."""
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        pieces = [text[start:end] for start, end in offsets]
        return [f" {pieces[0].lstrip()}", *pieces[1:]] if pieces else []


def drop_cache(model: models.Model) -> None:
    """Make a model of the library keep no cache of words.

    The library has one for every thread and does not free them with the tokenizer: a program that opens translators
    again and again would grow. Without the cache, a sentence takes a few microseconds more.
    """
    if isinstance(model, models.BPE | models.Unigram) and hasattr(model, "_resize_cache"):
        model._resize_cache(0)
