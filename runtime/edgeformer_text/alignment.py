"""The words of a translation, what they were translated from, and placeholders and terms among them."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.attention import Attention
from edgeformer_runtime.search.session import FloatArray
from edgeformer_runtime.tokenizers import Tokenizer
from edgeformer_runtime.translation import TextHypothesis
from edgeformer_text.block import LETTER, Item, Span, is_whole
from edgeformer_text.lexicon import LEXICON, base_code
from edgeformer_text.surface import UNSPACED, SurfaceChange

_ELISION = LEXICON["scripts"]["elision"]
"""An article or the like that has lost its vowel, as in French and Italian."""
_LETTERS = rf"(?:{LETTER.pattern})+"
WORD = re.compile(rf"[{UNSPACED}][\u0300-\u036f\ufe00-\ufe0f]*|{_ELISION}|{_LETTERS}(?:['’\-]{_LETTERS})*|\S")
"""A word or a punctuation mark."""
Shares = NDArray[np.float64]
"""Shares of attention."""
_CLOSING, _OPENING = LEXICON["signs"]["closing"], LEXICON["signs"]["opening"]
"""Signs without a space before them, and without one after them."""
_SIGNS = _CLOSING + _OPENING + LEXICON["signs"]["others"]
_APART = LEXICON["signs"]["apart"]
"""Signs that French sets apart."""
_SPACED = re.compile(rf"(?![\u0590-\u08ff\u1100-\u11ff\uac00-\ud7ff]){LETTER.pattern}")
"""A letter that is not joined to a placeholder, unlike particles of Korean and prefixes of Hebrew and Arabic."""
MAX_PREFIXES = 64
"""Prefixes of a translation that are decoded in one call, which takes memory for all of them."""


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
    change: SurfaceChange,
    added_period: str = "",
    spans: Sequence[Span] | None = None,
) -> AlignedSentence:
    """Divide a translation into words.

    Args:
        source: the text that the model read.
        offsets: that of each of its characters in the block, and that of its end.
        hypothesis: the translation.
        attention: its attention weights; without them, each word belongs to the source word beside it, as if
            both texts were equally long.
        tokenizers: those of source and target.
        change: how the translation is changed.
        added_period: the end of the text that its sentence does not have.
        spans: characters of each token of the text; ``None`` if it must be encoded again to know them.
    """
    # Weights (T, S): how much each target token attends to each token of the source text, of which there are fewer than
    # spans if it was truncated. Without attention, words take the place of source tokens, and each target token
    # attends to the one beside it.
    text, ends = hypothesis.text, _target_ends(tokenizers[1], hypothesis)
    if attention is None or not attention.text_tokens:
        spans, weights = _proportional(source, ends, len(text))
    else:
        spans = _source_spans(tokenizers[0], source, spans)[: len(attention.text_tokens)]
        weights = attention.text_weights
        weights = weights / np.maximum(weights.sum(1, keepdims=True), 1e-9)
    # A word has the mean attention, and the geometric mean of the probabilities, of the tokens that have part of it.
    words: list[Word] = []
    offset, starts = 0, [0, *ends][: len(ends)]
    for match in WORD.finditer(text, 0, change.keep):
        rows = slice(bisect_right(ends, match.start()), bisect_left(starts, match.end()))
        has_tokens = rows.start < rows.stop
        shares = weights[rows].mean(0) if has_tokens else np.zeros(len(spans), np.float32)
        probability = None
        if has_tokens and hypothesis.token_scores is not None:
            probability = float(np.exp(np.mean(hypothesis.token_scores[rows])))
        shown = change.initial(match[0]) if not words else match[0]
        words.append(Word(change.capitals(shown), text[offset : match.start()], shares, probability))
        offset = match.end()
    # Punctuation that the sentence gets attends to nothing; that at the end of both, to that of the source.
    if change.added and words:
        added = change.added.lstrip()
        words.append(Word(added, change.added[: -len(added)], np.zeros(len(spans), np.float32)))
    own = source.removesuffix(added_period)
    if words and not words[-1].text.isalnum() and not own[-1:].isalnum():  # final punctuation attends to anything
        words[-1] = replace(words[-1], shares=np.eye(len(spans), dtype=np.float32)[-1])
    # Spans of the source in characters of its block. Tokens of the period that was added for the model are empty.
    tokens = [
        (offsets[start], offsets[end - 1] + 1 if start < min(end, len(own)) else offsets[start]) for start, end in spans
    ]
    source_words = [(offsets[match.start()], offsets[match.end() - 1] + 1) for match in WORD.finditer(own)]
    end = "" if change.added and words else text[offset : change.keep]
    return AlignedSentence(words, end, tokens, source_words)


def joined(words: Sequence[Word], end: str) -> str:
    """The text of words, white space between them included."""
    return "".join([word.space + word.text for word in words]) + end


def replaced(sentence: AlignedSentence, first: int, last: int, words: Sequence[Word]) -> AlignedSentence:
    """A sentence with other words in place of those from ``first`` up to ``last``."""
    return replace(sentence, words=[*sentence.words[:first], *words, *sentence.words[last:]])


def _target_ends(tokenizer: Tokenizer, hypothesis: TextHypothesis) -> list[int]:
    """The end of each token in the text: a prefix of the tokens is decoded to a prefix of the text."""
    text, ids, ends = hypothesis.text, hypothesis.ids, [0]
    if tokenizer.decode(ids) != text:  # unknown tokens were replaced
        return [len(text) * (count + 1) // len(ids) for count in range(len(ids))]
    for first in range(1, len(ids), MAX_PREFIXES):
        counts = range(first, min(first + MAX_PREFIXES, len(ids)))
        for part in tokenizer.decode_batch([ids[:count] for count in counts]):
            common = ends[-1]
            if part.startswith(text[:common]):
                while common < min(len(part), len(text)) and part[common] == text[common]:
                    common += 1
            ends.append(common)
    return [*ends[1:], len(text)] if ids else []


def _source_spans(tokenizer: Tokenizer, text: str, spans: Sequence[Span] | None) -> list[Span]:
    """The characters of each source token, without the white space around them. A character that is divided among
    several tokens is of the first."""
    trimmed, offset = [], 0
    for start, end in tokenizer.spans(text) if spans is None else spans:
        part = text[max(start, offset) : end]
        if part.strip():
            start, offset = end - len(part.lstrip()), end - len(part) + len(part.rstrip())
        else:
            start = offset
        trimmed.append((start, offset))
    return trimmed


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


def copied(items: Sequence[Item], text: str) -> bool:
    """Return whether a translation has all placeholders among the items, perhaps with other white space."""
    placeholders = [item for item in items if not item.is_term]
    return len(_occurrences(placeholders, text)) == len(placeholders)


def restored(
    sentence: AlignedSentence, items: Sequence[Item], text: str, start: int, without: Collection[Item] = ()
) -> AlignedSentence:
    """Put every item into a translation exactly once.

    An item that the translation has stays in its place; of several copies, that with the most attention on the item.
    Otherwise it replaces the words that were translated from it, and if there are none, it is put between the words
    whose sources are before and after it.

    Args:
        sentence: the translation.
        items: items of the sentence, in order.
        text: text of the block.
        start: offset in the block where the sentence begins.
        without: those of the items that the model did not read, so that the translation has none of them.
    """
    sentence = sentence.with_tokens((item.start, item.end) for item in items)
    target = joined(sentence.words, "")
    read = [item for item in items if item not in without]
    found = max(_occurrences(read, target, sentence), _occurrences(read, target), key=len)
    missing = [item for item in items if item not in found]
    for item, (first, last) in sorted(found.items(), key=lambda pair: -pair[1][0]):
        text_found = target[first:last] if item.is_term else item.text  # a term keeps its capital
        sentence = put_over(sentence, item, text_found, first, last)
    for item in reversed(missing):  # of several that belong between the same words, the last one put there is the first
        span = None
        if item.is_term:
            gains = sentence.shares(item.start, item.end) - 0.5
            span = best_run(np.where([word.is_item for word in sentence.words], -np.inf, gains))
        if span is None:
            sentence = _inserted(sentence, item, text, start)
        else:
            word = sentence.words[span[0]]
            sentence = replaced(sentence, *span, [_word(sentence, item, item.text, word.space)])
    return sentence


def best_run(gains: Shares) -> tuple[int, int] | None:
    """The run of words whose gains have the largest sum, from its first word to the one after its last; ``None`` if no
    sum is positive. Of several, the one that ends first, and of these the shortest."""
    best, best_sum, first, total = None, 0.0, 0, 0.0
    positive = np.flatnonzero(gains.clip(0))  # a run begins and ends with such
    start, end = (int(positive[0]), int(positive[-1]) + 1) if len(positive) else (0, 0)
    for index, gain in enumerate(gains[start:end], start):
        if total <= 0:
            first, total = index, 0.0
        total += float(gain)
        if total > best_sum:
            best, best_sum = (first, index + 1), total
    return best


def best_gap(sentence: AlignedSentence, offset: int, gaps: NDArray[np.intp]) -> int:
    """The gap between words that best separates what was translated from before an offset of the source from what was
    translated from after it.

    Args:
        sentence: the translation.
        offset: the offset.
        gaps: gaps to choose from, in order: the number of words before each.
    """
    scores = np.concatenate([[0.0], np.cumsum(sentence.shares(-1, offset) - sentence.shares(offset, 2**62))])
    return int(gaps[scores.round(6)[gaps].argmax()])


def _occurrences(items: Sequence[Item], text: str, sentence: AlignedSentence | None = None) -> dict[Item, Span]:
    """Where a translation has each of those items that it has, placeholders before terms: the first copy, or the one
    with the most attention on the item; one in other letters, such as `%S` for `%s`, only if there is no other."""
    found: dict[Item, Span] = {}
    for item in sorted(items, key=lambda item: item.is_term):
        if item.is_term:
            pattern = re.escape(item.text)
        else:
            pattern = r"\s*".join(re.escape(character) for character in item.text if not character.isspace())
            before = r"(?<!\d)" if item.text[:1].isdigit() else ""  # not part of a longer number
            pattern = before + pattern + (r"(?!\d)" if item.text[-1:].isdigit() else "")
        matches = re.finditer(f"(?=({pattern}))", text, re.IGNORECASE)  # those that overlap, too
        spans = [match.span(1) for match in matches if not item.is_term or is_whole(text, *match.span(1))]
        free = [span for span in spans if all(span[1] <= start or span[0] >= end for start, end in found.values())]
        free = [span for span in free if text[slice(*span)] == item.text] or free
        if free:
            found[item] = free[0] if sentence is None else max(free, key=partial(_attention, sentence, item))
    return found


def _attention(sentence: AlignedSentence, item: Item, span: Span) -> float:
    """The attention on an item of the word that has a span of the translation."""
    return round(float(sentence.shares(item.start, item.end)[sentence.word_at(span[0])]), 6)


def _word(sentence: AlignedSentence, item: Item, text: str, space: str) -> Word:
    raw, origin = (None, None) if item.is_term else (item.raw, (item.start, item.end))
    return Word(text, space, sentence.on(item.start, item.end), raw=raw, is_item=True, origin=origin)


def put_over(sentence: AlignedSentence, item: Item, text: str, first: int, last: int) -> AlignedSentence:
    """Replace characters of a translation with an item, and keep the rest of the words they are in."""
    begun, ended = sentence.word_at(first), sentence.word_at(last - 1)
    before, after = sentence.words[begun], sentence.words[ended]
    head = before.text[: max(0, first - (sentence.ends[begun] - len(before.text)))]
    tail = after.text[len(after.text) - (sentence.ends[ended] - last) :]
    new = [replace(before, text=head)] if head else []
    new.append(_word(sentence, item, text, "" if head else before.space))
    new += [replace(after, text=tail, space="")] if tail else []
    return replaced(sentence, begun, ended + 1, new)


def _inserted(sentence: AlignedSentence, item: Item, text: str, start: int) -> AlignedSentence:
    """Insert an item between words, with white space around it as in the source; quotation marks and the like around it
    may be missing in the translation."""
    words = sentence.words
    gap = best_gap(sentence, item.start, np.arange(len(words) + 1))
    before, after = text[max(start, item.start - 1) : item.start], text[item.end : item.end + 1]
    is_behind_word = gap > 0 and LETTER.fullmatch(words[gap - 1].text[-1:])
    space_before = before.isspace() or (is_behind_word and not before.isalnum())
    first_space = words[0].space if words else ""
    space = first_space if not gap else " " if space_before else ""
    new = [_word(sentence, item, item.text, space)]
    if gap < len(words):
        following = words[gap]
        kept = following.space if gap else ""
        is_word = LETTER.match(following.text)
        is_apart = after.isspace() or not gap or (is_word and not after.isalnum())
        new.append(replace(following, space=kept or (" " if following.text[:1].isalnum() and is_apart else "")))
    return replaced(sentence, gap, gap + 1, new)


def spaced(sentence: AlignedSentence, text: str, span: Span, language: str) -> AlignedSentence:
    """Write placeholders and their neighbors with the space that belongs between them: that of the source beside the
    same sign, or else none before a comma and inside brackets; words do not join them. Signs that French sets apart are
    left as the model writes them, in French and where they are apart in the source."""
    words, is_french = sentence.words.copy(), base_code(language) == "fr"
    for index, (left, right) in enumerate(pairwise(sentence.words), 1):
        if left.origin:
            beside, sign, bound = text[left.origin[1] : span[1]], right.text[:1], _CLOSING
        elif right.origin:
            beside, sign, bound = text[span[0] : right.origin[0]][::-1], left.text[-1:], _OPENING
        else:
            continue
        is_same = sign == beside.lstrip()[:1] and sign in _SIGNS
        is_joint = _SPACED.match(sign) or (left.origin and right.origin)
        is_name = sign == "." and any(
            word.text[0].isalnum() and not word.space for word in words[index + 1 : index + 2]
        )
        has_space = beside[:1].isspace()  # in French, as in "{name} !"; other languages have none
        if is_name or (sign in _APART and not is_joint and (is_french or has_space)):  # such as ".NET"
            continue
        if has_space and (is_same or is_joint):
            words[index] = replace(right, space=right.space or " ")
        elif is_same or sign in bound:
            words[index] = replace(right, space="")
    return replace(sentence, words=words)
