"""Segmentation by the BPE models of SentencePiece.

The ``tokenizers`` library cannot be used: it ranks pairs, where SentencePiece ranks the pieces that they make, so that
overlapping pairs of the same piece (``aa`` in ``aaa``) are merged in another order; and it cannot split unused pieces.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping


def merge(symbols: Iterable[str], ranks: Mapping[str, int], unused: Collection[str] = ()) -> list[str]:
    """Merge adjacent symbols until no merge is a piece: the best piece first, and the leftmost of equal ones.

    Args:
        symbols: characters.
        ranks: pieces and their ranks, 0 for the best.
        unused: pieces that are split again afterwards, the way they were merged.
    """
    parts = list(symbols)
    following, preceding = list(range(1, len(parts) + 1)), list(range(-1, len(parts) - 1))
    following[-1:] = [-1] if parts else []
    queue: list[tuple[int, int, int, int]] = []  # rank, left and right part, length of the piece
    origins: dict[str, tuple[str, str]] = {}

    def consider(left: int, right: int) -> None:
        if left < 0 or right < 0:
            return
        piece = parts[left] + parts[right]
        rank = ranks.get(piece)
        if rank is not None:
            heapq.heappush(queue, (rank, left, right, len(piece)))
            if piece in unused:
                origins[piece] = parts[left], parts[right]

    for index in range(len(parts) - 1):
        consider(index, index + 1)
    while queue:
        _, left, right, length = heapq.heappop(queue)
        if not parts[left] or not parts[right] or len(parts[left]) + len(parts[right]) != length:
            continue  # either part has been merged since
        parts[left], parts[right] = parts[left] + parts[right], ""
        following[left] = following[right]
        if following[left] >= 0:
            preceding[following[left]] = left
        consider(preceding[left], left)
        consider(left, following[left])
    merged = [part for part in parts if part]
    return [piece for part in merged for piece in _split(part, origins)] if origins else merged


def _split(piece: str, origins: Mapping[str, tuple[str, str]]) -> list[str]:
    """Undo the merges of an unused piece, and of its unused parts."""
    pieces, pending = [], [piece]
    while pending:
        piece = pending.pop()
        if piece in origins:
            pending.extend(reversed(origins[piece]))
        else:
            pieces.append(piece)
    return pieces
