"""The words of a translation and what they were translated from."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.attention import Attention
from edgeformer_runtime.decoding.session import FloatArray
from edgeformer_runtime.text.block import LETTER, Span
from edgeformer_runtime.text.surface import UNSPACED, Finish
from edgeformer_runtime.tokenizer import Tokenizer
from edgeformer_runtime.translation import TextHypothesis

_ELISION = r"(?<!\w)(?:[cdjlmnstCDJLMNST]|\w*[Qq]u|[Dd]all|[Dd]ell|[Nn]ell|[Ss]ull|[Aa]ll)['’](?=\w)"
"""An article or the like that has lost its vowel, as in French and Italian."""
_LETTERS = rf"(?:{LETTER.pattern})+"
WORD = re.compile(rf"[{UNSPACED}][\u0300-\u036f\ufe00-\ufe0f]*|{_ELISION}|{_LETTERS}(?:['’\-]{_LETTERS})*|\S")
"""A word or a punctuation mark."""
Shares = NDArray[np.float64]
"""Shares of attention."""


@dataclass(frozen=True)
class Word:
    """A word or punctuation mark of a translation."""

    text: str
    space: str
    """White space before it."""
    shares: FloatArray
    """Share of its attention on each source token, ``(S,)``."""
    probability: float | None = None
    """Geometric mean of its tokens' probabilities."""
    raw: str | None = None
    """How it is written, if not as its text."""
    is_item: bool = False
    """Whether it is a placeholder or a term of a glossary."""
    origin: Span | None = None
    """Characters of the block that it stands for, if it is a placeholder."""


