"""Measures whether a model needs final punctuation.

Models whose training text always ends with punctuation read a title or a label as the beginning of a sentence. Without
references, of which imported models have none, what tells is how sure a model is of the same content: the mean
log-probability of the tokens before final punctuation, of translations with and without a period after the source. The
mark itself is left out, since it is more probable where the source has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

from edgeformer_export.report import PeriodReport
from edgeformer_export.sample import spread
from edgeformer_runtime.text.surface import lacks_period, period, without_final_punctuation
from edgeformer_runtime.text.text_translator import LONGEST_RATIO, LONGEST_REST, LOOP_REPEATS
from edgeformer_runtime.translation import TextHypothesis
from edgeformer_runtime.translator import Translator

SENTENCES = 96
"""Sentences that are translated, greedily, without and with a period."""
ENOUGH = 32
"""Sentences with a period that suffice."""
MIN_GAIN = 0.01
"""Mean increase of the log-probability of a token from which on a model needs a period, if it exceeds its standard
error too. Two models that gained 4 BLEU had 0.02 and 0.05, and one that gained nothing 0.001, on 384 sentences."""


def measure_period(translator: Translator, texts: Sequence[str], count: int = SENTENCES) -> PeriodReport | None:
    """Translate a sample without and with a period after each sentence.

    Args:
        translator: the bundle.
        texts: sentences; of those with a period, it is removed. If there are not enough, the others are translated.
        count: maximum number of sentences that are translated.

    Returns:
        The difference; ``None`` with fewer than two sentences.
    """
    mark = period(translator.languages[0])
    statements = [without_final_punctuation(text) for text in texts if text.endswith(mark)]
    others = texts if len(statements) < ENOUGH else []
    bare = [text for text in dict.fromkeys([*statements, *others]) if lacks_period(text)]
    too_long = translator.too_long([text + mark for text in bare])
    bare = spread([text for index, text in enumerate(bare) if index not in too_long], count)
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
