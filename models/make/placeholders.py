"""Placeholders, addresses and emoji, which a translation has unchanged."""

from __future__ import annotations

from random import Random

from edgeformer.data.text import Pair
from models.make.names import NameReplacer, entries, substituted
from models.make.numbers import NumberReplacer


class PlaceholderInserter:
    """Puts a placeholder or an address in place of a name or number, or else an emoji or address beside a sentence."""

    def __init__(self, names: NameReplacer, numbers: NumberReplacer) -> None:
        self._names, self._numbers = names, numbers

    def inserted(self, pair: Pair, random: Random) -> Pair:
        """Return a copy with something that must be kept."""
        spans = [*(spans for _, spans in self._names.find(pair)), *self._numbers.spans(pair)]
        spans = [(source, target) for source, target in spans if pair[0][source[1] :][:1] not in ("'", "’")]
        if spans:
            text = _address(random) if random.random() < 0.15 else _placeholder(random)
            return substituted(pair, [random.choice(spans)], [(text, text)])
        text = random.choice(entries("emoji")) if random.random() < 0.5 else _address(random)
        if random.random() < 0.3:
            return f"{text} {pair[0]}", f"{text} {pair[1]}"
        return f"{pair[0]} {text}", f"{pair[1]} {text}"


def _placeholder(random: Random) -> str:
    form, word = random.choice(entries("placeholders")), random.choice(entries("words"))
    if random.random() < 0.3:
        word += f"_{random.choice(entries('words'))}"
    return form.replace("~", word)


def _address(random: Random) -> str:
    host, *words = (random.choice(entries("words")) for _ in range(3))
    domain = f"{host}.{random.choice(entries('endings'))}"
    if random.random() < 0.3:
        return f"{words[0]}{random.choice(('', '.', '_'))}{words[1]}@{domain}"
    path = random.choice(("", "/", f"/{words[0]}", f"/{words[0]}/{words[1]}", f"/?{words[0]}={random.randrange(99)}"))
    return random.choice(("https://", "https://www.", "http://", "www.")) + domain + path