@dataclass(frozen=True)
class AlignedSentence:
    """A translation whose words have their share of attention on each source token."""

    words: list[Word]
    end: str
    """White space after the last word."""
    tokens: Sequence[Span]
    """Characters of each of the S source tokens."""
    source_words: Sequence[Span]
    """Characters of the words of the source."""

    @cached_property
    def ends(self) -> list[int]:
        """The end of each word in the text of the translation."""
        return list(accumulate(len(word.space) + len(word.text) for word in self.words))

    def word_at(self, offset: int) -> int:
        """The word that a character of the translation, or white space before it, belongs to."""
        return bisect_right(self.ends, offset)

    def shares(self, start: int, end: int) -> Shares:
        """The share of each word's attention on characters of the source, from 0 to 1, ``(W,)``."""
        first, last = np.searchsorted(self._centers, (start, end))
        return self._sums[:, max(first, last)] - self._sums[:, first]

    @cached_property
    def sources(self) -> list[Span | None]:
        """For each word: the source word that it attends to most; ``None`` if it attends to none."""
        spans = self.source_words[::-1]  # of several, the last
        if not spans or not self.words:
            return [None] * len(self.words)
        firsts, lasts = (np.searchsorted(self._centers, edges) for edges in zip(*spans, strict=True))
        shares = (self._sums[:, lasts] - self._sums[:, firsts]).round(6)
        return [spans[best] if row[best] else None for best, row in zip(shares.argmax(1), shares, strict=True)]

    @cached_property
    def source_edges(self) -> NDArray[np.intp]:
        """The first character of each of :attr:`sources`, and the one after its last; none are inside another
        span if there is no such word, ``(2, W)``."""
        return np.array([(-1, 2**62) if span is None else span for span in self.sources], np.intp).reshape(-1, 2).T

    @cached_property
    def origins(self) -> dict[int, Span]:
        """Characters of the block that each placeholder stands for, by its word."""
        return {index: word.origin for index, word in enumerate(self.words) if word.origin is not None}

    @cached_property
    def apart(self) -> frozenset[int]:
        """Where a placeholder or a word of the source begins or ends in the block."""
        return frozenset(edge for span in (*self.origins.values(), *self.source_words) for edge in span)

    @cached_property
    def placeholders(self) -> NDArray[np.intp]:
        """Which words are placeholders."""
        return np.array(list(self.origins), dtype=np.intp)

    @cached_property
    def is_word(self) -> NDArray[np.bool_]:
        """Whether each word is neither a placeholder nor a punctuation mark, ``(W,)``."""
        return np.array([word.origin is None and word.text[:1].isalnum() for word in self.words], dtype=bool)

    @cached_property
    def is_elided(self) -> NDArray[np.bool_]:
        """Whether an article that has lost its vowel is joined to each word, ``(W,)``."""
        before = ["", *(word.text for word in self.words)]
        pairs = zip(self.words, before, strict=False)
        return np.array([not word.space and text.endswith(("'", "’")) for word, text in pairs], dtype=bool)

    def reordered(self, first: int, order: Sequence[int]) -> AlignedSentence:
        """The sentence with words from ``first`` on in another order; white space before the first one stays there."""
        words = self.words.copy()
        words[first : first + len(order)] = [self.words[first + index] for index in order]
        if words[0] is not self.words[0]:
            space = self.words[0].space
            words = [replace(word, space=" ") if word is self.words[0] else word for word in words]
            words[0] = replace(words[0], space=space)
        return replace(self, words=words)

    def with_tokens(self, spans: Iterable[Span]) -> AlignedSentence:
        """The sentence with a source token, to which no word attends, for each span of which the model read nothing."""
        unread = [span for span in spans if not self.on(*span).any()]
        if not unread:
            return self
        words = [replace(word, shares=np.pad(word.shares, (0, len(unread)))) for word in self.words]
        return replace(self, words=words, tokens=[*self.tokens, *unread])

    def on(self, start: int, end: int) -> FloatArray:
        """Shares of a word that was translated from certain characters, ``(S,)``."""
        inner = np.array([start <= (first + last) / 2 < end for first, last in self.tokens], np.float32)
        return inner / max(1.0, float(inner.sum()))

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        """The source tokens from left to right, ``(S,)``."""
        return np.argsort([first + last for first, last in self.tokens], kind="stable")

    @cached_property
    def _centers(self) -> Shares:
        """The middle of each source token, from left to right, ``(S,)``."""
        return np.array([(first + last) / 2 for first, last in self.tokens])[self._order]

    @cached_property
    def _sums(self) -> Shares:
        """The attention of each word on all source tokens left of each one and of the end, ``(W, S + 1)``: the share
        of any span is a difference."""
        sums = np.zeros((len(self.words), len(self.tokens) + 1))
        for row, word in enumerate(self.words):
            sums[row, 1:] = word.shares[self._order].cumsum(dtype=np.float64)
        return sums


