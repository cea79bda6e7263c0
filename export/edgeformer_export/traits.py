"""Measures the confidence below which translations are doubtful, and whether a model needs final punctuation.

Models whose training text always ends with punctuation read a title or a label as the beginning of a sentence. Without
references, of which imported models have none, what tells is how sure a model is of the same content: the mean
log-probability of the tokens before final punctuation, of translations with and without a period after the source. The
mark itself is left out, since it is more probable where the source has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from random import Random
from statistics import fmean, stdev

import msgspec
import numpy as np

from edgeformer.run.info import Validation
from edgeformer_export.sample import spread
from edgeformer_runtime.translation import TextHypothesis
from edgeformer_runtime.translator import Translator
from edgeformer_text import TextTranslator
from edgeformer_text.surface import lacks_period, period, without_final_punctuation
from edgeformer_text.text_translator import LONGEST_RATIO, LONGEST_REST, LOOP_REPEATS, MIN_CONFIDENCE

SENTENCES = 96
"""Sentences that are translated, greedily, without and with a period."""
ENOUGH = 32
"""Sentences with a period that suffice."""
MIN_GAIN = 0.01
"""Mean increase of the log-probability of a token from which on a model needs a period, if it exceeds its standard
error too. Two models that gained 4 BLEU had 0.02 and 0.05, and one that gained nothing 0.001, on 384 sentences."""


class PeriodReport(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a period does for sentences without final punctuation."""

    sentences: int
    """Number of sentences that were translated without and with a period."""
    gain: float
    """Mean increase of the mean log-probability of the tokens before final punctuation."""
    error: float
    """Standard error of that mean."""
    is_needed: bool
    """Whether the increase is large enough that whole texts get a period."""


def measure_period(translator: Translator, texts: Sequence[str]) -> PeriodReport | None:
    """Translate a sample without and with a period after each sentence.

    Args:
        translator: the bundle.
        texts: sentences; of those with a period, it is removed. If there are not enough, the others are translated.

    Returns:
        The difference; ``None`` with fewer than two sentences.
    """
    mark = period(translator.languages[0])
    statements = [without_final_punctuation(text) for text in texts if text.endswith(mark)]
    others = texts if len(statements) < ENOUGH else []
    bare = [text for text in dict.fromkeys([*statements, *others]) if lacks_period(text)]
    too_long = translator.too_long([text + mark for text in bare])
    bare = spread([text for index, text in enumerate(bare) if index not in too_long], SENTENCES)
    if len(bare) < 2:
        return None
    marked = [text + mark for text in bare]
    options = translator.options(
        beam_size=1,
        return_token_scores=True,
        max_len_a=LONGEST_RATIO,
        max_len_b=LONGEST_REST,
        max_ngram_repeats=LOOP_REPEATS,
    )
    without, with_period = (translator.translate(texts, options) for texts in (bare, marked))
    gains = [
        _certainty(translator, other.best) - _certainty(translator, own.best)
        for own, other in zip(without, with_period, strict=True)
    ]
    mean, error = fmean(gains), stdev(gains) / len(gains) ** 0.5
    return PeriodReport(sentences=len(gains), gain=mean, error=error, is_needed=mean > max(error, MIN_GAIN))


def _certainty(translator: Translator, hypothesis: TextHypothesis) -> float:
    """The mean log-probability of the tokens before final punctuation."""
    length = len(without_final_punctuation(hypothesis.text))
    scores, tokenizer = hypothesis.token_scores or (), translator.target_tokenizer
    count = len(hypothesis.ids)
    while count > 1 and len(tokenizer.decode(hypothesis.ids[: count - 1]).rstrip()) >= length:
        count -= 1
    return fmean(scores[:count]) if scores and count else 0.0


MIN_TEXTS = 16
"""Fewer texts say too little."""
MAX_ERROR = 0.25
"""Share of texts on the wrong side of every threshold from which on confidence does not tell."""
UNUSUAL = 0.05
"""Share of the texts that may be doubtful."""
MAX_CONFIDENCE = 0.9
"""Mean probability of its tokens from which on a translation is not doubtful, however sure a model is of the others."""
MIN_BLEU, MAX_PERPLEXITY = 10.0, 10.0
"""BLEU below which hardly any translation conveys its source, if the perplexity is also above its limit: BLEU of words
says nothing about languages without spaces between them."""


def failed_validation(final: Validation | None) -> bool:
    """Return whether a model translated the validation text of its own training badly."""
    return final is not None and final.bleu < MIN_BLEU and final.perplexity > MAX_PERPLEXITY


def min_confidence(translator: Translator, texts: Sequence[str]) -> float | None:
    """Measure where the confidence of text that a model is for, and that of unreadable text, are told apart best.

    What a small model makes of unreadable text is wrong, so no references are needed. Such text is made of the same
    texts by shuffling the letters of each word: it has their lengths, letters and punctuation, and no meaning. Large
    models copy it, with high confidence; the threshold of these is what nearly all of their own text has.

    Args:
        translator: the bundle.
        texts: sentences like those that the model was trained on.

    Returns:
        The confidence that all but :data:`UNUSUAL` of the texts have, from
        :data:`~edgeformer_text.text_translator.MIN_CONFIDENCE` to :data:`MAX_CONFIDENCE`; or less, if as many
        of the texts are below as unreadable ones are not, and these are at most :data:`MAX_ERROR` of them. ``None`` if
        there are too few texts.
    """
    order = Random(0)
    unreadable = [_shuffled(text, order) for text in texts]
    too_long = translator.too_long(unreadable) | translator.too_long(texts)
    kept = [index for index in range(len(texts)) if index not in too_long]
    if len(kept) < MIN_TEXTS:
        return None
    decoding = TextTranslator(translator).decoding(beam_size=1)
    translations = translator.translate([side[index] for side in (texts, unreadable) for index in kept], decoding)
    confidence = np.array([translation.best.confidence for translation in translations], np.float64)
    own, other = confidence[: len(kept)], confidence[len(kept) :]
    errors = [max(np.mean(own < value), np.mean(other >= value)) for value in confidence]
    best = int(np.argmin(errors))
    least = min(MAX_CONFIDENCE, max(MIN_CONFIDENCE, np.quantile(own, UNUSUAL)))
    least = min(confidence[best], least) if errors[best] <= MAX_ERROR else least
    return floor(1000 * least) / 1000  # not more, which many texts may be just below


def _shuffled(text: str, order: Random) -> str:
    return " ".join("".join(order.sample(word, len(word))) for word in text.split())
