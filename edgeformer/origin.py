"""The record of the text that a model was trained on, as runs and bundles have it."""

from __future__ import annotations

from typing import Any

import msgspec

from edgeformer_runtime.bundle.provenance import Origin


class TextOrigin(Origin, kw_only=True, frozen=True, omit_defaults=True):
    """The text that a model was trained on, or the model that was imported; records are equal if their text is."""

    distilled: dict[str, Any] = msgspec.field(default_factory=dict)
    """How a teacher generated the targets (:class:`~edgeformer.distill.folder.Job`, with counts and the hashes of the
    original corpus); empty if the targets are the corpus's own."""
    augment: dict[str, float] = msgspec.field(default_factory=dict)
    """Share of pairs that have an altered copy, by the kind of change."""
    initial: TextOrigin | None = None
    """The same of the model that training started from; ``None`` if it started from random weights."""
