"""The confidence below which translations of a bundle are doubtful, measured without references."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from edgeformer_runtime.text import TextTranslator
from edgeformer_runtime.translator import MIN_CONFIDENCE, Translator

MIN_TEXTS = 16
"""Fewer texts say too little."""
MAX_ERROR = 0.25
"""Share of texts on the wrong side of every threshold from which on confidence does not tell."""
UNUSUAL = 0.05
"""Share of the texts that is doubtful where unreadable text is not told apart."""


def min_confidence(translator: Translator, texts: Sequence[str]) -> float | None:
    """Measure where the confidence of text that a model is for, and that of unreadable text, are told apart best.

    What a small model makes of unreadable text is wrong, so no references are needed. Such text is made of the same
    texts by shuffling the letters of each word: it has their lengths, letters and punctuation, and no meaning. Large
    models copy it, with high confidence; the threshold of these is what nearly all of their own text has.

    Args:
        translator: the bundle.
        texts: sentences like those that the model was trained on.

    Returns:
        The threshold at which as many of the texts are below as unreadable ones are not. If that is more than
        :data:`MAX_ERROR` of them, the confidence that all but :data:`UNUSUAL` of the texts have, at least
        :data:`~edgeformer_runtime.translator.MIN_CONFIDENCE`. ``None`` if there are too few texts.
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
    least = confidence[best] if errors[best] <= MAX_ERROR else max(MIN_CONFIDENCE, np.quantile(own, UNUSUAL))
    return round(float(least), 3)


def _shuffled(text: str, order: Random) -> str:
    return " ".join("".join(order.sample(word, len(word))) for word in text.split())
