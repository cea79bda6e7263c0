"""Conversion of tokenizers to the files of bundles."""

from edgeformer.importers.tokenizers.sentencepiece import fairseq_ids, sentencepiece_tokenizer
from edgeformer.importers.tokenizers.text import (
    TextFiles,
    TokenizerPair,
    side_of,
    start_token,
    text_format,
    text_tokenizer,
)

__all__ = [
    "TextFiles",
    "TokenizerPair",
    "fairseq_ids",
    "sentencepiece_tokenizer",
    "side_of",
    "start_token",
    "text_format",
    "text_tokenizer",
]
