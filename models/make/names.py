"""Given names, surnames and cities, replaced by others of the same kind."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from random import Random
from typing import Any, NamedTuple

from babel import Locale
from babel.core import get_global

from edgeformer.data.text import Pair

Spans = tuple[tuple[int, int], tuple[int, int]]
"""Begin and end in the source and in the target."""


class Name(NamedTuple):
    """A name as it is written in both languages."""

    source: str
    target: str


class NameReplacer:
    """Finds and replaces names.

    A name is replaced by one of the same kind that begins like it, with a vowel or not, since words such as the French
    "de" and "que" depend on that.

    Args:
        languages: BCP 47 tags of source and target.
    """

    def __init__(self, languages: tuple[str, str]) -> None:
        self._kinds = {kind: [Name(name, name) for name in entries(kind)] for kind in ("men", "women", "surnames")}
        self._kinds["cities"] = _cities(languages)
        self._kind_of = {name: kind for kind, names in reversed(self._kinds.items()) for name in names}
        for form, other in _tables()["forms"].items():
            for name in (Name(form, other), Name(other, form)):
                self._kind_of[name] = "women" if form in entries("women") else "men"
        self._targets: dict[str, list[str]] = {}
        for source, target in self._kind_of:
            self._targets.setdefault(source, []).append(target)
        longest_first = sorted(self._targets, key=lambda name: (-len(name), name))
        self._pattern = _word("|".join(map(re.escape, longest_first)))

    def find(self, pair: Pair) -> Iterator[tuple[Name, Spans]]:
        """Yield the names that occur exactly once on each side."""
        source, target = pair
        matches = list(self._pattern.finditer(source))
        for match in matches:
            places = [
                (Name(match[0], form), place.span())
                for form in self._targets[match[0]]
                for place in _word(re.escape(form)).finditer(target)
            ]
            if len(places) == 1 and sum(other[0] == match[0] for other in matches) == 1:
                yield places[0][0], (match.span(), places[0][1])

    def replaced(self, pair: Pair, random: Random) -> Pair | None:
        """Replace every name that occurs exactly once on each side."""
        found = list(self.find(pair))
        if not found:
            return None
        new: list[Name] = []
        for name, _ in found:
            like = [other for other in self._kinds[self._kind_of[name]] if _begins(other) == _begins(name)]
            new.append(_new(random, [other for other in like if other not in new] or [name]))
        return substituted(pair, [spans for _, spans in found], new)


def substituted(pair: Pair, spans: Sequence[Spans], new: Sequence[Pair]) -> Pair:
    """Replace parts that do not overlap on both sides of a pair."""
    sides = list(pair)
    for side in (0, 1):
        for both, texts in sorted(zip(spans, new, strict=True), key=lambda item: -item[0][side][0]):
            begin, end = both[side]
            sides[side] = sides[side][:begin] + texts[side] + sides[side][end:]
    return sides[0], sides[1]


@cache
def entries(name: str) -> list[str]:
    """Return a list of ``names.toml``."""
    return str(_tables()[name]).split()


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / "names.toml").read_text(encoding="utf-8"))


@cache
def _word(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])")


def _new(random: Random, names: Sequence[Name]) -> Name:
    """One of the names, or a third of the time halves of two, so that models copy names instead of learning them."""
    first, second = (random.choice(names) for _ in range(2))
    if random.random() < 2 / 3 or first.source != first.target:
        return first
    half, other = len(first.source) // 2 + 1, second.source[len(second.source) // 2 :]
    return Name(first.source[:half] + other, first.source[:half] + other)


def _begins(name: Name) -> tuple[bool, bool]:
    """Whether each form begins with a vowel."""
    return name.source[0] in "AEIOUÉ", name.target[0] in "AEIOUÉ"


def _cities(languages: tuple[str, str]) -> list[Name]:
    """Cities as CLDR writes them in both languages, and those with the same name in most."""
    zones = {zone.partition("/")[2]: zone for zone in get_global("zone_territories")}
    sides = []
    for language in languages:
        known = Locale.parse(language, sep="-").time_zones
        sides.append(
            [
                known.get(zones.get(city, ""), {}).get("city") or city.rpartition("/")[2].replace("_", " ")
                for city in entries("zones")
            ]
        )
    same = [Name(city, city) for city in entries("cities")]
    return [Name(source, target) for source, target in zip(*sides, strict=True)] + same
