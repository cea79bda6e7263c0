"""Search for a length penalty that gives a high BLEU on the validation set.

BLEU hardly changes over a wide range of penalties, and where in it the highest is depends on the sentences. So the
penalty nearest to 1 is taken of those that are not surely worse.

Beam search keeps what is most probable, whatever the penalty; only the order of what it has finished depends on it. So
one search, ranked anew for each penalty, gives what a search with each of them would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from edgeformer.config import Recipe, recipe_from_tree
from edgeformer.data.corpora import load_corpus
from edgeformer.errors import CheckpointError, ConfigError, DataError
from edgeformer.quality.bootstrap import difference_error, sentence_counts
from edgeformer.quality.evaluation import System, aligned_lines, too_long, translate_all
from edgeformer.quality.scores import bleu_metric
from edgeformer_runtime.bundle.generation import Generation
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.bundle.provenance import TextOrigin
from edgeformer_runtime.contract import MANIFEST_FILE
from edgeformer_runtime.decoding.search import normalised
from edgeformer_runtime.translator import Translation

PENALTIES = tuple(tenth / 10 for tenth in range(21))
"""0 to 2 in steps of a tenth."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What one length penalty gives."""

    length_penalty: float
    """Exponent of the length that divides a score."""
    bleu: float
    """Corpus BLEU, 0 … 100."""
    error: float
    """Half of the interval in which the difference from the highest BLEU lies with 95 % certainty, by paired
    bootstrap."""
    length_ratio: float
    """Words of the output over those of the references."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """All candidates, and the one to take."""

    beam_size: int
    """Hypotheses kept per sentence."""
    candidates: tuple[Candidate, ...]
    """In the order of their penalties."""
    chosen: Candidate
    """That with the penalty nearest to 1, of those whose BLEU is below the highest by no more than the error of that
    difference."""
    sentences: int
    """Validation sentences translated."""
    too_long: int
    """Validation sentences left out, since the model does not take so many tokens."""
    bleu_signature: str
    """sacreBLEU's signature."""

    @property
    def generation(self) -> Generation:
        """Decoding defaults that follow."""
        return Generation(beam_size=self.beam_size, length_penalty=self.chosen.length_penalty)


