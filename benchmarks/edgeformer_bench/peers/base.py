"""The interface of peers, and the description passed to the process that runs a peer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from edgeformer_runtime.errors import EdgeformerError

Kind = Literal["bundle", "torch", "ctranslate2", "optimum", "marian", "bergamot"]
"""What runs the model: a bundle of ours, or a peer."""

MODULES: dict[Kind, str] = {
    "bundle": "edgeformer_bench.peers.own_loop",
    "torch": "edgeformer_bench.peers.own_loop",
    "ctranslate2": "edgeformer_bench.peers.ctranslate2",
    "optimum": "edgeformer_bench.peers.optimum",
    "marian": "edgeformer_bench.peers.marian",
    "bergamot": "edgeformer_bench.peers.bergamot",
}
"""The module of each kind, with ``open_peer(spec)``."""

CONVERTERS: dict[Kind, str] = {
    "ctranslate2": "edgeformer_bench.peers.ctranslate2_model",
    "optimum": "edgeformer_bench.peers.optimum",
    "marian": "edgeformer_bench.peers.marian_model",
    "bergamot": "edgeformer_bench.peers.bergamot_model",
}
"""For kinds to whose format runs must be converted, the module with ``convert_run(run, out, weights)``, which raises a
:class:`PeerError` that names what the peer does not support."""

PEERS = ("ctranslate2", "torch", "torch-compile", "optimum", "marian", "bergamot")
"""Peers that a bundle can be compared with."""

OF_IMPORTED_MODELS = ("marian", "bergamot")
"""Peers that run models imported from their own formats only."""

ON_CPU = ("optimum", *OF_IMPORTED_MODELS)
"""Peers that run on the CPU only."""

Weights = Literal["int8", "float32"]
"""How a peer stores its weights."""


class PeerError(EdgeformerError):
    """A peer cannot be installed, does not support a model, or failed."""


class Spec(msgspec.Struct, kw_only=True, frozen=True):
    """A peer and its settings."""

    kind: Kind
    """What runs the model."""
    model: str
    """Folder of the model, in the peer's own format."""
    threads: int = 1
    """CPU threads per operator."""
    device: str = "cpu"
    """``cpu`` or ``cuda``."""
    settings: dict[str, Any] = {}
    """Settings used to open the peer; see its module."""
    environment: dict[str, str] = {}
    """Environment variables of its process."""
    python: str = sys.executable
    """Interpreter of its process."""

    @property
    def variant(self) -> str:
        """Describe what distinguishes this variant from others of the same system."""
        return " ".join(f"{name}={value}" for name, value in {**self.environment, **self.settings}.items())


@dataclass(frozen=True)
class Contender:
    """A system with one or more variants; the fastest is kept for each workload."""

    name: str
    """Its name in tables."""
    specs: tuple[Spec, ...]
    """Its variants."""
    weights: Weights | None = None
    """How a peer stores its weights; ``None`` for bundles."""

    @property
    def kind(self) -> Kind:
        """What runs the model."""
        return self.specs[0].kind


class Peer(Protocol):
    """An engine with a loaded model."""

    version: str
    """The engine and its version."""

    def translate(self, sources: Sequence[Sequence[int]], *, beam_size: int, length: int | None) -> list[list[int]]:
        """Translate sentences as one batch.

        Args:
            sources: token ids of each sentence, end token included.
            beam_size: hypotheses kept; 1 is greedy search.
            length: decode exactly this many tokens, suppressing the end token; ``None`` decodes up to the end token or
                the model's limit.

        Returns:
            Token ids of the best hypothesis for each sentence, without start and end tokens.
        """


@runtime_checkable
class TextPeer(Peer, Protocol):
    """A peer that also translates text to text, and forms batches itself."""

    def translate_texts(self, texts: Sequence[str], *, beam_size: int) -> list[str]:
        """Translate any number of texts."""
