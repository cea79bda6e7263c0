"""Decoding defaults of a model."""

from __future__ import annotations

from typing import Annotated

import msgspec

from edgeformer_runtime.limits import MAX_BEAM_SIZE, MAX_LENGTH, MAX_LENGTH_PENALTY


class Generation(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Decoding defaults of the model."""

    beam_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_BEAM_SIZE)] = 4
    """Hypotheses kept per sentence."""
    length_penalty: Annotated[float, msgspec.Meta(ge=-MAX_LENGTH_PENALTY, le=MAX_LENGTH_PENALTY)] = 1.0
    """Exponent of the length by which a log-probability is divided."""
    length_includes_end: bool = True
    """Count the end token in that length."""
    max_len_a: Annotated[float, msgspec.Meta(ge=0, le=MAX_LENGTH)] = 0.0
    """Limit outputs to this multiple of the source's length; 0 does not."""
    beam_shrinks: bool = False
    """Each finished hypothesis leaves one place fewer for unfinished ones."""
    early_stopping: bool = True
    """End as soon as there are as many finished hypotheses as beams, even if an unfinished one scores higher."""
