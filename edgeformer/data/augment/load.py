"""Loading of the text that a recipe trains on."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import msgspec

from edgeformer.config import Recipe
from edgeformer.data.corpora import ParallelCorpus, load_corpus
from edgeformer.data.text import TextPairs


def load_with_copies(recipe: Recipe, data_dir: Path | None = None) -> ParallelCorpus:
    """Load the corpus of a recipe and add altered copies to its training pairs, unless it was written with them.

    To make copies, memory has all pairs.

    Raises:
        ConfigError: as :func:`~edgeformer.data.corpora.load_corpus`, or there are to be copies and CLDR does not know
            the recipe's languages.
        DataError: the corpus cannot be read.
    """
    corpus = load_corpus(recipe.data, data_dir)
    wanted = {kind: mean for kind, mean in msgspec.structs.asdict(recipe.data.augment).items() if mean}
    if not wanted or corpus.provenance.augment:
        return corpus
    from edgeformer.data.augment.copies import augmented  # needs Babel

    languages = corpus.source_language or recipe.source_language, corpus.target_language or recipe.target_language
    train = augmented(list(corpus.train), recipe.data.augment, languages, seed=recipe.data.seed)
    text = "".join(f"{source}\t{target}\n" for source, target in train).encode("utf-8")
    hashes = {**corpus.provenance.sha256, "augmented": hashlib.sha256(text).hexdigest()}
    provenance = msgspec.structs.replace(corpus.provenance, sha256=hashes, augment=wanted)
    return replace(corpus, train=TextPairs.of(train), provenance=provenance)
