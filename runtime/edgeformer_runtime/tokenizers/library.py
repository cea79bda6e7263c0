"""Encoding and decoding by the ``tokenizers`` library. It is not imported before a model needs it."""

from __future__ import annotations

import os
from collections.abc import Sequence

import tokenizers
from tokenizers import models

from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.tokenizers.segmenter import Segmenter, Span

# If this is unset, the library warns on standard error when the process forks after using its threads.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class LibrarySegmenter(Segmenter):
    """Encodes and decodes by the library's tokenizer, whose settings it changes.

    Raises:
        BundleError: ids are missing or duplicated.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True  # "</s>" typed by a user is plain text
        drop_cache(tokenizer.model)
        self._tokenizer = tokenizer
        ids = tokenizer.get_vocab(with_added_tokens=True).values()
        self.size = len(ids)
        if {*ids} != {*range(self.size)}:
            raise BundleError(
                f"The tokenizer must give its {self.size:,} tokens the ids from 0 to {self.size - 1:,}, each once, but "
                "some are missing or duplicated; export the bundle again."
            )

    def __reduce__(self) -> tuple[type[LibrarySegmenter], tuple[tokenizers.Tokenizer]]:
        return LibrarySegmenter, (self._tokenizer,)  # whose pickle lacks some of the settings

    def token(self, index: int) -> str | None:
        """Return the entry with an id; ``None`` if there is no such id."""
        name: str | None = self._tokenizer.id_to_token(index) if 0 <= index < self.size else None
        return name

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the entry of each id."""
        return list(map(str, map(self._tokenizer.id_to_token, ids)))

    def token_id(self, name: str) -> int | None:
        """Return the id of an entry; ``None`` if there is no such entry."""
        index: int | None = self._tokenizer.token_to_id(name)
        return index

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts, without special tokens."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        """Encode texts, and return which characters of each of them its tokens stand for."""
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [(encoding.ids, encoding.offsets) for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to text. Special tokens are dropped."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def decode_batch(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        """Decode each of several sequences of ids."""
        texts: list[str] = self._tokenizer.decode_batch(list(map(list, sequences)), skip_special_tokens=True)
        return texts

    def decode_pieces(self, tokens: Sequence[int | str]) -> str:
        """Decode ids and pieces of text."""
        names = [token if isinstance(token, str) else str(self._tokenizer.id_to_token(token)) for token in tokens]
        text: str = self._tokenizer.decoder.decode(names) if self._tokenizer.decoder is not None else " ".join(names)
        return text

    def pieces(self, text: str) -> list[str]:
        """Return the part of a text that each token stands for, with a space before it if it begins a word."""
        pieces = [text[start:end] for start, end in self.spans(text)]
        return [f" {pieces[0].lstrip()}", *pieces[1:]] if pieces else []


def drop_cache(model: models.Model) -> None:
    """Make a model of the library keep no cache of words.

    The library has one for every thread and does not free them with the tokenizer: a program that opens translators
    again and again would grow. Without the cache, a sentence takes a few microseconds more.
    """
    if isinstance(model, models.BPE | models.Unigram) and hasattr(model, "_resize_cache"):
        model._resize_cache(0)
