"""The ``tokenizer.json`` of a model whose text is split as by Moses' scripts, and then by BPE codes of subword-nmt.

It is a format of this runtime, distinguished from other tokenizer files by the field ``kind``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from edgeformer_runtime.limits import MAX_ADDED_TOKENS, MAX_PIECE, MAX_VOCAB_SIZE, Affix, Piece

KIND = "moses"

Symbol = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PIECE, pattern=r"\A[^ \r\n]+\Z")]
"""Characters, of which codes have two to a line."""


class MosesFile(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag=KIND):
    """Content of the file."""

    version: Literal["1.0"] = "1.0"
    language: Affix
    """Code of the language, whose rules are followed; those of English, if Moses has none for it."""
    rules: Literal["sacremoses", "perl"] = "sacremoses"
    """Whose rules: those of sacremoses, as Argos Translate follows them, or those of Moses' scripts as OPUS-MT calls
    them, which also replace punctuation and control characters of other scripts, and split words at hyphens."""
    vocabulary: Annotated[list[Piece], msgspec.Meta(max_length=MAX_VOCAB_SIZE)]
    """Entries by id. Those with ``@@`` at the end are continued by the next token."""
    unk_token: Piece
    special_tokens: Annotated[list[Piece], msgspec.Meta(max_length=MAX_ADDED_TOKENS)]
    """Entries that no text is encoded to, and that are dropped when decoding."""
    codes_version: Literal["0.1", "0.2"]
    """Version of the codes, which says how the end of a word is marked."""
    merges: Annotated[list[tuple[Symbol, Symbol]], msgspec.Meta(min_length=1)]
    """The codes: pairs to merge, the first of them first."""


class _Head(msgspec.Struct):
    kind: Any = None


def is_moses(data: bytes | str) -> bool:
    """Return whether a tokenizer file is of this kind.

    Raises:
        msgspec.DecodeError: the file is not a JSON object.
    """
    return bool(msgspec.json.decode(data, type=_Head).kind == KIND)
