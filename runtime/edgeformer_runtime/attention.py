"""Attention weights of finished translations.

Weights are computed after decoding, by feeding a translation through the attention graph. Decoding is therefore no
slower when they are requested, and they are available for any pair of sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgeformer_runtime.search.forced_steps import check_size, forced_attention, forced_batch
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.requests import longest_target, single_row_batches
from edgeformer_runtime.search.session import FloatArray, StepSession
from edgeformer_runtime.tokenizers import Tokenizer
from edgeformer_runtime.translation import Source, TextHypothesis, Translation

MAX_FORCED_TOKENS = 512
"""Largest batch in tokens. All rows take as many steps as the longest target of their batch, so that small batches of
similar lengths are faster."""
Tokenizers = tuple[Tokenizer, Tokenizer]
"""Those of the source and of the target side."""


@dataclass(frozen=True)
class Attention:
    """The weight of every source token for every target token."""

    source_tokens: tuple[str, ...]
    """The S source tokens, special tokens included."""
    target_tokens: tuple[str, ...]
    """The T tokens of the translation, including the end token if there is one."""
    weights: FloatArray
    """Attention weights, ``(T, S)``, float32; each row sums to 1."""
    finished: bool
    """Whether the last target token is the end token."""
    text_tokens: range
    """Positions of the source tokens that are part of the text; the others, such as end tokens and language codes, are
    what the model expects around it."""

    @property
    def alignment(self) -> tuple[tuple[int, int], ...]:
        """The source token with the largest weight for each target token, as zero-based pairs ``(source, target)``;
        tokens that are not part of the text are excluded on both sides."""
        if not self.text_tokens:
            return ()
        best = self.text_weights.argmax(1) + self.text_tokens.start
        return tuple((int(source), target) for target, source in enumerate(best))

    @property
    def text_weights(self) -> FloatArray:
        """Weights of the tokens of the source text for those of the target text, end token excluded."""
        rows = len(self.target_tokens) - self.finished
        return self.weights[:rows, self.text_tokens.start : self.text_tokens.stop]


def attention_weights(
    session: StepSession,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    max_batch_tokens: int = 4096,
) -> list[FloatArray]:
    """Compute attention weights for the steps that produce given targets.

    Args:
        session: the model.
        sources: token ids of each sentence, end token included.
        targets: token ids of each translation, without what every target begins with; include the end token to get
            its weights.
        max_batch_tokens: maximum batch size in tokens: sentences times the longest source.

    Returns:
        Weights of each pair, ``(T, S)``, float32; row ``t`` belongs to the step that produces target token ``t``.

    Raises:
        BundleError: the model has no attention weights.
        ValueError: a target has more tokens than the model can produce.
    """
    session = session.open_attention()
    if (longest := max(map(len, targets), default=0)) > longest_target(session):
        raise ValueError(f"a target has {longest} tokens, more than the model's {longest_target(session)}")
    given = len(session.special.prefix)
    results: list[FloatArray] = [np.empty((0, 0), np.float32)] * len(sources)
    lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    for indices in single_row_batches(session, lengths, min(max_batch_tokens, MAX_FORCED_TOKENS)):
        # The step that produces a token is fed the preceding token, so the last token is never fed.
        batch = forced_batch([(sources[index], targets[index][:-1]) for index in indices], session.special)
        check_size(session, batch)
        weights = forced_attention(session.start(batch.source, batch.source_length), batch.target)  # (N, T, S)
        for row, index in enumerate(indices):
            results[index] = weights[row, given : given + len(targets[index]), : batch.source_length[row]]
    return results


def attention_of(
    session: StepSession, tokenizers: Tokenizers, translations: Sequence[Translation], max_batch_tokens: int
) -> list[Attention]:
    """Compute attention weights for the best hypothesis of each translation.

    Args:
        session: the model.
        tokenizers: those of the source and of the target side.
        translations: results of :meth:`~edgeformer_runtime.translator.Translator.translate`.
        max_batch_tokens: maximum batch size, in source tokens.

    Returns:
        The attention of each translation; empty for a blank text.

    Raises:
        BundleError: the model has no attention weights, or the bundle has changed since it was opened.
    """
    source_tokenizer, target_tokenizer = tokenizers
    eos = session.special.eos
    blank = Attention((), (), np.empty((0, 0), np.float32), finished=False, text_tokens=range(0))
    results = [blank] * len(translations)
    read = [index for index, translation in enumerate(translations) if translation.source.ids]
    sources = [translations[index].source.ids for index in read]
    targets = [(*best.ids, *[eos] * best.finished) for best in (translations[index].best for index in read)]
    weights = attention_weights(session, sources, targets, max_batch_tokens)
    for index, source, target, matrix in zip(read, sources, targets, weights, strict=True):
        results[index] = Attention(
            tuple(source_tokenizer.tokens(source)),
            tuple(target_tokenizer.tokens(target)),
            matrix,
            translations[index].best.finished,
            range(source_tokenizer.prefix_length, len(source) - source_tokenizer.suffix_length),
        )
    return results


def attended(
    session: StepSession, tokenizers: Tokenizers, translations: Sequence[Translation], options: DecodeOptions
) -> list[Translation]:
    """Add attention weights to all hypotheses of the translations that need them, as options or sources say, and
    replace unknown tokens if the options say so."""
    is_wanted = [options.return_attention or translation.source.needs_attention for translation in translations]
    apart = [
        Translation(translation.source, (hypothesis,))
        for translation, wanted in zip(translations, is_wanted, strict=True)
        for hypothesis in translation.hypotheses
        if wanted or options.replace_unknowns
    ]
    attention = iter(attention_of(session, tokenizers, apart, options.max_batch_tokens))
    results = []
    for translation, wanted in zip(translations, is_wanted, strict=True):
        hypotheses = []
        for hypothesis in translation.hypotheses if wanted or options.replace_unknowns else ():
            weights = next(attention)
            if options.replace_unknowns:
                text = _without_unknowns(tokenizers, translation.source, hypothesis, weights)
                hypothesis = replace(hypothesis, text=text)
            hypotheses.append(replace(hypothesis, attention=weights) if wanted else hypothesis)
        results.append(replace(translation, hypotheses=tuple(hypotheses)) if hypotheses else translation)
    return results


def _without_unknowns(tokenizers: Tokenizers, source: Source, hypothesis: TextHypothesis, attention: Attention) -> str:
    """The text of a hypothesis, with source text in place of unknown tokens."""
    source_tokenizer, target_tokenizer = tokenizers
    unknown = target_tokenizer.unk_id
    if unknown not in hypothesis.ids:
        return hypothesis.text
    pieces = source_tokenizer.pieces(source.text)
    aligned = {
        target: pieces[position - attention.text_tokens.start]
        for position, target in attention.alignment
        if hypothesis.ids[target] == unknown
    }
    return target_tokenizer.decode_with(hypothesis.ids, aligned) if aligned else hypothesis.text
