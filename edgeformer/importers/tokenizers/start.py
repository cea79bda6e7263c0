"""A name for what a decoder starts from, in models that have a zero vector instead of a token."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain, count


def start_token(taken: Collection[str]) -> str:
    """Return ``<s>``, or another name if a vocabulary has an entry ``<s>``, as those of ``spm_train`` do."""
    names = chain(("<s>", "<start>"), (f"<start {number}>" for number in count(2)))
    return next(name for name in names if name not in taken)
