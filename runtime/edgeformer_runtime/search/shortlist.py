"""A bundle's shortlist: the target tokens that a sentence may use, so that a step need not score the whole vocabulary.

``shortlist.bin`` is little-endian. Its header is four u32: the number of source tokens, of target tokens, of those that
every sentence may use, and of list entries. Then follow the end of each source token's list, as u32; all target tokens
by falling frequency; and the lists, best first. Target tokens are u16, or u32 if there are more than 65,536 of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.contract import SHORTLIST_FILE
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.limits import MAX_SHORTLIST_BYTES

HEADER = 4
"""Numbers in the header."""
MULTIPLE = 128
"""The number of tokens of a sentence is a multiple of this, so that kernels compute whole vectors."""
_NUMBER = np.dtype("<u4")


@dataclass(frozen=True)
class Shortlist:
    """Lists of target tokens by source token."""

    always: int
    """Number of :attr:`frequent` tokens that every sentence may use."""
    ends: NDArray[np.int64]
    """Where each source token's list ends in :attr:`tokens`, ``(V,)``, V being that of the source."""
    frequent: NDArray[np.int64]
    """All target tokens by falling frequency, ``(V,)``."""
    tokens: NDArray[np.int64]
    """Target tokens of all lists, best first within a list."""

    def usable(self, source: Sequence[int]) -> NDArray[np.bool_]:
        """Return whether a sentence may use each target token, ``(V,)``.

        Args:
            source: token ids of the sentence.
        """
        usable = self._always_usable.copy()
        for token in set(source):
            usable[self.tokens[self.ends[token - 1] if token else 0 : self.ends[token]]] = True
        return usable

    @cached_property
    def _always_usable(self) -> NDArray[np.bool_]:
        usable = np.zeros(len(self.frequent), np.bool_)
        usable[self.frequent[: self.always]] = True
        return usable

    def listed_together(self, sources: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the target tokens that any sentence of a batch may use.

        Args:
            sources: token ids of each sentence.

        Returns:
            The tokens in ascending order, ``(C,)``, C being a multiple of :data:`MULTIPLE` unless that is more than the
            vocabulary has; and whether each sentence may use each of them, ``(N, C)``.
        """
        usable = np.stack([self.usable(source) for source in sources])
        chosen: NDArray[np.bool_] = np.logical_or.reduce(usable, axis=0)
        count = int(np.count_nonzero(chosen))
        surplus = -count % MULTIPLE
        others = self.frequent[: count + surplus]  # at least `surplus` of them are not chosen
        chosen[others[~chosen[others]][:surplus]] = True
        together = np.flatnonzero(chosen)
        return together, usable[:, together]

    def to_bytes(self) -> bytes:
        """Return the content of ``shortlist.bin``."""
        header = np.array([len(self.ends), len(self.frequent), self.always, len(self.tokens)])
        numbers = np.concatenate((header, self.ends)).astype(_NUMBER)
        return (
            numbers.tobytes()
            + np.concatenate((self.frequent, self.tokens)).astype(_id_type(len(self.frequent))).tobytes()
        )


def read_shortlist(data: bytes, source_vocab_size: int, target_vocab_size: int) -> Shortlist:
    """Read the content of ``shortlist.bin``.

    Args:
        data: the content.
        source_vocab_size: entries of the source vocabulary.
        target_vocab_size: entries of the target vocabulary.

    Raises:
        BundleError: it is damaged, or is for other vocabularies.
    """
    begin = _NUMBER.itemsize * HEADER
    sources, targets, always, entries = np.frombuffer(data.ljust(begin, b"\0"), _NUMBER, HEADER).tolist()
    if (sources, targets) != (source_vocab_size, target_vocab_size):
        raise BundleError("The bundle's shortlist is damaged or for other vocabularies; export the bundle again.")
    kind = _id_type(targets)
    middle = begin + _NUMBER.itemsize * sources
    if len(data) != middle + kind.itemsize * (targets + entries) or always > targets:
        raise BundleError("The bundle's shortlist is damaged: its size is wrong; copy or export the bundle again.")
    ends = np.frombuffer(data, _NUMBER, sources, begin).astype(np.int64)
    frequent, tokens = np.split(np.frombuffer(data, kind, offset=middle).astype(np.int64), [targets])
    if (
        ends[-1] != entries
        or np.any(np.diff(ends) < 0)
        or not np.array_equal(np.sort(frequent), np.arange(targets))
        or np.any(tokens >= targets)
    ):
        raise BundleError("The bundle's shortlist is damaged: its lists are wrong; copy or export the bundle again.")
    return Shortlist(always, ends, frequent, tokens)


def bundle_shortlist(bundle: Bundle) -> Shortlist:
    """Read a bundle's shortlist.

    Raises:
        BundleError: the bundle has none, or it is damaged.
    """
    data = bundle.read(SHORTLIST_FILE, MAX_SHORTLIST_BYTES)
    return read_shortlist(data, bundle.manifest.source_vocab_size, bundle.manifest.target_vocab_size)


def _id_type(vocab_size: int) -> np.dtype[np.unsignedinteger]:
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")
