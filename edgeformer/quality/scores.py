"""BLEU and chrF by sacreBLEU (Post 2018), and exact match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from edgeformer.errors import ConfigError

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF


class Scores(msgspec.Struct, kw_only=True, frozen=True):
    """Quality of a set of translations."""

    sentences: int
    """Number of sentences scored."""
    bleu: float
    """Corpus BLEU, 0 … 100."""
    bleu_signature: str
    """sacreBLEU's signature of the BLEU score."""
    chrf: float
    """chrF2, 0 … 100."""
    chrf_signature: str
    """sacreBLEU's signature of the chrF score."""
    exact_match: float
    """Share of translations that equal their reference, 0 … 1."""


def metrics(tokenize: str, *, lowercase: bool = False) -> tuple[BLEU, CHRF]:
    """Set up sacreBLEU's metrics. Call it before long work, to reject an unknown tokenizer early.

    Raises:
        ConfigError: the tokenizer is unknown or needs a package that is not installed.
    """
    from sacrebleu.metrics.chrf import CHRF

    return bleu_metric(tokenize, lowercase=lowercase), CHRF(lowercase=lowercase)


def bleu_metric(tokenize: str, **options: Any) -> BLEU:
    """Set up sacreBLEU's BLEU.

    Raises:
        ConfigError: as for :func:`metrics`.
    """
    from sacrebleu.metrics.bleu import BLEU

    if tokenize not in BLEU.TOKENIZERS:
        raise ConfigError(f"`tokenize` must be one of {', '.join(BLEU.TOKENIZERS)}, got `{tokenize}`.")
    try:
        # `force` silences the warning about text that looks tokenized; the caller has chosen `tokenize` deliberately.
        return BLEU(tokenize=tokenize, force=True, **options)
    except (ImportError, RuntimeError) as error:
        raise ConfigError(
            f"sacreBLEU's tokenizer `{tokenize}` cannot be used: {' '.join(str(error).split())}"
        ) from None


def score(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a", *, lowercase: bool = False
) -> Scores:
    """Score translations against a single reference each.

    Args:
        hypotheses: detokenized translations.
        references: one reference for each hypothesis.
        tokenize: sacreBLEU's tokenizer; ``none`` for text that is already tokenized.
        lowercase: ignore case.

    Raises:
        ConfigError: the tokenizer cannot be used, or there are no hypotheses.
    """
    bleu, chrf = metrics(tokenize, lowercase=lowercase)
    if not hypotheses:
        raise ConfigError("There is no sentence to score; the source file is empty.")
    bleu_score = bleu.corpus_score(list(hypotheses), [list(references)])
    chrf_score = chrf.corpus_score(list(hypotheses), [list(references)])
    compared = str.lower if lowercase else str
    matches = sum(
        compared(hypothesis) == compared(reference)
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    )
    return Scores(
        sentences=len(hypotheses),
        bleu=float(bleu_score.score),
        bleu_signature=str(bleu.get_signature()),
        chrf=float(chrf_score.score),
        chrf_signature=str(chrf.get_signature()),
        exact_match=matches / len(hypotheses),
    )
