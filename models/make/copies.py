"""Adds altered copies of pairs to a corpus folder: ``python -m models.make.copies text --out copies --for student``.

Real-world text is less tidy than a corpus: sentences without a period, in lower case or in capitals, with numbers,
names and placeholders that the corpus does not have.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import msgspec

from edgeformer.config import DataConfig
from edgeformer.data.corpora import load_corpus, write_corpus
from edgeformer.data.text import Pair, TextPairs, read_pairs
from models.make.form import lowercase, quotes, titlecase, unpunctuated, uppercase
from models.make.joined import PairJoiner
from models.make.names import NameReplacer
from models.make.numbers import NumberReplacer
from models.make.placeholders import PlaceholderInserter


@dataclass(frozen=True, kw_only=True)
class CopyAmounts:
    """For each kind of change, the mean number of copies of a pair where the change is certain on both sides."""

    names: float = 0.0
    """Given names, surnames and cities replaced by others."""
    numbers: float = 0.0
    """Numbers in digits replaced by others of the same form, as each language writes them."""
    joined: float = 0.0
    """Two sentences as one text, or as clauses joined by "and"."""
    placeholders: float = 0.0
    """Placeholders and addresses in place of names and numbers; emoji and addresses before and after sentences."""
    lowercase: float = 0.0
    """Both sides in lower case."""
    uppercase: float = 0.0
    """Both sides in capitals."""
    titlecase: float = 0.0
    """Every word of the source capitalized, as in headlines."""
    unpunctuated: float = 0.0
    """Both sides without final punctuation."""
    quotes: float = 0.0
    """Straight apostrophes and quotation marks of the source made curly, and curly ones straight."""
    short: float = 0.0
    """Sentences of at most three words on both sides, unaltered: batches are measured in tokens, and these have few."""


AMOUNTS = {
    "student": CopyAmounts(
        names=0.5,
        numbers=4,
        joined=0.04,
        placeholders=0.04,
        lowercase=0.06,
        uppercase=0.03,
        titlecase=0.02,
        unpunctuated=0.2,
        quotes=0.03,
        short=5,
    ),
    "teacher": CopyAmounts(names=0.2, numbers=2, lowercase=0.02, uppercase=0.01, unpunctuated=0.1),
}
"""What the models in the box and their teachers are trained with."""

Alteration = Callable[[Pair, Random], Pair | None]
"""Returns an altered copy of a pair, or ``None`` if the change is not certain on both sides."""


def augmented(pairs: Sequence[Pair], amounts: CopyAmounts, languages: tuple[str, str], *, seed: int = 1) -> list[Pair]:
    """Return the pairs, then their altered copies, none of which repeats a pair but those of ``short``.

    Later alterations also apply to the copies that earlier ones made: a number may be replaced in a sentence that then
    loses its period. The copies of a pair depend on the seed, the options and the pair; only what is joined with it
    depends on the other pairs.

    Args:
        pairs: sources and targets.
        amounts: mean number of copies of each kind.
        languages: BCP 47 tags of source and target, for formats of numbers and names of cities.
        seed: determines the copies.
    """
    names, numbers, joined = NameReplacer(languages), NumberReplacer(languages), PairJoiner(pairs, languages)
    alterations: Mapping[str, Alteration] = {
        "names": names.replaced,
        "numbers": numbers.replaced,
        "joined": joined.joined,
        "placeholders": PlaceholderInserter(names, numbers).inserted,
        "lowercase": lowercase,
        "uppercase": uppercase,
        "titlecase": titlecase,
        "unpunctuated": unpunctuated,
        "quotes": quotes,
    }
    text, known = list(pairs), set(pairs)
    for kind, alter in alterations.items():
        copies = [copy for pair in text for copy in _copies(pair, kind, alter, getattr(amounts, kind), seed)]
        text += [copy for copy in dict.fromkeys(copies) if copy not in known]
        known.update(copies)
    return text + [copy for pair in text for copy in _copies(pair, "short", _short, amounts.short, seed)]


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


def main() -> None:
    """Write a folder with the pairs of another one and their copies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="folder that text.py or `edgeformer data prepare` wrote")
    parser.add_argument("--train", nargs="+", help="files that replace its training text, as of a teacher")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--for", dest="model", choices=AMOUNTS, default="student")
    options = parser.parse_args()
    corpus = load_corpus(DataConfig(corpus=options.folder, keep_repeated=True))
    languages = corpus.source_language, corpus.target_language
    pairs = read_pairs(options.train) if options.train else list(corpus.train)
    train = augmented(pairs, AMOUNTS[options.model], languages)
    origin = msgspec.structs.replace(corpus.provenance, name=f"{corpus.provenance.name}, with altered copies")
    write_corpus(replace(corpus, train=TextPairs.of(train), provenance=origin), options.out)
    print(f"{len(pairs):,} pairs and {len(train) - len(pairs):,} altered copies")


if __name__ == "__main__":
    main()
