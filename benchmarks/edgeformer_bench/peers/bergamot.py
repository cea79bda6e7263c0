"""Firefox's engine for Bergamot's models, with the files that they are published in. Requires the package
``fxtranslate``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from edgeformer.importers.marian.binary import is_marian_binary
from edgeformer.importers.marian.files import find_files
from edgeformer.importers.registry import NO_OVERRIDES
from edgeformer_bench.peers.base import Peer, PeerCall, PeerError, PeerSpec


class BergamotPeer(Peer):
    """A published model.

    Args:
        folder: its files.
        shortlist: whether searches are restricted by its lists, if it has some.
    """

    def __init__(self, folder: Path, *, shortlist: bool = True) -> None:
        import fxtranslate

        files = find_files(folder, is_marian_binary, ".bin", NO_OVERRIDES)
        source, target = (file.read_bytes() for file in files.text.vocabularies)
        lists = files.shortlist.read_bytes() if shortlist and files.shortlist else None
        self._translator = fxtranslate.Translator(files.model.read_bytes(), source, target, lists)
        self.version = f"fxtranslate {version('fxtranslate')} ({self._translator.backend()})"

    def prepare(self, sources: Sequence[Sequence[int]], *, beam_size: int, length: int | None) -> PeerCall:
        """Refuse token ids; see :meth:`Peer.prepare`."""
        raise PeerError("Firefox's engine reads and writes text; give --text-to-text.")

    def translate_texts(self, texts: Sequence[str], *, beam_size: int) -> list[str]:
        """See :meth:`Peer.translate_texts`; the engine translates one sentence at a time."""
        if beam_size > 1:
            raise PeerError("Firefox's engine has greedy search only; give --beam 1.")
        return [self._translator.translate(text) for text in texts]


def open_peer(spec: PeerSpec) -> BergamotPeer:
    """Open a published model; settings are the arguments of :class:`BergamotPeer`.

    Raises:
        PeerError: there are several threads, which the engine does not use.
    """
    if spec.threads > 1:
        raise PeerError("Firefox's engine has one thread; give --threads 1.")
    return BergamotPeer(Path(spec.model), **spec.settings)
