"""A bundle on ONNX Runtime."""

from __future__ import annotations

from edgeformer_bench.peers.base import Spec
from edgeformer_bench.peers.own_loop import LoopPeer
from edgeformer_runtime.engine.onnx_session import ENGINE_VERSION
from edgeformer_runtime.translator import Translator


def open_peer(spec: Spec) -> LoopPeer:
    """Check and open a bundle."""
    translator = Translator.open(spec.model, device=spec.device, threads=spec.threads)
    return LoopPeer(f"onnxruntime {ENGINE_VERSION}", translator)
