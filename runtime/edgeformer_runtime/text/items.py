"""Puts placeholders and terms of a glossary where they belong in a translation."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.text.block import LETTER, Item, Span, is_whole
from edgeformer_runtime.text.numbers.formats import base_code
from edgeformer_runtime.text.words import AlignedSentence, Shares, Word, joined, replaced

_CLOSING, _OPENING = ",.;:!?…)]}،؛؟、。，．：；！？）】」』》", "([{¿¡„‚（【「『《"
"""Signs without a space before them, and without one after them."""
_SIGNS = f"{_CLOSING}{_OPENING}\"'“”‘’«»‹›/-–—"
_APART = ";:!?«»‹›"
"""Signs that French sets apart."""
_SPACED = re.compile(rf"(?![\u0590-\u08ff\u1100-\u11ff\uac00-\ud7ff]){LETTER.pattern}")
"""A letter that is not joined to a placeholder, unlike particles of Korean and prefixes of Hebrew and Arabic."""


def copied(items: Sequence[Item], text: str) -> bool:
    """Return whether a translation has all placeholders among the items, perhaps with other white space."""
    placeholders = [item for item in items if not item.is_term]
    return len(_found(placeholders, text)) == len(placeholders)


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
    found = max(_found(read, target, sentence), _found(read, target), key=len)
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


def _found(items: Sequence[Item], text: str, sentence: AlignedSentence | None = None) -> dict[Item, Span]:
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
