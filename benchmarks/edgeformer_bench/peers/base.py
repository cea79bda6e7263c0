"""The interface of peers, and the description passed to the process that runs a peer."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple

import msgspec

from edgeformer_runtime.errors import EdgeformerError

Kind = Literal["bundle", "torch", "ctranslate2", "bergamot"]
"""Engine of a model: one of ours, or a peer."""

Weights = Literal["int8", "float32"]
"""Storage type of a peer's weights."""


@dataclass(frozen=True, kw_only=True)
class PeerEngine:
    """Module and limits of a kind of system."""

    module: str
    """Module of this package with ``open_peer(spec)``."""
    on_cpu_only: bool = False

    def load(self) -> ModuleType:
        """Import its module."""
        return importlib.import_module(f"edgeformer_bench.peers.{self.module}")


ENGINES: dict[Kind, PeerEngine] = {
    "bundle": PeerEngine(module="own_loop"),
    "torch": PeerEngine(module="own_loop"),
    "ctranslate2": PeerEngine(module="ctranslate2"),
    "bergamot": PeerEngine(module="bergamot", on_cpu_only=True),
}

PEERS = ("ctranslate2", "torch", "torch-compile")
"""Peers that have the weights of a run in their own format."""
BERGAMOT = "bergamot"
"""Firefox's engine, which reads the files that a bundle's model was imported from."""
ONNXRUNTIME = "onnxruntime"
"""The name under which a bundle that runs on the kernels is compared with itself on ONNX Runtime."""

ON_CPU = tuple(kind for kind, engine in ENGINES.items() if engine.on_cpu_only)


class PeerError(EdgeformerError):
    """A peer cannot be installed, does not support a model, or failed."""


class PeerSpec(msgspec.Struct, kw_only=True, frozen=True):
    """A peer and its settings."""

    kind: Kind
    """Engine of the model."""
    model: str
    """Folder of the model, in the peer's own format."""
    threads: int = 1
    device: str = "cpu"
    settings: dict[str, Any] = {}
    """Settings used to open the peer; see its module."""
    environment: dict[str, str] = {}

    @property
    def model_bytes(self) -> int:
        """Total size of the model's files in bytes; of a run folder, that of its weights and tokenizers."""
        patterns = ("model.safetensors", "*tokenizer.*") if self.kind == "torch" else ("*",)
        return sum(file.stat().st_size for pattern in patterns for file in Path(self.model).glob(pattern))

    @property
    def variant(self) -> str:
        """Describe what distinguishes this variant from others of the same system."""
        return " ".join(f"{name}={value}" for name, value in {**self.environment, **self.settings}.items())


@dataclass(frozen=True)
class Contender:
    """A system with one or more variants; the fastest is kept for each workload."""

    name: str
    specs: tuple[PeerSpec, ...]

    @property
    def kind(self) -> Kind:
        """Engine of the model."""
        return self.specs[0].kind


class PeerCall(NamedTuple):
    """A call of an engine, whose inputs are in the form that the engine takes."""

    run: Callable[[], Any]
    """The timed call, which returns the engine's own output."""
    ids: Callable[[Any], list[list[int]]]
    """Converts that output to the token ids of each sentence's best hypothesis, without start and end tokens."""


class Peer(ABC):
    """An engine with a loaded model."""

    version: str

    @abstractmethod
    def prepare(self, sources: Sequence[Sequence[int]], *, beam_size: int, length: int | None) -> PeerCall:
        """Prepare the translation of sentences as one batch.

        Args:
            sources: token ids of each sentence, end token included.
            beam_size: hypotheses kept; 1 is greedy search.
            length: decode exactly this many tokens, suppressing the end token; ``None`` decodes up to the end token or
                the model's limit.
        """

    def translate(self, sources: Sequence[Sequence[int]], *, beam_size: int, length: int | None) -> list[list[int]]:
        """Translate sentences as one batch; see :meth:`prepare`."""
        call = self.prepare(sources, beam_size=beam_size, length=length)
        return call.ids(call.run())

    def translate_texts(self, texts: Sequence[str], *, beam_size: int) -> list[str]:
        """Translate any number of texts, of which the engine forms batches itself.

        Raises:
            PeerError: the engine takes token ids only.
        """
        raise PeerError(f"{self.version} takes no texts: leave out --text-to-text, or compare with other engines.")
