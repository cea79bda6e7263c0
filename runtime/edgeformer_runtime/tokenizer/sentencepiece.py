"""Encoding and decoding exactly as SentencePiece does, without it.

Differences remain only where unigram segmentations have equal scores: SentencePiece adds scores in single precision,
the ``tokenizers`` library in double precision.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import tokenizers
from tokenizers import models

from edgeformer_runtime.limits import MAX_TEXT_CHARACTERS
from edgeformer_runtime.tokenizer.bpe import merge
from edgeformer_runtime.tokenizer.charsmap import Charsmap
from edgeformer_runtime.tokenizer.library import drop_cache
from edgeformer_runtime.tokenizer.normalizer import SPACE, Normalizer
from edgeformer_runtime.tokenizer.sentencepiece_file import BPE, SentencePieceFile, Unigram

_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_CACHED_WORDS, _CACHED_CHARACTERS = 2**14, 64


class SentencePiece:
    """Encodes and decodes by a SentencePiece model. Thread-safe.

    Args:
        file: the model.

    Raises:
        ValueError: the file contradicts itself, or describes no SentencePiece model.
    """

    max_characters = MAX_TEXT_CHARACTERS

    def __init__(self, file: SentencePieceFile) -> None:
        self._file, model = file, file.model
        self._names = _names(model)
        ids = {name: index for index, name in enumerate(self._names)}
        if len(ids) < len(self._names):
            raise ValueError("an entry is duplicated")
        self._size = len(ids) if model.size is None else model.size
        unk_id = model.unk_id if isinstance(model, Unigram) else ids.get(model.unk_token)
        if unk_id is None or unk_id >= self._size or self._size > len(ids):
            raise ValueError("it has no unknown token, or fewer entries than its size")
        self._unk_id = unk_id
        if any(ids.get(token.content) != token.id for token in file.added_tokens):
            raise ValueError("the id of an added token is not that of its entry")
        if any(index >= len(ids) for index in model.unmatched):
            raise ValueError("an unmatched entry does not exist")
        if model.byte_fallback and not ids.keys() >= set(_BYTES):
            raise ValueError("it lacks entries for bytes")
        self._byte_ids = [ids[name] for name in _BYTES] if model.byte_fallback else []
        self._bytes = {index: byte for byte, index in enumerate(self._byte_ids)}
        self._special = {token.id for token in file.added_tokens if token.special} | {unk_id}
        self._surfaces: dict[str, int] = {}
        if isinstance(model, Unigram) and model.surfaces:
            surfaces = [index for index in model.unmatched if index < self._size and index not in self._special]
            self._surfaces = {self._names[index]: index for index in surfaces}
        user_defined = [token.content for token in file.added_tokens if not token.special]
        self._strips = file.spaces.remove_extra, file.spaces.remove_extra or file.spaces.dummy is not None
        self._normalize = Normalizer(Charsmap(file.charsmap), file.spaces, user_defined)
        reserved = self._special | self._bytes.keys()
        if isinstance(model, Unigram):
            self._segment = self._unigram(model, reserved | set(model.unmatched))
        else:
            self._segment = self._bpe(model, ids, reserved, user_defined)

    def __reduce__(self) -> tuple[type[SentencePiece], tuple[SentencePieceFile]]:
        return type(self), (self._file,)

    def vocabulary(self) -> dict[str, int]:
        """Return all entries and their ids."""
        return {name: index for index, name in enumerate(self._names[: self._size])}

    def token(self, index: int) -> str | None:
        """Return the entry with an id."""
        return self._names[index] if 0 <= index < self._size else None

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Encode texts, without special tokens."""
        encoded = self._segment([self._normalize(text) for text in texts])
        if self._size < len(self._names):
            return [[index if index < self._size else self._unk_id for index in ids] for ids in encoded]
        return encoded

    def decode(self, ids: Iterable[int]) -> str:
        """Decode ids to text. Special tokens are dropped."""
        return self.decode_pieces(ids)

    def decode_pieces(self, tokens: Iterable[int | str]) -> str:
        """Decode ids and pieces of text. Special tokens are dropped."""
        text = ""
        pending = bytearray()
        strips_all, strips = self._strips
        for token in tokens:
            if isinstance(token, str):
                name: str | None = token.replace(" ", SPACE)
            elif (byte := self._bytes.get(token)) is not None:
                pending.append(byte)
                continue
            else:
                name = None if token in self._special else self.token(token)
            if name is None:
                continue
            text += _decoded(pending)
            pending.clear()
            if strips and not text and name.startswith(SPACE):
                # The space that was added in front, or any space in front.
                name, strips = name[1:], strips_all
            text += name.replace(SPACE, " ")
        return text + _decoded(pending)

    def pieces(self, text: str) -> list[str]:
        """Return the part of a text that each of its tokens stands for, with a space before it if it begins a word."""
        normalized = self._normalize(text)
        (ids,) = self._segment([normalized])
        pieces, start, pending = [], 0, 0
        for index, following in zip(ids, [*ids[1:], None], strict=False):
            end = len(normalized)
            if index in self._bytes:  # the last byte of a character stands for it
                pending += 1
                is_last = pending == len(normalized[start].encode("utf-8"))
                end, pending = start + is_last, 0 if is_last else pending
            elif index != self._unk_id:
                end = start + len(self._names[index])
            elif following is not None:  # unknown text ends where the next piece begins
                end = normalized.find(self._names[following], start + 1)
            pieces.append(normalized[start:end].replace(SPACE, " "))
            start = end
        return pieces

    def _unigram(self, model: Unigram, unmatched: set[int]) -> Callable[[list[str]], list[list[int]]]:
        """Return a function that segments normalized texts.

        The library is given no component but the model. Entries that text must not match get names with a space, which
        normalized text never has.
        """
        if not all(math.isfinite(score) for _, score in model.vocab):
            raise ValueError("a score is not finite")
        vocab = [
            (f" {index}" if index in unmatched or " " in name else name, score)
            for index, (name, score) in enumerate(model.vocab)
        ]
        library = tokenizers.Tokenizer(models.Unigram(vocab, unk_id=self._unk_id, byte_fallback=False))
        drop_cache(library.model)

        def segment(texts: list[str]) -> list[list[int]]:
            encoded = [encoding.ids for encoding in library.encode_batch_fast(texts, add_special_tokens=False)]
            if self._bytes or self._surfaces:
                for row, ids in enumerate(encoded):
                    if self._unk_id in ids:
                        encoded[row] = self._with_unknown(texts[row], library.encode(texts[row]))
            return encoded

        return segment

    def _with_unknown(self, text: str, encoding: tokenizers.Encoding) -> list[int]:
        ids: list[int] = []
        for index, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
            ids.extend(self._unknown(text[start:stop]) if index == self._unk_id else [index])
        return ids

    def _unknown(self, text: str) -> list[int]:
        """Encode text that the vocabulary lacks."""
        if self._bytes:
            return [self._byte_ids[byte] for byte in text.encode("utf-8")]
        return [self._surfaces.get(text, self._unk_id)]

    def _bpe(
        self, model: BPE, ids: dict[str, int], reserved: set[int], user_defined: Sequence[str]
    ) -> Callable[[list[str]], list[list[int]]]:
        """Return a function that segments normalized texts."""
        ranks: dict[str, int] = {}
        rank, tied = 0, set(model.tied)
        for number, pair in enumerate(model.merges):
            if (piece := "".join(pair)) not in ranks:
                ranks[piece] = rank = rank if number in tied else number
        if any(ids.get(piece, self._unk_id) in reserved for piece in ranks):
            raise ValueError("a merge makes no entry, or one that text must not match")
        unmatched = {self._names[index] for index in model.unmatched}
        unused = unmatched & ranks.keys()
        excluded = (unmatched - unused) | {self._names[index] for index in reserved}
        matched = {name: index for name, index in ids.items() if name not in excluded}
        words = _words(ranks, whole=bool(unused))
        frozen = re.compile("|".join(map(re.escape, sorted(user_defined, key=len, reverse=True))).join("()"))

        def word_ids(word: str) -> list[int]:
            encoded: list[int] = []
            for piece in merge(word, ranks, unused):
                encoded.extend([matched[piece]] if piece in matched else self._unknown(piece))
            return encoded

        cached = lru_cache(_CACHED_WORDS)(word_ids)

        def segment(text: str) -> list[int]:
            encoded: list[int] = []
            for position, part in enumerate(frozen.split(text) if user_defined else [text]):
                if position % 2:
                    encoded.append(ids[part])
                    continue
                for word in words.findall(part):
                    encoded += cached(word) if len(word) <= _CACHED_CHARACTERS else word_ids(word)
            return _fused(encoded, self._unk_id)

        return lambda texts: [segment(text) for text in texts]


