"""The limits that a manifest states: the longest source, the last step and the highest token ids."""

from __future__ import annotations

import numpy as np

from edgeformer_runtime.engines.onnx import OnnxSession
from edgeformer_runtime.errors import ModelError
from edgeformer_runtime.limits import MAX_DECODING_BYTES


def size_problems(session: OnnxSession) -> list[str]:
    """Encode a source and make a step at the limits of the manifest, and list what fails.

    A graph with fewer positions or embeddings than the manifest says fails when it looks one up.
    """
    manifest = session.bundle.manifest
    longest, last = manifest.max_source_length, manifest.max_target_length - 1
    if session.batch_bytes(1, 1, longest, last + 1) > MAX_DECODING_BYTES:
        return [f"a sentence with {longest} source tokens and {last + 1} target tokens does not fit in memory"]
    problems = []
    for length, index in ((longest, session.special.eos), (1, manifest.source_vocab_size - 1)):
        try:
            state = session.start(np.full((1, length), index), np.array([length]))
        except ModelError as error:
            tokens = "token" if length == 1 else "tokens"
            problems.append(f"the encoder fails for {length} {tokens} with id {index}: {error}".removesuffix("."))
    for position, index in ((last, session.special.start[-1]), (0, manifest.target_vocab_size - 1)):
        try:
            state = session.start(np.full((1, 1), session.special.eos), np.array([1]))
            state.skip(position)
            state.step(np.array([index]))
        except ModelError as error:
            problems.append(f"the decoder fails at step {position + 1} for id {index}: {error}".removesuffix("."))
    return problems
