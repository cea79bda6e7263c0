"""Altered copies of the training pairs, as section ``[data.augment]`` of a recipe asks for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from babel import UnknownLocaleError

from edgeformer.config import AugmentConfig
from edgeformer.data.augment.form import lowercase, quotes, titlecase, unpunctuated, uppercase
from edgeformer.data.augment.joined import Joined
from edgeformer.data.augment.names import Names
from edgeformer.data.augment.numbers import Numbers
from edgeformer.data.augment.placeholders import Placeholders
from edgeformer.data.text import Pair
from edgeformer.errors import ConfigError

Alteration = Callable[[Pair, Random], Pair | None]
"""Returns an altered copy of a pair, or ``None`` if the change is not certain on both sides."""


def augmented(pairs: Sequence[Pair], config: AugmentConfig, languages: tuple[str, str], *, seed: int) -> list[Pair]:
    """Return the pairs, then their altered copies, none of which repeats a pair but those of ``short``.

    Later alterations also apply to the copies that earlier ones made: a number may be replaced in a sentence that then
    loses its period. The copies of a pair depend on the seed, the options and the pair; only what is joined with it
    depends on the other pairs.

    Args:
        pairs: sources and targets.
        config: mean number of copies of each kind.
        languages: BCP 47 tags of source and target, for formats of numbers and names of cities.
        seed: determines the copies.

    Raises:
        ConfigError: a language is not known to CLDR.
    """
    try:
        names, numbers, joined = Names(languages), Numbers(languages), Joined(pairs, languages)
    except (ValueError, UnknownLocaleError) as error:
        raise ConfigError(f"`data.augment` needs the recipe's languages: {error}.") from None
    alterations: Mapping[str, Alteration] = {
        "names": names.replaced,
        "numbers": numbers.replaced,
        "joined": joined.joined,
        "placeholders": Placeholders(names, numbers).inserted,
        "lowercase": lowercase,
        "uppercase": uppercase,
        "titlecase": titlecase,
        "unpunctuated": unpunctuated,
        "quotes": quotes,
    }
    text, known = list(pairs), set(pairs)
    for kind, alter in alterations.items():
        copies = [copy for pair in text for copy in _copies(pair, kind, alter, getattr(config, kind), seed)]
        text += [copy for copy in dict.fromkeys(copies) if copy not in known]
        known.update(copies)
    return text + [copy for pair in text for copy in _copies(pair, "short", _short, config.short, seed)]


def _short(pair: Pair, _: Random) -> Pair | None:
    return pair if max(len(side.split()) for side in pair) <= 3 else None


def _copies(pair: Pair, kind: str, alter: Alteration, mean: float, seed: int) -> Iterator[Pair]:
    """Make a mean of ``mean`` copies of a pair if it allows that."""
    if not mean:
        return
    digest = hashlib.blake2b("\0".join((str(seed), kind, *pair)).encode("utf-8"), digest_size=16).digest()
    count = int(mean) + (int.from_bytes(digest[:8]) < mean % 1 * 2**64)
    random = Random(digest[8:]) if count else None  # seeding takes longer than hashing
    while count and random and (copy := alter(pair, random)):
        yield copy
        count -= 1
