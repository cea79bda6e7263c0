"""Search for a length penalty with a high BLEU on the validation set.

BLEU hardly changes over a wide range of penalties, and which penalty scores highest depends on the sentences. Of the
penalties whose BLEU is not significantly below the highest, the one closest to 1 is chosen.

The penalty determines the order of the finished hypotheses, not which hypotheses beam search keeps. A single search
whose hypotheses are re-ranked for each penalty therefore gives the same result as one search per penalty, if the search
stops early.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from edgeformer.config import Recipe, recipe_from_tree
from edgeformer.data.augment.load import load_with_copies
from edgeformer.errors import CheckpointError, ConfigError, DataError
from edgeformer.quality.bootstrap import difference_interval, sentence_counts
from edgeformer.quality.evaluation import aligned_lines, translate_all
from edgeformer.quality.scores import bleu_metric
from edgeformer.quality.translators import is_bundle
from edgeformer_runtime.bundle.generation import Generation
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.bundle.provenance import TextOrigin
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.decoding.search import normalized_score
from edgeformer_runtime.interval import Interval
from edgeformer_runtime.translator import AnyTranslator, Translation

PENALTIES = tuple(tenth / 10 for tenth in range(21))
"""0 to 2 in steps of a tenth."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """The result of one length penalty."""

    length_penalty: float
    """Exponent of the length by which scores are divided."""
    bleu: float
    """Corpus BLEU, 0 to 100."""
    deficit: Interval
    """Confidence interval of the highest BLEU minus this one, by paired bootstrap."""
    length_ratio: float
    """Number of words in the output divided by that in the references."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """All candidates, and the one to use."""

    beam_size: int
    """Hypotheses kept per sentence."""
    candidates: tuple[Candidate, ...]
    """Sorted by penalty."""
    chosen: Candidate
    """The candidate with the penalty closest to 1, among those whose BLEU is not significantly below the highest."""
    sentences: int
    """Number of validation sentences translated."""
    too_long: int
    """Number of validation sentences left out because they have more tokens than the model accepts."""
    bleu_signature: str
    """sacreBLEU's signature."""

    def applied_to(self, generation: Generation) -> Generation:
        """Decoding defaults with the chosen values."""
        chosen = self.chosen.length_penalty
        return msgspec.structs.replace(generation, beam_size=self.beam_size, length_penalty=chosen)


