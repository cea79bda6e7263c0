"""What attention says about imported models."""

from __future__ import annotations

from collections.abc import Sequence

from edgeformer_runtime.translator import AnyTranslator


def check_alignments(translator: AnyTranslator, texts: Sequence[str]) -> None:
    """Check that every token of a translation is aligned with the token of the source's text that it attends to most,
    and that text is what special tokens leave."""
    tokenizer = translator.source_tokenizer
    around = tokenizer.text.source_prefix, tokenizer.text.source_suffix
    for translation in translator.translate(texts, max_length=20, return_attention=True):
        attention, ids = translation.best.attention, translation.source.ids
        assert attention is not None
        text = range(len(around[0]), len(ids) - len(around[1]))
        assert [ids[index] for index in text] == tokenizer.encode(translation.source.text)
        assert len(attention.alignment) == len(translation.best.ids)
        for position, target in attention.alignment:
            weights = attention.weights[target]
            assert position in text
            assert weights[position] == max(weights[index] for index in text)
