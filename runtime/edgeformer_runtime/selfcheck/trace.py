"""Traces: what the graphs computed for one padded sentence, stage by stage, as fingerprints.

Stage 0 is the encoder, stage ``i`` the decoder's step ``i``, which is fed the recorded tokens. So a difference is found
in the stage in which it arises, and no other choice of a token hides it.
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
from edgeformer_runtime.selfcheck.fingerprint import Fingerprint, fingerprint, relative_difference

PADDING = 3
"""Padding tokens behind the source: without them, a mask that does nothing would not be seen."""
STEPS = 8
"""Steps of a trace, if its target is as long."""

Stage = Mapping[str, NDArray[Any]]
"""Tensors of one stage by name, in the order in which they are computed."""
Fingerprints = tuple[dict[str, Fingerprint], ...]
"""Fingerprints of each stage's tensors, without what belongs to padding."""


class Trace(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What was fed, and what came out."""

    source: tuple[int, ...]
    """Source ids with the end token, without padding."""
    target: tuple[int, ...]
    """Tokens that the steps are fed, the start token first."""
    stages: Fingerprints = ()
    """What the graphs made of them."""


class Deviation(msgspec.Struct, kw_only=True, frozen=True):
    """How much a tensor differs from the record."""

    stage: int
    """0 for the encoder, ``i`` for step ``i``."""
    tensor: str
    """Its name."""
    difference: float
    """Root mean square of the difference, over that of the recorded tensor."""


def padded(source: Sequence[int], pad: int, max_length: int, padding: int = PADDING) -> tuple[IntArray, IntArray]:
    """Source ``(1, S)`` with padding, as much as the model takes, and its true length ``(1,)``."""
    padding = max(0, min(padding, max_length - len(source)))
    return np.array([[*source, *[pad] * padding]]), np.array([len(source)])


def session_fingerprints(
    session: OnnxSession, table: Sequence[StateTensor], trace: Trace, padding: int = PADDING
) -> Fingerprints:
    """Of what a session shows without opening its graphs: what the encoder emits, and the logits of each step.

    Args:
        session: the bundle.
        table: its state table.
        trace: what to feed.
        padding: tokens behind the source.

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
    """Fingerprints of all tensors.

    Args:
        stages: tensors of each stage.
        length: true length of the source.
        width: its length with padding.
    """
    return tuple(
        {name: fingerprint(true_part(array, length, width)) for name, array in stage.items()} for stage in stages
    )


def true_part(array: NDArray[Any], length: int, width: int) -> NDArray[Any]:
    """An array without what belongs to padding: every axis of the padded length is cut to the true one.

    Of a mask ``(1, S)``, padding is what counts, so it stays whole.
    """
    if array.shape == (1, width):
        return array
    return array[tuple(slice(length) if size == width else slice(None) for size in array.shape)]


def deviations(found: Fingerprints, trace: Trace) -> Iterator[Deviation]:
    """How much each recorded tensor differs, in the order of stages and tensors."""
    for number, (stage, recorded) in enumerate(zip(found, trace.stages, strict=True)):
        for name, expected in recorded.items():
            yield Deviation(stage=number, tensor=name, difference=relative_difference(stage[name], expected))
