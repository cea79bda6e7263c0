"""Mistakes that keep a model from being traced, in the words of its author rather than the tracer's."""

from __future__ import annotations

import traceback
from collections.abc import Iterable

import torch
from torch.export import ExportedProgram

from edgeformer.traceback_summary import describe
from edgeformer_runtime.bundle.operators import OPERATORS

_VALUES = "Shapes may steer Python, values may not: see the rules in docs/your-own-model.md."
_PACKED = (
    "`pack_padded_sequence` reads the lengths as values. Run the layer on the padded source and set its outputs on "
    "padding to zero; for an LSTM, also in both directions, use `LSTMLayer` of edgeformer.model.lstm.model."
)
_ATTENTION = (
    "`scaled_dot_product_attention` must get queries, keys and values with four axes, (N, H, T, E); give them an axis "
    "for one head with `unsqueeze(1)`."
)
_REPEAT_INTERLEAVE = (
    "PyTorch's exporter mistranslates `repeat_interleave` by a number that depends on the batch; write "
    "`x[:, None].expand(-1, k, …).flatten(0, 1)` instead, or combine beams and sentences by `reshape`: see the rules "
    "in docs/your-own-model.md."
)
_CALLS = {
    "pack_padded_sequence": _PACKED,
    "pad_packed_sequence": _PACKED,
    "aten_scaled_dot_product_attention": _ATTENTION,
}
"""Code to write instead, by a function in the traceback."""

_ORIGINS = {
    "Tile": "`repeat`; use `expand` and `reshape`",
    "Loop": "a loop such as that of `torch.while_loop`; compute all positions at once",
    "Scan": "`scan`; compute all positions at once",
    "If": "`torch.cond`; use `torch.where`",
    "Resize": "`interpolate`",
    "RandomNormalLike": "random numbers",
    "RandomUniformLike": "random numbers",
}
"""Code that produces the operators that bundles may not use."""


def why_untraceable(error: BaseException) -> str:
    """Say what the tracer stumbled over and what to do about it, in sentences.

    Args:
        error: what the tracer raised; the first of its causes counts.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{describe(error)}. {_advice(error)}"


def _advice(error: BaseException) -> str:
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if advice := _CALLS.get(frame.f_code.co_name):
            return advice
        if isinstance(frame.f_locals.get("self"), torch.nn.RNNBase) and frame.f_locals.get("batch_sizes") is not None:
            return _PACKED
    return _VALUES


def mistranslation(program: ExportedProgram) -> str | None:
    """Return what PyTorch's exporter is known to get wrong in a program and what to write instead; usually ``None``."""
    repeated = torch.ops.aten.repeat_interleave.self_int
    for node in program.graph.nodes:
        if node.target is repeated and not isinstance(node.args[1], int):
            return _REPEAT_INTERLEAVE
    return None


def unsupported(operators: Iterable[str]) -> str | None:
    """Name the operators that bundles may not use, and what they come from; ``None`` if there are none."""
    unknown = sorted(set(operators) - OPERATORS)
    if not unknown:
        return None
    listed = ", ".join(name + (f" (from {_ORIGINS[name]})" if name in _ORIGINS else "") for name in unknown)
    return f"operators that bundles may not use: {listed}. See the rules in docs/your-own-model.md."