def tune(
    path: Path,
    system: System,
    data_dir: Path | None = None,
    *,
    beam_size: int | None = None,
    penalties: Sequence[float] = PENALTIES,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Tuning:
    """Compare length penalties on the validation pairs of the corpus that a model was trained on.

    Args:
        path: the model's folder, a run or a bundle.
        system: the model, opened.
        data_dir: folder to look for the corpus in.
        beam_size: hypotheses kept; the model's default if none.
        penalties: which to compare; the model's own is added.
        progress: called with the fraction of the search done, 0 … 1.

    Raises:
        CheckpointError: the model's folder does not say what it was trained on.
        ConfigError: the beam has one hypothesis, of which there is no order.
        DataError: the corpus cannot be read, is not that of the training, or has no validation pair for the model.
        OptionError: a penalty is out of its range.
    """
    options = replace(system.options, beam_size=beam_size or system.options.beam_size, length_penalty=0.0)
    options = replace(options, n_best=options.beam_size)
    if options.beam_size == 1:
        raise ConfigError("A length penalty changes nothing with a beam of 1; give `--beam` 2 or more.")
    penalties = sorted({*penalties, system.options.length_penalty})
    for penalty in penalties:
        replace(options, length_penalty=penalty).verify()
    text = validation_text(path, data_dir).fitting(system)
    bleu = bleu_metric(text.tokenize)
    translations = translate_all(system, text.sources, options, progress=progress)
    outputs = [[best_text(translation, penalty) for translation in translations] for penalty in penalties]
    results = [bleu.corpus_score(output, [text.references]) for output in outputs]
    counts = [sentence_counts(output, text.references, text.tokenize) for output in outputs]
    highest = max(range(len(penalties)), key=lambda index: results[index].score)
    candidates = [
        Candidate(
            length_penalty=penalty,
            bleu=result.score,
            error=difference_error(counts[highest], mine),
            length_ratio=result.sys_len / max(1, result.ref_len),
        )
        for penalty, result, mine in zip(penalties, results, counts, strict=True)
    ]
    as_good = [one for one in candidates if candidates[highest].bleu - one.bleu <= one.error]
    return Tuning(
        beam_size=options.beam_size,
        candidates=tuple(candidates),
        chosen=min(as_good, key=lambda one: (abs(one.length_penalty - 1), -one.bleu)),
        sentences=len(text.sources),
        too_long=text.too_long,
        bleu_signature=str(bleu.get_signature()),
    )


def best_text(translation: Translation, length_penalty: float) -> str:
    """The best of all hypotheses of a search without length penalty, had it been one with this.

    Args:
        translation: all that the beam has finished, with plain log-probabilities for scores.
        length_penalty: exponent of the length that divides them.
    """
    return max(
        translation.hypotheses,
        key=lambda found: normalised(found.score or 0.0, len(found.ids) + found.finished, length_penalty),
    ).text


@dataclass(frozen=True)
class ValidationText:
    """Sentences with references."""

    sources: list[str]
    """Source sentences."""
    references: list[str]
    """Their references, in lower case if the model writes lower case only."""
    tokenize: str
    """sacreBLEU's tokenizer for them."""
    too_long: int = 0
    """Sentences that were left out, since the model does not take so many tokens."""

    def fitting(self, system: System) -> ValidationText:
        """Those that a model takes.

        Raises:
            DataError: there is none.
        """
        excluded = too_long(system.session, system.source_tokenizer, self.sources)
        kept = [index for index in range(len(self.sources)) if index not in excluded]
        if not kept:
            raise DataError("No validation pair is short enough for the model; give others with `data.valid`.")
        return replace(
            self,
            sources=[self.sources[index] for index in kept],
            references=[self.references[index] for index in kept],
            too_long=len(excluded),
        )


def validation_text(path: Path, data_dir: Path | None = None) -> ValidationText:
    """The validation pairs of the corpus that a model was trained on.

    Args:
        path: the model's folder, a run or a bundle.
        data_dir: folder to look for the corpus in.

    Raises:
        CheckpointError: the model's folder does not say what it was trained on.
        DataError: the corpus cannot be read, or is not that of the training.
    """
    recipe, trained_on = _training(path)
    corpus = load_corpus(recipe.data, data_dir)
    if trained_on not in (TextOrigin(), _origin(msgspec.to_builtins(corpus.provenance))):
        raise DataError(
            f"`{path}` was trained on other text than is found now, of which the validation pairs may be among what it "
            "has learned; give the same files with --data."
        )
    references = [target.lower() if recipe.tokenizer.lowercase else target for _, target in corpus.valid]
    return ValidationText([source for source, _ in corpus.valid], references, corpus.provenance.tokenize)


def file_text(path: Path, source: Path, reference: Path) -> ValidationText:
    """The lines of two files.

    Args:
        path: the model's folder, a run or a bundle.
        source: text, a sentence per line.
        reference: its translation, line by line.

    Raises:
        CheckpointError: the model's folder does not say what it was trained on.
        DataError: a file cannot be read, or the numbers of lines differ.
    """
    lowercase = _training(path)[0].tokenizer.lowercase
    sources, references = aligned_lines(source, reference)
    return ValidationText(sources, [line.lower() if lowercase else line for line in references], "13a")


def _training(path: Path) -> tuple[Recipe, TextOrigin]:
    """The recipe of a run or a bundle, and where its text came from, as far as that is recorded."""
    if not (path / MANIFEST_FILE).exists():
        from edgeformer.train.run import Run  # which needs torch

        run = Run.open(path)
        return run.recipe, _origin(run.info.provenance)
    provenance = open_bundle(path).manifest.provenance
    if not provenance.recipe:
        raise CheckpointError(f"Bundle `{path}` does not say what it was trained on; tune its run instead.")
    return recipe_from_tree(provenance.recipe, str(path)), provenance.training.provenance


def _origin(record: dict[str, Any]) -> TextOrigin:
    return msgspec.convert(record, TextOrigin)