def aligned(
    source: str,
    offsets: Sequence[int],
    hypothesis: TextHypothesis,
    attention: Attention | None,
    tokenizers: tuple[Tokenizer, Tokenizer],
    finish: Finish,
    mark: str = "",
) -> AlignedSentence:
    """Divide a translation into words.

    Args:
        source: the text that the model read.
        offsets: that of each of its characters in the block, and that of its end.
        hypothesis: the translation.
        attention: its attention weights; without them, each word belongs to the source word beside it, as if
            both texts were equally long.
        tokenizers: those of source and target.
        finish: how the translation is changed.
        mark: the end of the text that its sentence does not have.
    """
    # Weights (T, S): how much each target token attends to each token of the source text, of which there are fewer than
    # spans if it was truncated. Without attention, words take the place of source tokens, and each target token
    # attends to the one beside it.
    text = hypothesis.text
    ends = _target_ends(tokenizers[1], hypothesis)
    if attention is None or not attention.text_tokens:
        spans, weights = _proportional(source, ends, len(text))
    else:
        spans = _source_spans(tokenizers[0], source)[: len(attention.text_tokens)]
        weights = attention.text_weights
        weights = weights / np.maximum(weights.sum(1, keepdims=True), 1e-9)
    # A word has the mean attention, and the geometric mean of the probabilities, of the tokens that have part of it.
    words: list[Word] = []
    offset, starts = 0, [0, *ends][: len(ends)]
    for match in WORD.finditer(text, 0, finish.keep):
        rows = slice(bisect_right(ends, match.start()), bisect_left(starts, match.end()))
        has_tokens = rows.start < rows.stop
        shares = weights[rows].mean(0) if has_tokens else np.zeros(len(spans), np.float32)
        probability = None
        if has_tokens and hypothesis.token_scores is not None:
            probability = float(np.exp(np.mean(hypothesis.token_scores[rows])))
        shown = finish.initial(match[0]) if not words else match[0]
        words.append(Word(finish.capitals(shown), text[offset : match.start()], shares, probability))
        offset = match.end()
    # Punctuation that the sentence gets attends to nothing; that at the end of both, to that of the source.
    if finish.added and words:
        added = finish.added.lstrip()
        words.append(Word(added, finish.added[: -len(added)], np.zeros(len(spans), np.float32)))
    own = source.removesuffix(mark)
    if words and not words[-1].text.isalnum() and not own[-1:].isalnum():  # final punctuation attends to anything
        words[-1] = replace(words[-1], shares=np.eye(len(spans), dtype=np.float32)[-1])
    # Spans of the source in characters of its block. Tokens of the period that was added for the model are empty.
    tokens = [
        (offsets[start], offsets[end - 1] + 1 if start < min(end, len(own)) else offsets[start]) for start, end in spans
    ]
    source_words = [(offsets[match.start()], offsets[match.end() - 1] + 1) for match in WORD.finditer(own)]
    end = "" if finish.added and words else text[offset : finish.keep]
    return AlignedSentence(words, end, tokens, source_words)


def joined(words: Sequence[Word], end: str) -> str:
    """The text of words, white space between them included."""
    return "".join(word.space + word.text for word in words) + end


def replaced(sentence: AlignedSentence, first: int, last: int, words: Sequence[Word]) -> AlignedSentence:
    """A sentence with other words in place of those from ``first`` up to ``last``."""
    return replace(sentence, words=[*sentence.words[:first], *words, *sentence.words[last:]])


def _target_ends(tokenizer: Tokenizer, hypothesis: TextHypothesis) -> list[int]:
    """The end of each token in the text: a prefix of the tokens is decoded to a prefix of the text."""
    text, ids, ends = hypothesis.text, hypothesis.ids, [0]
    if tokenizer.decode(ids) != text:  # unknown tokens were replaced
        return [len(text) * (count + 1) // len(ids) for count in range(len(ids))]
    for count in range(1, len(ids)):
        part, common = tokenizer.decode(ids[:count]), ends[-1]
        if part.startswith(text[:common]):
            while common < min(len(part), len(text)) and part[common] == text[common]:
                common += 1
        ends.append(common)
    return [*ends[1:], len(text)] if ids else []


def _source_spans(tokenizer: Tokenizer, text: str) -> list[Span]:
    """The characters of each source token, without the white space around them. A character that is divided among
    several tokens is of the first."""
    spans, offset = [], 0
    for start, end in tokenizer.spans(text):
        part = text[max(start, offset) : end]
        if part.strip():
            start, offset = end - len(part.lstrip()), end - len(part) + len(part.rstrip())
        else:
            start = offset
        spans.append((start, offset))
    return spans


def _proportional(source: str, ends: Sequence[int], length: int) -> tuple[list[Span], FloatArray]:
    """Words of the source instead of its tokens, and a weight of 1 where a target token is beside one, if both texts
    are drawn equally long."""
    spans = [match.span() for match in WORD.finditer(source)] or [(0, len(source))]
    weights = np.zeros((len(ends), len(spans)), np.float32)
    centers = np.array([(start + end) / 2 for start, end in spans])
    for row, (start, end) in enumerate(pairwise([0, *ends])):
        center = (start + end) / 2 / max(1, length) * len(source)
        weights[row, int(np.abs(centers - center).argmin())] = 1
    return spans, weights
