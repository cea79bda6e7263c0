"""Bundles on ONNX Runtime, and torch models of runs, as peers: both are driven by the runtime's own decode loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from edgeformer_bench.peers.base import Peer, PeerCall, PeerSpec
from edgeformer_runtime.engines.onnx import ENGINE_VERSION
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.translator import AnyTranslator, Translator


class LoopPeer(Peer):
    """A translator of any engine."""

    def __init__(self, version: str, translator: AnyTranslator) -> None:
        self.version = version
        self._translator = translator

    def prepare(self, sources: Sequence[Sequence[int]], *, beam_size: int, length: int | None) -> PeerCall:
        """See :meth:`Peer.prepare`."""
        options = replace(
            self._translator.defaults,
            beam_size=beam_size,
            max_batch_tokens=beam_size * len(sources) * max(map(len, sources)),  # all in one batch
            return_scores=False,
        )
        if length is not None:
            options = replace(options, min_length=length, max_length=length, max_len_a=0.0)
        run = partial(decode, self._translator.session, sources, options)
        return PeerCall(run, lambda decoded: [list(best.ids) for best, *_ in decoded])

    def translate_texts(self, texts: Sequence[str], *, beam_size: int) -> list[str]:
        """See :meth:`Peer.translate_texts`; the decode loop sorts texts by length and forms batches."""
        translations = self._translator.translate(texts, beam_size=beam_size, return_scores=False)
        return [translation.text for translation in translations]


def open_peer(spec: PeerSpec) -> LoopPeer:
    """Open a bundle on the setting ``engine``, without its shortlist if ``shortlist`` is false; or a run with
    torch, whose step the setting ``compile`` compiles with ``torch.compile``."""
    if spec.kind == "bundle":
        shortlist = spec.settings.get("shortlist", True)
        engine = spec.settings.get("engine", "auto")
        translator = Translator.open(
            spec.model, device=spec.device, threads=spec.threads, shortlist=shortlist, engine=engine
        )
        runs = translator.session.engine
        return LoopPeer(runs if runs == "kernels" else f"{runs} {ENGINE_VERSION}", translator)

    import torch

    from edgeformer.quality.translators import run_translator
    from edgeformer.run.folder import Run

    torch.set_num_threads(spec.threads)
    run = Run.open(spec.model)
    model = run.load_model().to(spec.device)
    if spec.settings.get("compile"):
        # One graph covers all lengths except 0 and 1, for which torch specializes, as it does for numbers of rows.
        torch._dynamo.config.recompile_limit = 64
        model.step = torch.compile(model.step, dynamic=True)  # type: ignore[method-assign]  # what the session calls
    return LoopPeer(f"torch {torch.__version__}", run_translator(run, model))
