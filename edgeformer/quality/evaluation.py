"""Quality and speed of a bundle or a run on a test set."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgeformer.quality.scores import Scores, metrics, score
from edgeformer_runtime.errors import InputError
from edgeformer_runtime.search.loop import Counters
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.translation import Translation
from edgeformer_runtime.translator import AnyTranslator
from edgeformer_text import TextTranslator

CHUNK = 256
"""Number of texts translated between progress reports."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Scores, output and timings."""

    scores: Scores
    """Quality."""
    translations: list[str]
    """Output, in the order of the source."""
    beam_size: int
    """Hypotheses kept per sentence."""
    sentences_per_second: float
    """Throughput from text to text, tokenization included."""
    counters: Counters
    """Times and counts of the search."""
    truncated: int
    """Number of source texts that were truncated."""


def evaluate_texts(
    translator: AnyTranslator,
    texts: Sequence[str],
    references: Sequence[str],
    options: DecodeOptions | None = None,
    *,
    split: bool = False,
    tokenize: str = "13a",
    lowercase: bool = False,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Evaluation:
    """Translate a test set and score it.

    Args:
        translator: a bundle or a run.
        texts: sentences.
        references: their translations.
        options: decoding options; the translator's defaults if ``None``.
        split: translate whole texts, sentence by sentence; their work is not counted.
        tokenize: sacreBLEU's tokenizer.
        lowercase: ignore case.
        progress: called with the fraction done, 0 to 1.

    Raises:
        InputError: a text is not valid Unicode, or has more tokens than the model accepts and truncation is disabled.
        ConfigError: the tokenizer is unknown to sacreBLEU.
    """
    metrics(tokenize, lowercase=lowercase)
    whole = TextTranslator(translator) if split else None
    options = options or (whole.decoding() if whole else translator.defaults)
    counters, begin = Counters(), time.perf_counter()
    truncated = 0
    if whole:
        translations = []
        for start in range(0, len(texts), CHUNK):
            chunk = whole.translate(texts[start : start + CHUNK], options=options)
            translations += [translation.text for translation in chunk]
            progress(min(1.0, (start + CHUNK) / len(texts)))
    else:
        output = translate_all(translator, texts, options, counters, progress)
        translations = [translation.text for translation in output]
        truncated = sum(translation.source.truncated > 0 for translation in output)
    seconds = time.perf_counter() - begin
    return Evaluation(
        scores=score(translations, references, tokenize, lowercase=lowercase),
        translations=translations,
        beam_size=options.beam_size,
        sentences_per_second=len(texts) / seconds if seconds else 0.0,
        counters=counters,
        truncated=truncated,
    )


def translate_all(
    translator: AnyTranslator,
    texts: Sequence[str],
    options: DecodeOptions,
    counters: Counters | None = None,
    progress: Callable[[float], None] = lambda fraction: None,
) -> list[Translation]:
    """Translate texts in chunks, reporting progress after each.

    Args:
        translator: a bundle or a run.
        texts: sentences.
        options: decoding options.
        counters: receives times and counts.
        progress: called with the fraction done, 0 to 1.

    Returns:
        The translations, in the order of the texts.

    Raises:
        InputError: a text is not valid Unicode, or has more tokens than the model accepts and truncation is disabled.
    """
    # Sorted, so that batches, which are formed within a chunk, contain texts of similar length.
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    translations: dict[int, Translation] = {}
    for start in range(0, len(order), CHUNK):
        chunk = order[start : start + CHUNK]
        try:
            output = translator.translate([texts[index] for index in chunk], options, counters=counters)
        except InputError as error:
            raise error.at(chunk[error.index]) from None
        translations.update(zip(chunk, output, strict=True))
        progress(min(1.0, (start + CHUNK) / len(order)))
    return [translations[index] for index in range(len(texts))]
