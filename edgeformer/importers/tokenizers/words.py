"""Tokenizers of models whose text is already segmented: tokens are separated by spaces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tokenizers import Tokenizer, models, pre_tokenizers


def word_tokenizer(ids: Mapping[str, int], *, special_tokens: Iterable[str], unk_token: str) -> str:
    """Return the content of a ``tokenizer.json`` that splits text at spaces.

    Args:
        ids: the vocabulary.
        special_tokens: entries that no text is encoded to, and that are dropped when decoding.
        unk_token: the unknown token.
    """
    tokenizer = Tokenizer(models.WordLevel(dict(ids), unk_token=unk_token))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([*special_tokens, unk_token])
    return tokenizer.to_str()
