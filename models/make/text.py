"""Writes the text that a model in the box is trained on: ``python -m models.make.text en-fr SOFTWARE.tsv --out text``.

Tatoeba's sentences, the file that ``software.py`` wrote, and the words of ``words.py``, as a folder that a recipe names
in ``data.corpus``. Sentences and software are split by source sentence; the words are all for training.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from edgeformer.config import DataConfig
from edgeformer.data.corpora import ParallelCorpus, TextOrigin, join_corpora, load_corpus, write_corpus
from edgeformer.data.filters import filter_pairs, split_by_source
from edgeformer.data.text import Pair, TextPairs, content_sha256, iterate_pairs
from models.make.filters import french_spaces, has_same_digits
from models.make.words import generate_words

MAX_WORDS, HELD_OUT, SEED = 50, 1000, 1
DIRECTIONS = ("en-fr", "fr-en")
SOFTWARE_SHA256 = "5dc837e0d2e1a322efe50573a2ac649944dccfbc9d0e73141bc4dd99620383bb"
"""Of the file that ``software.py`` makes of Debian 12's packages, with which the models in the box were trained."""
_SOFTWARE = TextOrigin(
    name="software",
    licence="MPL-2.0, attribution: LibreOffice contributors; CC-BY-SA 3.0, attribution: GNOME Documentation Project",
    origin="Debian 12: libreoffice-help-en-us, libreoffice-help-fr, libreoffice-l10n-fr, gnome-user-docs",
)
_WORDS = TextOrigin(
    name="words", licence="Unicode License v3 (CLDR)", origin="generated with Babel from https://cldr.unicode.org"
)


def training_text(direction: str, software: Path, data_dir: Path | None = None, *, words: int = 1) -> ParallelCorpus:
    """Filter, split and join the three sources.

    Args:
        direction: one of :data:`DIRECTIONS`.
        software: lines of English, French, and more columns, which are ignored.
        data_dir: folder to look for Tatoeba's file in.
        words: how many times training has each word.
    """
    sentences = load_corpus(DataConfig(corpus=f"tatoeba-{direction}", max_words=MAX_WORDS, seed=SEED), data_dir)
    files = {software.name: content_sha256(software)}
    programs = _split(direction, lambda: iterate_pairs([software]), _SOFTWARE, files)
    generated = generate_words(seed=SEED)
    lists = _split(direction, lambda: generated, _WORDS, {})
    sentences, programs, lists = (_tidied(corpus) for corpus in (sentences, programs, lists))
    # Words that the split holds out come as they are: digits of times differ, as in 1:15 PM and 13:15.
    every = TextPairs.of(lists.train, lists.valid, lists.test)
    lists = replace(lists, train=TextPairs.of(*[every] * words), valid=[], test=[])
    return join_corpora([sentences, programs, lists])


def _tidied(corpus: ParallelCorpus) -> ParallelCorpus:
    """Drop training pairs whose digits differ, and give French targets the spaces of French punctuation."""
    train = corpus.train.keep(has_same_digits)
    if corpus.target_language == "fr":
        train = TextPairs.of([(source, french_spaces(target)) for source, target in train])
    return replace(corpus, train=train)


def _split(
    direction: str, read: Callable[[], Iterable[Pair]], origin: TextOrigin, sha256: dict[str, str]
) -> ParallelCorpus:
    """Filter and split pairs that have English first, as a recipe's own files are."""
    source, target = direction.split("-")
    turned = direction == "fr-en"
    pairs, report = filter_pairs(
        lambda: ((pair[1], pair[0]) if turned else (pair[0], pair[1]) for pair in read()), max_words=MAX_WORDS
    )
    parts = split_by_source(pairs, valid_size=HELD_OUT, test_size=HELD_OUT, seed=SEED)
    return ParallelCorpus(
        train=parts.train,
        valid=parts.valid,
        test=parts.test,
        report=report,
        provenance=TextOrigin(name=origin.name, licence=origin.licence, origin=origin.origin, sha256=sha256),
        source_language=source,
        target_language=target,
    )


def main() -> None:
    """Write the folder of one direction."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("direction", choices=DIRECTIONS)
    parser.add_argument("software", type=Path, help="file that software.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--data", type=Path, help="folder to look for Tatoeba's file in")
    parser.add_argument(
        "--words", type=int, default=1, help="how many times training has each word; the teacher, twice"
    )
    options = parser.parse_args()
    if content_sha256(options.software) != SOFTWARE_SHA256:
        print(f"{options.software} differs from the text that the models in the box were trained on.")
    corpus = training_text(options.direction, options.software, options.data, words=options.words)
    write_corpus(corpus, options.out)
    print(f"train {len(corpus.train):,}, valid {len(corpus.valid):,}, test {len(corpus.test):,} pairs")


if __name__ == "__main__":
    main()
