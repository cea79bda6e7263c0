"""What the export of a bundle did and measured, as its manifest records it; for people, not for the runtime."""

from __future__ import annotations

from typing import Literal

import msgspec


class PassRecord(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Effect of one pass on one graph; earlier versions recorded more, which is ignored."""

    name: str
    """Class name of the pass."""
    nodes_before: int
    """Number of nodes in the graph before the pass."""
    nodes_after: int
    """Number of nodes in the graph after the pass."""
    bytes_before: int
    """Size of all weights before the pass, in bytes."""
    bytes_after: int
    """Size of all weights after the pass, in bytes."""
    outcome: Literal["changed", "unchanged", "rejected"]
    """``unchanged`` if operators and size of the weights are the same; ``rejected`` if the result was worse and was
    discarded."""
    removed: dict[str, int] = {}
    """Decrease in the number of nodes, by operator."""
    added: dict[str, int] = {}
    """Increase in the number of nodes, by operator."""


class ShortlistReport(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a shortlist costs, measured on text that it was not learned from."""

    origin: str
    """Where the lists come from."""
    sentences: int
    """Number of sentences measured."""
    median_tokens: float
    """Median number of target tokens that a sentence may use."""
    kept: float
    """Share of the tokens of greedy search without shortlist that the shortlist has, from 0 to 1."""
    identical: int
    """Number of sentences whose translation is the same with and without shortlist."""
    bleu: float | None
    """BLEU of greedy search with shortlist; ``None`` without references."""
    bleu_whole: float | None
    """BLEU of greedy search with the whole vocabulary."""


class PeriodReport(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a period does for sentences without final punctuation."""

    sentences: int
    """Number of sentences that were translated without and with a period."""
    gain: float
    """Mean increase of the mean log-probability of the tokens before final punctuation."""
    error: float
    """Standard error of that mean."""
    is_needed: bool
    """Whether the increase is large enough that whole texts get a period."""
