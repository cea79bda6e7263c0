"""What a peer must offer to be compared, and how one is described to the process that runs it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from edgeformer_runtime.errors import EdgeformerError

MODULES = {
    "bundle": "edgeformer_bench.peers.ours",
    "torch": "edgeformer_bench.peers.torch_eager",
    "ctranslate2": "edgeformer_bench.peers.ctranslate2",
    "optimum": "edgeformer_bench.peers.optimum",
}
"""The module of each kind of peer. It has ``open_peer(spec)`` and, where a run must be converted first, ``convert(run,
out)``."""

PEERS = ("ctranslate2", "torch", "torch-compile", "optimum")
"""What can be compared with."""


class PeerError(EdgeformerError):
    """A peer cannot be installed, does not know a model, or failed."""


class Spec(msgspec.Struct, kw_only=True, frozen=True):
    """One peer with its settings."""

    kind: str
    """One of :data:`MODULES`."""
    model: str
    """Folder of the model, in the peer's own format."""
    threads: int = 1
    """CPU threads of one operator."""
    device: str = "cpu"
    """``cpu`` or ``cuda``."""
    settings: dict[str, Any] = {}
    """What the peer is opened with; see its module."""
    environment: dict[str, str] = {}
    """Environment variables of its process."""
    python: str = sys.executable
    """Interpreter of its process."""

    @property
    def variant(self) -> str:
        """What may tell it from other variants of one system."""
        return " ".join(f"{name}={value}" for name, value in {**self.environment, **self.settings}.items())


class Peer(Protocol):
    """An engine with a model loaded."""

    version: str
    """The engine and its version."""

    def translate(self, sources: Sequence[Sequence[int]], *, beam_size: int, length: int | None) -> list[list[int]]:
        """Translate sentences as one batch.

        Args:
            sources: token ids of each sentence, end token included.
            beam_size: hypotheses kept; 1 is greedy search.
            length: decode exactly so many tokens, none of them the end token; up to the model's limit if none.

        Returns:
            Ids of the best hypothesis of each sentence, without start and end token.
        """


@runtime_checkable
class TextPeer(Peer, Protocol):
    """A peer that also goes from text to text, and makes batches by itself."""

    def translate_texts(self, texts: Sequence[str], *, beam_size: int) -> list[str]:
        """Translate texts of any number."""
