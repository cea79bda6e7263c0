"""Conversion of tokenizers to the files of bundles."""

from edgeformer.importers.tokenizers.ids import checked_ids, names_of, padded, read_ids, unused_names, with_added
from edgeformer.importers.tokenizers.sentencepiece import fairseq_ids, sentencepiece_tokenizer
from edgeformer.importers.tokenizers.text import (
    TextFiles,
    TokenizerPair,
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
    "names_of",
    "padded",
    "read_ids",
    "sentencepiece_tokenizer",
    "side_of",
    "start_token",
    "text_format",
    "text_tokenizer",
    "tokenizer_pair",
    "unused_names",
    "with_added",
]
