"""Translators as peers: models driven by the runtime's own decode loop."""

from __future__ import annotations

from collections.abc import Sequence

from edgeformer_runtime.decoding.loop import decode
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.translator import AnyTranslator


class LoopPeer:
    """A translator of any engine."""

    def __init__(self, version: str, translator: AnyTranslator) -> None:
        self.version = version
        self._translator = translator

    def translate(self, sources: Sequence[Sequence[int]], *, beam_size: int, length: int | None) -> list[list[int]]:
        """See :meth:`Peer.translate`."""
        options = DecodeOptions(
            beam_size=beam_size,
            min_length=length or 0,
            max_length=length,
            max_batch_tokens=beam_size * len(sources) * max(map(len, sources)),  # all in one batch
            return_scores=False,
        )
        return [list(best.ids) for best, *_ in decode(self._translator.session, sources, options)]

    def translate_texts(self, texts: Sequence[str], *, beam_size: int) -> list[str]:
        """See :meth:`TextPeer.translate_texts`; the decode loop sorts texts by length and forms batches."""
        options = DecodeOptions(beam_size=beam_size, return_scores=False)
        return [translation.text for translation in self._translator.translate(texts, options)]
