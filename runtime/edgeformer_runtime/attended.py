"""Translations with their attention weights, and with source text in place of unknown tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgeformer_runtime.attention import Attention, attention_weights
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.decoding.session import AttentiveSession
from edgeformer_runtime.source import Source
from edgeformer_runtime.tokenizer import Tokenizer
from edgeformer_runtime.translation import TextHypothesis, Translation

Tokenizers = tuple[Tokenizer, Tokenizer]
"""Those of the source and of the target side."""


def attention_of(
    session: AttentiveSession, tokenizers: Tokenizers, translations: Sequence[Translation], max_batch_tokens: int
) -> list[Attention]:
    """Compute attention weights for the best hypothesis of each translation; see
    :meth:`~edgeformer_runtime.Translator.attention`."""
    source_tokenizer, target_tokenizer = tokenizers
    eos = session.special.eos
    results = [Attention((), (), np.empty((0, 0), np.float32), finished=False)] * len(translations)
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
        )
    return results


def attended(
    session: AttentiveSession, tokenizers: Tokenizers, translations: Sequence[Translation], options: DecodeOptions
) -> list[Translation]:
    """Add attention weights to all hypotheses, and replace their unknown tokens, as far as the options say so."""
    apart = [
        Translation(translation.source, (hypothesis,))
        for translation in translations
        for hypothesis in translation.hypotheses
    ]
    attention = iter(attention_of(session, tokenizers, apart, options.max_batch_tokens))
    results = []
    for translation in translations:
        hypotheses = []
        for hypothesis in translation.hypotheses:
            weights = next(attention)
            if options.replace_unknowns:
                text = _without_unknowns(tokenizers, translation.source, hypothesis, weights)
                hypothesis = replace(hypothesis, text=text)
            hypotheses.append(replace(hypothesis, attention=weights) if options.return_attention else hypothesis)
        results.append(replace(translation, hypotheses=tuple(hypotheses)))
    return results


def _without_unknowns(tokenizers: Tokenizers, source: Source, hypothesis: TextHypothesis, attention: Attention) -> str:
    """The text of a hypothesis, with source text in place of unknown tokens."""
    source_tokenizer, target_tokenizer = tokenizers
    unknown = target_tokenizer.unk_id
    if unknown not in hypothesis.ids:
        return hypothesis.text
    pieces = source_tokenizer.pieces(source.text)
    aligned = {
        target: place - source_tokenizer.prefix_length
        for place, target in attention.alignment
        if hypothesis.ids[target] == unknown
    }
    aligned = {target: place for target, place in aligned.items() if 0 <= place < len(pieces)}
    if not aligned:
        return hypothesis.text
    return target_tokenizer.decode_with(hypothesis.ids, {target: pieces[place] for target, place in aligned.items()})
