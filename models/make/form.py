"""Letter case, final punctuation, and the form of quotation marks."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from edgeformer.data.text import Pair
from edgeformer_text.protected import protected_spans

_END = re.compile(r"\s*[.!?…]+$")
_ABBREVIATION = re.compile(r"(?:\.\w+|\b\w|\b(?:etc|Mr|Mrs|Ms|Dr|St|Jr|Sr|Co|Inc|Ltd))\.$")
_WORD = re.compile(r"\w[\w'’]*")
_TO_CURLY = ((re.compile(r"(?<!\w)\"(?=\w)"), "“"), (re.compile(r"\""), "”"), (re.compile(r"'"), "’"))
_TO_STRAIGHT = str.maketrans("“”’‘", "\"\"''")


def lowercase(pair: Pair, _: Random) -> Pair | None:
    """Both sides in lower case."""
    return _changed(pair, str.lower, str.lower)


def uppercase(pair: Pair, _: Random) -> Pair | None:
    """Both sides in capitals."""
    return _changed(pair, str.upper, str.upper)


def titlecase(pair: Pair, _: Random) -> Pair | None:
    """Every word of the source capitalized, as in headlines; the target as it is."""
    return _changed(pair, lambda text: _WORD.sub(lambda word: word[0][0].upper() + word[0][1:], text), str)


def unpunctuated(pair: Pair, _: Random) -> Pair | None:
    """Both sides without final punctuation, if both have some and it is not that of an abbreviation."""
    if any(_ABBREVIATION.search(side) and not side.endswith("..") for side in pair):
        return None
    source, target = (_END.sub("", side) for side in pair)
    return (source, target) if source and target and source != pair[0] and target != pair[1] else None


def quotes(pair: Pair, _: Random) -> Pair | None:
    """Straight apostrophes and quotation marks of the source made curly or the other way round."""
    return _changed(pair, _other_quotes, str)


def _other_quotes(text: str) -> str:
    if any(mark in text for mark in "“”’‘"):
        return text.translate(_TO_STRAIGHT)
    for pattern, mark in _TO_CURLY:
        text = pattern.sub(mark, text)
    return text


def _changed(pair: Pair, of_source: Callable[[str], str], of_target: Callable[[str], str]) -> Pair | None:
    """Change both sides except for their placeholders and addresses; ``None`` if that leaves the source as it is."""
    copy = _outside_protected(pair[0], of_source), _outside_protected(pair[1], of_target)
    return copy if copy[0] != pair[0] else None


def _outside_protected(text: str, change: Callable[[str], str]) -> str:
    parts, position = [], 0
    for begin, end in protected_spans(text):
        parts += [change(text[position:begin]), text[begin:end]]
        position = end
    return "".join([*parts, change(text[position:])])
