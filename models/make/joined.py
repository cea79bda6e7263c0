"""Two pairs as one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from random import Random

from babel import Locale

from edgeformer.data.text import Pair

_SENTENCE = re.compile(r"(?P<text>[^.!?…]{2,120})[.!?…]+")
_STATEMENT = re.compile(r"(?P<text>[^.!?…,]{2,80})\.")
_WORD = re.compile(r"[^\W\d_]+")
_CERTAIN = 20
"""How many times as often a word must occur with or without a capital inside sentences."""


class PairJoiner:
    """Joins a pair with another one, drawn at random: as two sentences, or as two clauses with "and" between them.

    Args:
        pairs: what to draw from.
        languages: BCP 47 tags of source and target.
    """

    def __init__(self, pairs: Sequence[Pair], languages: tuple[str, str]) -> None:
        self._pairs = pairs
        self._lists = [Locale.parse(language, sep="-").list_patterns["standard"]["2"] for language in languages]
        self._counts = [Counter(word for pair in pairs for word in _WORD.findall(pair[side])[1:]) for side in (0, 1)]

    def joined(self, pair: Pair, random: Random) -> Pair | None:
        """Join the pair with another one if each is a sentence; statements become clauses half of the time."""
        other = random.choice(self._pairs)
        if not all(_SENTENCE.fullmatch(side) for side in (*pair, *other)):
            return None
        source, target = (self._clauses(side, pair[side], other[side]) for side in (0, 1))
        if source and target and random.random() < 0.5:
            return source, target
        return f"{pair[0]} {other[0]}", f"{pair[1]} {other[1]}"

    def _clauses(self, side: int, first: str, second: str) -> str | None:
        """Two statements as one sentence; ``None`` if they are none, or if the second one may begin with a name."""
        word = _WORD.match(second)
        if word is None or not (_STATEMENT.fullmatch(first) and _STATEMENT.fullmatch(second)):
            return None
        inside = self._counts[side]
        lower, capital = inside[word[0].lower()], inside[word[0]]
        if max(lower, capital) <= _CERTAIN * min(lower, capital):
            return None
        initial = word[0].lower() if lower > capital else word[0]
        return str(self._lists[side].format(first[:-1], initial + second[word.end() :]))
