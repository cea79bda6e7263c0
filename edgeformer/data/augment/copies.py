"""Altered copies of the training pairs, as section ``[data.augment]`` of a recipe asks for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec

from edgeformer.config import AugmentConfig, Recipe
from edgeformer.data.augment.form import lowercase, quotes, titlecase, unpunctuated, uppercase
from edgeformer.data.augment.joined import Joined
from edgeformer.data.augment.names import Names
from edgeformer.data.augment.numbers import Numbers
from edgeformer.data.augment.placeholders import Placeholders
from edgeformer.data.corpora import ParallelCorpus, load_corpus
from edgeformer.data.text import Pair
from edgeformer.errors import ConfigError

Alteration = Callable[[Pair, Random], Pair | None]
"""Returns an altered copy of a pair, or ``None`` if the change is not certain on both sides."""


def load_with_copies(recipe: Recipe, data_dir: Path | None = None) -> ParallelCorpus:
    """Load the corpus of a recipe and add altered copies to its training pairs, unless it was written with them.

    Raises:
        ConfigError: as :func:`~edgeformer.data.corpora.load_corpus`, or there are to be copies and CLDR does not know
            the recipe's languages.
        DataError: the corpus cannot be read.
    """
    corpus = load_corpus(recipe.data, data_dir)
    wanted = {kind: mean for kind, mean in msgspec.structs.asdict(recipe.data.augment).items() if mean}
    if not wanted or corpus.provenance.augment:
        return corpus
    languages = corpus.source_language or recipe.source_language, corpus.target_language or recipe.target_language
    train = augmented(corpus.train, recipe.data.augment, languages, seed=recipe.data.seed)
    text = "".join(f"{source}\t{target}\n" for source, target in train).encode("utf-8")
    hashes = {**corpus.provenance.sha256, "augmented": hashlib.sha256(text).hexdigest()}
    provenance = msgspec.structs.replace(corpus.provenance, sha256=hashes, augment=wanted)
    return replace(corpus, train=train, provenance=provenance)


def augmented(pairs: Sequence[Pair], config: AugmentConfig, languages: tuple[str, str], *, seed: int) -> list[Pair]:
    """Return the pairs, then their altered copies, without copies that repeat a pair.

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
    except ValueError as error:  # of Babel, whose UnknownLocaleError is no subclass
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
    return text


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
