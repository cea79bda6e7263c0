"""The committed models of Marian and what Marian itself makes of them; see ``make_marian_models.py``."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

MARIAN = Path(__file__).parent / "marian"


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Marian's translations of a sentence, greedy and with four beams, and their scores."""

    source: str
    beam1: str
    score1: float
    beam4: str
    score4: float


class Scored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Marian's score of a given translation: mean log-probability per token, end token included."""

    source: str
    target: str
    score: float


@cache
def scored(model: str) -> list[Scored]:
    """Marian's scores of 1,000 translations that the model was not trained on."""
    return msgspec.json.decode((MARIAN / model / "expected.json").read_bytes(), type=list[Scored])


@cache
def expected(model: str) -> list[Expected]:
    """Marian's translations of 1,000 sentences that the model was not trained on."""
    return msgspec.json.decode((MARIAN / model / "expected.json").read_bytes(), type=list[Expected])
