"""Which words of a translation come from which words of its source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from edgeformer_runtime.serve.sentences import Span
from edgeformer_runtime.translator import AnyTranslator, Translation

Link = tuple[Span, Span]
"""A word of the source and a word of the translation, as parts of the sentences in characters."""
_WORD = re.compile(r"\S+")


def word_links(translator: AnyTranslator, translation: Translation) -> list[Link]:
    """Link words whose tokens attend to each other most.

    Args:
        translator: the translator that made the translation.
        translation: a translation with attention weights.
    """
    best = translation.best
    if best.attention is None:
        return []
    source_words = _words(translation.source.text, source_spans(translator, translation.source.text))
    target_words = _words(best.text, target_spans(translator, best.ids))
    offset = translator.source_tokenizer.prefix_length
    links = {
        (source_words[source - offset], target_words[target])
        for source, target in best.attention.alignment
        if 0 <= source - offset < len(source_words) and target < len(target_words)
    }
    return sorted((source, target) for source, target in links if source is not None and target is not None)


def source_spans(translator: AnyTranslator, text: str) -> list[Span]:
    """Where each token of a source is in its text; tokens that are not found literally are empty parts."""
    spans, position = [], 0
    for piece in translator.source_tokenizer.pieces(text):
        start = text.find(piece.strip(), position)
        start, length = (position, 0) if start < 0 else (start, len(piece.strip()))
        spans.append((start, start + length))
        position = start + length
    return spans


def target_spans(translator: AnyTranslator, ids: Sequence[int]) -> list[Span]:
    """Where each token of a translation is in its text: what it adds to the text of the tokens before it."""
    ends = [len(translator.target_tokenizer.decode(ids[:count]).rstrip("\ufffd")) for count in range(len(ids) + 1)]
    return [(min(start, end), end) for start, end in pairwise(ends)]


def _words(text: str, spans: Sequence[Span]) -> list[Span | None]:
    """The word that the last character of each part belongs to; ``None`` for white space and empty parts."""
    words = [match.span() for match in _WORD.finditer(text)]
    return [next((word for word in words if start < end and word[0] < end <= word[1]), None) for start, end in spans]
