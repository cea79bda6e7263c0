"""Each row's most probable tokens by ONNX Runtime, whose log-softmax and top-k take half of numpy's time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort

from edgeformer_runtime.session import FloatArray, IntArray

GRAPH_FILE = Path(__file__).with_name("best_tokens.onnx")
"""Made by ``tests/make_best_tokens.py``."""


class OnnxBestTokens:
    """See :func:`~edgeformer_runtime.best_tokens.best_tokens`; the logits are left as they are."""

    def __init__(self, options: ort.SessionOptions) -> None:
        self._graph = ort.InferenceSession(GRAPH_FILE, options, providers=["CPUExecutionProvider"])

    def __call__(self, logits: FloatArray, count: int) -> tuple[FloatArray, IntArray]:
        """Run the graph."""
        feeds = {"logits": logits, "count": np.array([min(count, logits.shape[1])])}
        log_probability, token = self._graph.run(None, feeds)
        return log_probability, token
