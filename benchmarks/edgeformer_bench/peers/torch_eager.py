"""The torch model of a run with its cache, eager or with a compiled step."""

from __future__ import annotations

from edgeformer_bench.peers.base import Spec
from edgeformer_bench.peers.own_loop import LoopPeer


def open_peer(spec: Spec) -> LoopPeer:
    """Open a run folder; the setting ``compile`` compiles the model's step with ``torch.compile``."""
    import torch

    from edgeformer.quality.translators import run_translator
    from edgeformer.train.run import Run

    torch.set_num_threads(spec.threads)
    run = Run.open(spec.model)
    model = run.load_model().to(spec.device)
    if spec.settings.get("compile"):
        # One graph covers all lengths except 0 and 1, for which torch specializes, as it does for numbers of rows.
        torch._dynamo.config.recompile_limit = 64
        model.step = torch.compile(model.step, dynamic=True)  # type: ignore[method-assign]  # what the session calls
    return LoopPeer(f"torch {torch.__version__}", run_translator(run, model))
