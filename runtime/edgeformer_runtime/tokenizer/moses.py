"""Encoding and decoding by sacremoses and subword-nmt. They are not imported before a model needs them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache

import regex
from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
from subword_nmt.apply_bpe import BPE

from edgeformer_runtime.limits import MAX_MOSES_CHARACTERS
from edgeformer_runtime.tokenizer.moses_file import MosesFile
from edgeformer_runtime.tokenizer.segmenter import Segmenter, Span

CONTINUED = "@@ "
"""What is between tokens of the same word."""
_NEAR = 16
"""How many characters may be before a token that are not part of any."""
_CACHED_WORDS, _CACHED_CHARACTERS = 2**14, 64
_CONTROL = regex.compile(r"\p{C}")
_ENGLISH_OR_CZECH, _GERMAN = ("en", "cs", "cz"), ("de", "es", "fr")
"""Languages for which Moses' own script, and sacremoses, leaves or moves commas and periods at quotation marks."""


class Moses(Segmenter):
    """Encodes and decodes by Moses' rules and BPE codes.

    Args:
        file: the vocabulary, the codes and the language.

    Raises:
        ValueError: the file contradicts itself.
    """

    max_characters = MAX_MOSES_CHARACTERS

    def __init__(self, file: MosesFile) -> None:
        self._file, self._names = file, file.vocabulary
        self.size = len(self._names)
        self._ids = {name: index for index, name in enumerate(self._names)}
        if len(self._ids) < len(self._names):
            raise ValueError("an entry is duplicated")
        special = {file.unk_token, *file.special_tokens}
        if not special <= self._ids.keys():
            raise ValueError("a special token is not in the vocabulary")
        self._unk_id = self._ids[file.unk_token]
        self._special = {self._ids[name] for name in special}
        self._matched = {name: index for name, index in self._ids.items() if name not in special}
        self._is_perl = file.rules == "perl"
        self._normalizer = MosesPunctNormalizer(file.language, perl_parity=self._is_perl)
        self._tokenizer = MosesTokenizer(file.language)
        if self._is_perl:
            self._follow_perl(file.language)
        # The same result; sacremoses builds the set of all letters again for every word with periods.
        self._tokenizer.isanyalpha = frozenset(self._tokenizer.IsAlpha).intersection
        self._detokenizer = MosesDetokenizer(file.language)
        self._bpe = BPE(io.StringIO("\n".join((f"#version: {file.codes_version}", *map(" ".join, file.merges)))))
        self._bpe.cache = _NoCache()
        self._cached = lru_cache(_CACHED_WORDS)(self._segment)

    def __reduce__(self) -> tuple[type[Moses], tuple[MosesFile]]:
        return type(self), (self._file,)

    def token(self, index: int) -> str | None:
        """Return the entry with an id; ``None`` if there is no such id."""
        return self._names[index] if 0 <= index < self.size else None

    def token_id(self, name: str) -> int | None:
        """Return the id of an entry; ``None`` if there is no such entry."""
        return self._ids.get(name)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts, without special tokens."""
        return [[self._matched.get(name, self._unk_id) for name in self.pieces(text)] for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to text. Special tokens are dropped."""
        return self.decode_pieces(ids)

    def decode_pieces(self, tokens: Sequence[int | str]) -> str:
        """Decode ids and names of tokens. Special tokens are dropped."""
        kept = (token for token in tokens if token not in self._special)
        names = [token if isinstance(token, str) else self._names[token] for token in kept]
        words = " ".join(names).replace(CONTINUED, "").split(" ")
        try:
            text: str = self._detokenizer.detokenize(words)
        except TypeError:  # sacremoses fails at a Czech word that ends with an apostrophe, before `- li`
            text = MosesDetokenizer("").detokenize(words)
        return text

    def pieces(self, text: str) -> list[str]:
        """Return the names of a text's tokens, whether or not the vocabulary has them."""
        if self._is_perl:
            text = _CONTROL.sub(" ", self._normalizer.replace_unicode_punct(text))
        words = self._tokenizer.tokenize(self._normalizer.normalize(text), aggressive_dash_splits=self._is_perl)
        return [
            name
            for word in words
            for name in (self._cached(word) if len(word) <= _CACHED_CHARACTERS else self._segment(word))
        ]

    def spans(self, text: str) -> list[Span]:
        """Return which characters of a text each token stands for: where its name is found, if it is near."""
        spans, offset = [], 0
        for piece in self.pieces(text):
            wanted = piece.removesuffix(CONTINUED.rstrip())
            start = text.find(wanted, offset, offset + len(wanted) + _NEAR)
            if start >= 0:
                offset = start + len(wanted)
            spans.append((start if start >= 0 else offset, offset))
        return spans

    def _follow_perl(self, language: str) -> None:
        """Undo what sacremoses does otherwise than Moses' scripts: it moves quotation marks in three languages only,
        and takes marks that join letters in Indic scripts for letters."""
        if language not in (*_ENGLISH_OR_CZECH, *_GERMAN):
            self._normalizer.substitutions[-1:-1] = self._normalizer.DE_ES_FR_QUOTATION_FOLLOWED_BY_COMMA
        self._tokenizer.PAD_NOT_ISALNUM = regex.compile(r"([^\p{Alnum}\s.'`,\-])"), r" \1 "
        self._tokenizer.AGGRESSIVE_HYPHEN_SPLIT = regex.compile(r"(\p{Alnum})-(?=\p{Alnum})"), r"\1 @-@ "

    def _segment(self, word: str) -> list[str]:
        names: list[str] = self._bpe.segment_tokens([word])
        return names


class _NoCache(dict[str, tuple[str, ...]]):
    """Stays empty. The cache of subword-nmt would grow with every new word."""

    def __setitem__(self, word: str, names: tuple[str, ...]) -> None:
        pass