def _names(model: Unigram | BPE) -> list[str]:
    """Entries by id."""
    if isinstance(model, Unigram):
        return [name for name, _ in model.vocab]
    if sorted(model.vocab.values()) != list(range(len(model.vocab))):
        raise ValueError("ids are missing or duplicated")
    return sorted(model.vocab, key=model.vocab.__getitem__)


def _words(pieces: Iterable[str], *, whole: bool) -> re.Pattern[str]:
    """Return a pattern of parts of a text that no merge crosses."""
    if not whole:
        pieces = list(pieces)
        if not any(re.search(f"[^{SPACE}]{SPACE}", piece) for piece in pieces):
            return re.compile(f"{SPACE}+[^{SPACE}]*|[^{SPACE}]+")
        if not any(re.search(f"{SPACE}[^{SPACE}]", piece) for piece in pieces):
            return re.compile(f"[^{SPACE}]*{SPACE}+|[^{SPACE}]+")
    return re.compile(r"(?s).+")


def _fused(ids: list[int], unk_id: int) -> list[int]:
    """Leave one of adjacent unknown tokens."""
    if unk_id not in ids:
        return ids
    return [index for index, before in zip(ids, [-1, *ids], strict=False) if index != unk_id or before != unk_id]


def _decoded(data: bytearray) -> str:
    """Decode UTF-8; each byte that is not part of a character becomes U+FFFD."""
    text, start = "", 0
    while start < len(data):
        try:
            return text + data[start:].decode("utf-8")
        except UnicodeDecodeError as error:
            text += data[start : start + error.start].decode("utf-8") + "\ufffd"
            start += error.start + 1
    return text
