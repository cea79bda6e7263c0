"""Models behind the runtime's own decode loop, as peers."""

from __future__ import annotations

from collections.abc import Sequence

from edgeformer_runtime.decoding.loop import decode
from edgeformer_runtime.decoding.options import DecodeOptions
from edgeformer_runtime.decoding.session import AnySession
from edgeformer_runtime.tokenizer import Tokenizer
from edgeformer_runtime.translator import translate_texts


class LoopPeer:
    """A session with its tokenizers."""

    def __init__(self, version: str, session: AnySession, source: Tokenizer, target: Tokenizer) -> None:
        self.version = version
        self._session, self._source, self._target = session, source, target

    def translate(self, sources: Sequence[Sequence[int]], *, beam_size: int, length: int | None) -> list[list[int]]:
        """See :meth:`Peer.translate`."""
        options = DecodeOptions(
            beam_size=beam_size,
            min_length=length or 0,
            max_length=length,
            max_batch_tokens=beam_size * len(sources) * max(map(len, sources)),  # all in one batch
            return_scores=False,
        )
        return [list(best.ids) for best, *_ in decode(self._session, sources, options)]

    def translate_texts(self, texts: Sequence[str], *, beam_size: int) -> list[str]:
        """See :meth:`TextPeer.translate_texts`; the loop sorts them by length and makes batches."""
        options = DecodeOptions(beam_size=beam_size, return_scores=False)
        output = translate_texts(self._session, self._source, self._target, texts, options)
        return [translation.text for translation in output]
