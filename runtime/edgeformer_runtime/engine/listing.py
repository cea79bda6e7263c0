"""The output projection of the tokens that a batch may use."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort

from edgeformer_runtime import contract
from edgeformer_runtime.decoding.session import IntArray
from edgeformer_runtime.engine.engine_errors import EngineErrors
from edgeformer_runtime.shortlist import Shortlist


class Listing:
    """A shortlist, with the graph that reads the weights of its tokens.

    Args:
        shortlist: the lists.
        graph: the opened graph.
    """

    def __init__(self, shortlist: Shortlist, graph: ort.InferenceSession) -> None:
        self._shortlist, self._graph = shortlist, graph

    def __call__(self, source: IntArray, source_length: IntArray) -> tuple[IntArray, dict[str, ort.OrtValue]]:
        """Return the tokens that a batch may use, ``(C,)``, and the constants of the step graph by name.

        Args:
            source: token ids, padded at the end, ``(N, S)``.
            source_length: true lengths, ``(N,)``.

        Raises:
            ModelError: the engine fails.
        """
        lengths = source_length.tolist()
        sources = [row[:length] for row, length in zip(source.tolist(), lengths, strict=True)]
        listed, usable = self._shortlist.listed_together(sources)
        with EngineErrors(contract.SHORTLIST_WEIGHT_FILE):
            weight, bias = self._graph.run_with_ort_values(
                [contract.LISTED_WEIGHT, contract.PROJECTION_BIAS],
                {contract.LISTED: ort.OrtValue.ortvalue_from_numpy(listed)},
            )
            masked = np.where(usable, bias.numpy(), np.float32(-np.inf))
            return listed, {
                contract.LISTED_WEIGHT: weight,
                contract.LISTED_BIAS: ort.OrtValue.ortvalue_from_numpy(masked),
            }
