"""Firefox's engine for Bergamot's models, with the integers and scales of a run. Requires the package ``fxtranslate``;
only conversion requires torch.

The engine reads and writes text. The converted vocabularies have one character for each token, so that it translates
the same tokens as the other systems, whatever splits texts into them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

from edgeformer_bench.peers.base import PeerError, Spec
from edgeformer_bench.peers.converted import ConvertedModel

MODEL_FILE = "model.intgemm.alphas.bin"
VOCABULARY_FILES = "source.spm", "target.spm"
FIRST_CHARACTER = 0xF0000
"""Character of the first id; it and those after it are for private use."""


class BergamotPeer:
    """A converted model.

    Args:
        folder: output of :func:`~edgeformer_bench.peers.bergamot_model.convert_run`.
    """

    def __init__(self, folder: Path) -> None:
        import fxtranslate

        self._model = ConvertedModel(folder)
        source, target = ((folder / name).read_bytes() for name in VOCABULARY_FILES)
        model = (folder / MODEL_FILE).read_bytes()
        self._translator = fxtranslate.Translator(model=model, src_vocab=source, trg_vocab=target)
        self.version = f"fxtranslate {version('fxtranslate')} ({self._translator.backend()})"

    def translate(self, sources: Sequence[Sequence[int]], *, beam_size: int, length: int | None) -> list[list[int]]:
        """See :meth:`Peer.translate`; the engine translates one sentence at a time."""
        if beam_size > 1:
            raise PeerError("Firefox's engine has greedy search only; give --beam 1.")
        if length is not None:
            raise PeerError("Firefox's engine cannot decode a given number of tokens.")
        return [
            self._translated(source)[:limit] for source, limit in zip(sources, self._model.limits(sources), strict=True)
        ]

    def translate_texts(self, texts: Sequence[str], *, beam_size: int) -> list[str]:
        """See :meth:`TextPeer.translate_texts`."""
        return self._model.texts(texts, partial(self.translate, beam_size=beam_size, length=None))

    def _translated(self, source: Sequence[int]) -> list[int]:
        # The engine appends the end token.
        text = "".join(chr(FIRST_CHARACTER + index) for index in source[:-1])
        return [ord(character) - FIRST_CHARACTER for character in self._translator.translate(text)]


def open_peer(spec: Spec) -> BergamotPeer:
    """Open a converted model.

    Raises:
        PeerError: there are several threads, which the engine does not use.
    """
    if spec.threads > 1:
        raise PeerError("Firefox's engine has one thread; give --threads 1.")
    return BergamotPeer(Path(spec.model))
