"""Traces: fingerprints of the tensors that the graphs compute for one padded sentence, stage by stage.

Stage 0 is the encoder; stage ``i`` is decoder step ``i``. Steps are fed the recorded tokens, so a difference appears in
the stage where it originates and cannot be masked by a different choice of token.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeformer_runtime.contract import LOGITS, StateTensor
from edgeformer_runtime.decoding.forced_steps import forced_steps
from edgeformer_runtime.decoding.session import IntArray
from edgeformer_runtime.engine.onnx_session import OnnxSession
from edgeformer_runtime.limits import Number
from edgeformer_runtime.selfcheck.fingerprint import Fingerprint, fingerprint, relative_difference

PADDING = 3
"""Padding tokens appended to the source; without them, an ineffective mask would go unnoticed."""
STEPS = 8
"""Maximum number of steps in a trace."""

Stage = Mapping[str, NDArray[Any]]
"""Tensors of one stage by name, in order of computation."""
Fingerprints = tuple[dict[str, Fingerprint], ...]
"""Fingerprints of each stage's tensors, padding excluded."""


class Trace(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Tokens that were fed to the graphs, and the resulting tensors."""

    source: tuple[Number, ...]
    """Source token ids, end token included, without padding."""
    target: tuple[Number, ...]
    """Tokens fed to the decoder steps, start token first."""
    stages: Fingerprints = ()
    """Fingerprints of each stage."""


class Deviation(msgspec.Struct, kw_only=True, frozen=True):
    """Difference of one tensor from the record."""

    stage: int
    """0 for the encoder, ``i`` for decoder step ``i``."""
    tensor: str
    """Name of the tensor."""
    difference: float
    """Root mean square of the difference, relative to that of the recorded tensor."""


def padded(source: Sequence[int], pad: int, max_length: int, padding: int = PADDING) -> tuple[IntArray, IntArray]:
    """Pad a source, up to the model's maximum length.

    Returns:
        Ids ``(1, S)`` and true length ``(1,)``.
    """
    padding = max(0, min(padding, max_length - len(source)))
    return np.array([[*source, *[pad] * padding]]), np.array([len(source)])


def session_fingerprints(
    session: OnnxSession, table: Sequence[StateTensor], trace: Trace, padding: int = PADDING
) -> Fingerprints:
    """Fingerprints of the tensors that a session exposes: the encoder's outputs and the logits of each step.

    Args:
        session: session of the bundle.
        table: the state tensors to include.
        trace: source and target to feed.
        padding: padding tokens appended to the source.

    Raises:
        ModelError: the engine fails.
    """
    source, length = padded(trace.source, session.special.pad, session.max_source_length, padding)

    def stages() -> Iterator[Stage]:
        state = session.start(source, length)
        yield {tensor.name: state.tensors[tensor.name].numpy() for tensor in table if tensor.from_encoder}
        for logits in forced_steps(state, np.array([trace.target])):
            yield {LOGITS: logits}

    return fingerprints(stages(), len(trace.source), source.shape[1])


def fingerprints(stages: Iterable[Stage], length: int, width: int) -> Fingerprints:
    """Fingerprints of the tensors of all stages, padding excluded.

    Args:
        stages: tensors of each stage.
        length: true length of the source.
        width: length of the source with padding.
    """
    return tuple(
        {name: fingerprint(true_part(array, length, width)) for name, array in stage.items()} for stage in stages
    )


def true_part(array: NDArray[Any], length: int, width: int) -> NDArray[Any]:
    """Remove padding from an array: every axis of size ``width`` is cut to ``length``.

    A mask ``(1, S)`` is returned unchanged, since its values on padding matter.
    """
    if array.shape == (1, width):
        return array
    return array[tuple(slice(length) if size == width else slice(None) for size in array.shape)]


def deviations(actual: Fingerprints, trace: Trace) -> Iterator[Deviation]:
    """Yield the deviation of each recorded tensor, in order of stages and tensors."""
    for number, (stage, recorded) in enumerate(zip(actual, trace.stages, strict=True)):
        for name, expected in recorded.items():
            yield Deviation(stage=number, tensor=name, difference=relative_difference(stage[name], expected))
