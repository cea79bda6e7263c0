"""Tracks which cache rows hold the past of each beam, so that beams are reordered without moving in-place caches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.decoding.session import IntArray


class CacheIndirection:
    """For each beam and position, the beam of the same sentence whose cache row holds the entry.

    Example with two beams: the second continued the first after position 1, and each has written its own row since::

        position   0  1  2  3
        beam 0     0  0  0  0        all entries are read from row 0
        beam 1     0  0  1  1        positions 0 and 1 are read from row 0, the rest from row 1

    Args:
        sentences: N.
        beams: K.
        capacity: number of positions that fit in the caches.
    """

    def __init__(self, sentences: int, beams: int, capacity: int) -> None:
        self._sentences, self._beams = sentences, beams
        self.beam_width = np.array([beams], np.int32)
        """K, ``(1,)``, int32."""
        self.table = self._own_rows(capacity)
        """``(N, K, T)``, int32."""

    def select(self, rows: IntArray, sentences: IntArray | None, length: int) -> None:
        """Point every beam to the rows that hold its past; K must not change.

        Args:
            rows: for each beam, the row that it continues, ``(N' * K,)``.
            sentences: for each sentence to keep, its current index, ``(N',)``; ``None`` keeps all.
            length: number of positions written so far.
        """
        parent = rows % self._beams  # (N' * K,): beam to continue
        if sentences is not None:
            self._sentences = len(sentences)
            self.table = np.ascontiguousarray(self.table[sentences])
            rows = parent.reshape(-1, self._beams) + np.arange(0, len(rows), self._beams)[:, None]
            rows = rows.ravel()
        if self._beams > 1 and length:
            last = length - 1
            table = self.table.reshape(len(rows), -1)  # a view
            table[:, :last] = table.take(rows, axis=0)[:, :last]
            table[:, last] = parent  # each row wrote its own last entry, so it is in the parent's row

    def widen(self, capacity: int) -> None:
        """Enlarge the table to a larger cache capacity."""
        wider = self._own_rows(capacity)
        wider[:, :, : self.table.shape[2]] = self.table
        self.table = wider

    def _own_rows(self, capacity: int) -> NDArray[np.int32]:
        """A table in which every beam reads its past from its own row."""
        table = np.empty((self._sentences, self._beams, capacity), np.int32)
        table[:] = np.arange(self._beams)[:, None]
        return table
