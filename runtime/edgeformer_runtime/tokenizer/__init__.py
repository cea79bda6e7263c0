"""Conversion between text and token ids, defined by a ``tokenizer.json``.

Most files are run by the ``tokenizers`` library. Those made from SentencePiece models are segmented exactly as
SentencePiece does; see :mod:`edgeformer_runtime.tokenizer.sentencepiece`.
"""

from edgeformer_runtime.tokenizer.tokenizer import (
    BOS_TOKEN,
    EOS_TOKEN,
    PAD_TOKEN,
    UNK_TOKEN,
    Tokenizer,
    special_tokens,
)

__all__ = ["BOS_TOKEN", "EOS_TOKEN", "PAD_TOKEN", "UNK_TOKEN", "Tokenizer", "special_tokens"]
