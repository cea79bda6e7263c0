"""Text to compare precisions on: what a model was validated on, or other sentences with references."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgeformer.data.corpora import TextOrigin, load_corpus
from edgeformer.data.text import read_pairs
from edgeformer.errors import ConfigError, DataError
from edgeformer.run.folder import Run


@dataclass(frozen=True)
class ValidationText:
    """Sentences with references."""

    sources: list[str]
    """Source sentences."""
    references: list[str]
    """Reference translations, lowercased if the model only writes lower case."""
    tokenize: str
    """sacreBLEU's tokenizer for these sentences."""
    name: str
    """Name of the text in reports."""


def validation_text(run: Run, data_dir: Path | None = None, files: tuple[Path, Path] | None = None) -> ValidationText:
    """Load pairs of sentences from files, or the validation pairs of the corpus that a run was trained on.

    Args:
        run: an opened run.
        data_dir: folder to look for the corpus files in.
        files: text, one sentence per line, and its reference translation, line by line.

    Raises:
        ConfigError: an imported model has no corpus, or there is no sentence.
        DataError: the files or the corpus cannot be read, or it is not the training corpus.
    """
    recipe = run.recipe
    if files is not None:
        pairs, tokenize, name = read_pairs(files), "13a", f"{files[0].name} and {files[1].name}"
    elif not recipe.data.corpus and not recipe.data.train:
        raise ConfigError(
            f"`{run.path}` was imported and has no validation set; give text and its translation with --valid SOURCE "
            "REFERENCE."
        )
    else:
        corpus = load_corpus(recipe.data, data_dir)
        trained_on = msgspec.structs.replace(msgspec.convert(run.info.provenance, TextOrigin), initial=None)
        if trained_on not in (TextOrigin(), corpus.provenance):
            raise DataError(
                f"`{run.path}` was trained on other text than these files contain, so their validation pairs may be "
                "among its training pairs; give the same files with --data."
            )
        pairs, tokenize = corpus.valid, corpus.provenance.tokenize
        name = "the validation set of the training corpus"
    if not pairs:
        raise ConfigError("There is no sentence to translate; choose another text with --valid.")
    sources, references = ([pair[side] for pair in pairs] for side in (0, 1))
    if recipe.tokenizer.lowercase:
        references = [line.lower() for line in references]
    return ValidationText(sources, references, tokenize, name)
