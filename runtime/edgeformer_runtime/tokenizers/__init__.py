"""Conversion between text and token ids, defined by a ``tokenizer.json``."""

from edgeformer_runtime.tokenizers.tokenizer import (
    BOS_TOKEN,
    EOS_TOKEN,
    PAD_TOKEN,
    UNK_TOKEN,
    Tokenizer,
    check_unicode,
    special_tokens,
)

__all__ = ["BOS_TOKEN", "EOS_TOKEN", "PAD_TOKEN", "UNK_TOKEN", "Tokenizer", "check_unicode", "special_tokens"]
