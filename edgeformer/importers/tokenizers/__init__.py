"""Conversion of tokenizers to the files of bundles."""

from edgeformer.importers.tokenizers.sentencepiece import fairseq_ids, sentencepiece_tokenizer
from edgeformer.importers.tokenizers.text import (
    TextFiles,
    TokenizerPair,
    checked_ids,
    read_ids,
    side_of,
    start_token,
    text_format,
    text_tokenizer,
    tokenizer_pair,
)

__all__ = [
    "TextFiles",
    "TokenizerPair",
    "checked_ids",
    "fairseq_ids",
    "read_ids",
    "sentencepiece_tokenizer",
    "side_of",
    "start_token",
    "text_format",
    "text_tokenizer",
    "tokenizer_pair",
]