def tune(
    translator: AnyTranslator,
    text: ValidationText,
    *,
    beam_size: int | None = None,
    penalties: Sequence[float] = PENALTIES,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Tuning:
    """Compare length penalties.

    Args:
        translator: the opened model.
        text: what to translate, and reference translations.
        beam_size: hypotheses kept; the model's default if ``None``.
        penalties: length penalties to compare; the model's own is added.
        progress: called with the fraction of the search done, 0 to 1.

    Raises:
        ConfigError: the beam size is 1, which leaves nothing to rank.
        DataError: no pair fits the model.
        OptionError: a penalty is out of range.
    """
    defaults = translator.defaults
    options = replace(defaults, beam_size=beam_size or defaults.beam_size, length_penalty=0.0)
    options = replace(options, n_best=options.beam_size)
    if options.beam_size == 1:
        raise ConfigError("A length penalty changes nothing with a beam of 1; give `--beam` 2 or more.")
    penalties = sorted({*penalties, defaults.length_penalty})
    for penalty in penalties:
        replace(options, length_penalty=penalty).verify()
    text = text.fitting(translator)
    bleu = bleu_metric(text.tokenize)
    outputs = _outputs(translator, text.sources, options, penalties, progress)
    results = [bleu.corpus_score(output, [text.references]) for output in outputs]
    counts = [sentence_counts(output, text.references, text.tokenize) for output in outputs]
    highest = max(range(len(penalties)), key=lambda index: results[index].score)
    candidates = [
        Candidate(
            length_penalty=penalty,
            bleu=result.score,
            deficit=difference_interval(counts[highest], mine),
            length_ratio=result.sys_len / max(1, result.ref_len),
        )
        for penalty, result, mine in zip(penalties, results, counts, strict=True)
    ]
    as_good = [candidate for candidate in candidates if candidate.deficit.low <= 0]
    return Tuning(
        beam_size=options.beam_size,
        candidates=tuple(candidates),
        chosen=min(as_good, key=lambda candidate: (abs(candidate.length_penalty - 1), -candidate.bleu)),
        sentences=len(text.sources),
        too_long=text.too_long,
        bleu_signature=str(bleu.get_signature()),
    )


def _outputs(
    translator: AnyTranslator,
    sources: Sequence[str],
    options: DecodeOptions,
    penalties: Sequence[float],
    progress: Callable[[float], None],
) -> list[list[str]]:
    """Translations with each penalty."""
    if options.early_stopping:
        translations = translate_all(translator, sources, options, progress=progress)
        return [[best_text(translation, penalty) for translation in translations] for penalty in penalties]
    # How long a search goes on depends on the penalty.
    outputs = []
    for number, penalty in enumerate(penalties):

        def partly(done: float, number: int = number) -> None:
            progress((number + done) / len(penalties))

        changed = replace(options, length_penalty=penalty, n_best=1)
        results = translate_all(translator, sources, changed, progress=partly)
        outputs.append([translation.text for translation in results])
    return outputs


def best_text(translation: Translation, length_penalty: float) -> str:
    """Return the text that a search with a length penalty would find, given the result of a search without one.

    Args:
        translation: all hypotheses that beam search finished, with unnormalized log-probabilities as scores.
        length_penalty: exponent of the length by which the scores are divided.
    """
    return max(
        translation.hypotheses,
        key=lambda best: normalized_score(best.score or 0.0, len(best.ids) + best.finished, length_penalty),
    ).text


@dataclass(frozen=True)
class ValidationText:
    """Sentences with references."""

    sources: list[str]
    """Source sentences."""
    references: list[str]
    """Reference translations, lowercased if the model only writes lower case."""
    tokenize: str
    """sacreBLEU's tokenizer for these sentences."""
    too_long: int = 0
    """Number of sentences left out because they have more tokens than the model accepts."""

    def fitting(self, translator: AnyTranslator) -> ValidationText:
        """Return the sentences that are not too long for a model.

        Raises:
            DataError: every sentence is too long.
        """
        excluded = translator.too_long(self.sources)
        kept = [index for index in range(len(self.sources)) if index not in excluded]
        if not kept:
            raise DataError("No validation pair is short enough for the model; give others.")
        return replace(
            self,
            sources=[self.sources[index] for index in kept],
            references=[self.references[index] for index in kept],
            too_long=len(excluded),
        )


def validation_text(path: Path, data_dir: Path | None = None, files: tuple[Path, Path] | None = None) -> ValidationText:
    """Load pairs of sentences from files, or the validation pairs of the corpus that a model was trained on.

    Args:
        path: the model's folder, a run or a bundle.
        data_dir: folder to look for the corpus files in.
        files: text, one sentence per line, and its reference translation, line by line.

    Raises:
        CheckpointError: the model's folder does not say what it was trained on.
        ConfigError: an imported model has no corpus.
        DataError: the files or the corpus cannot be read, or it is not the training corpus.
    """
    recipe, trained_on = _training(path)
    if files is not None:
        sources, references = aligned_lines(*files)
        lowercase = recipe.tokenizer.lowercase
        return ValidationText(sources, [line.lower() if lowercase else line for line in references], "13a")
    if not recipe.data.corpus and not recipe.data.train:
        raise ConfigError(
            f"`{path}` was imported and has no validation set; give text and its translation with --valid SOURCE "
            "REFERENCE."
        )
    corpus = load_with_copies(recipe, data_dir)
    trained_on = msgspec.structs.replace(trained_on, initial=None)
    if trained_on not in (TextOrigin(), _origin(msgspec.to_builtins(corpus.provenance))):
        raise DataError(
            f"`{path}` was trained on other text than these files contain, so their validation pairs may be among its "
            "training pairs; give the same files with --data."
        )
    references = [target.lower() if recipe.tokenizer.lowercase else target for _, target in corpus.valid]
    return ValidationText([source for source, _ in corpus.valid], references, corpus.provenance.tokenize)


def _training(path: Path) -> tuple[Recipe, TextOrigin]:
    """Return the recipe of a run or a bundle, and the origin of its text, as far as it is recorded."""
    if not is_bundle(path):
        from edgeformer.train.run import Run  # needs torch

        run = Run.open(path)
        return run.recipe, _origin(run.info.provenance)
    provenance = open_bundle(path).manifest.provenance
    if not provenance.recipe:
        raise CheckpointError(f"Bundle `{path}` does not say what it was trained on; tune its run instead.")
    return recipe_from_tree(provenance.recipe, str(path)), provenance.training.provenance


def _origin(record: dict[str, Any]) -> TextOrigin:
    return msgspec.convert(record, TextOrigin)
