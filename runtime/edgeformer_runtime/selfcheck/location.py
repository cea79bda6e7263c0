"""Names for the place where a bundle is not what it should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE
from edgeformer_runtime.selfcheck.trace import Deviation


class InnerTensor(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A tensor of a graph that torch computes too."""

    file: str
    """The graph."""
    tensor: str
    """Its name there."""
    module: str | None
    """Path of the part of the torch model whose output it is; none for an output of the graph."""
    error: float
    """Largest relative error against torch, at export."""


class Location(msgspec.Struct, kw_only=True, frozen=True):
    """The first tensor that is not as it should be."""

    part: str
    """Part of the model in words, or the graph and its tensor."""
    module: str | None
    """Path of the part in the torch model; none where only the graph is known."""
    step: int
    """Decoder step, from 1; 0 in the encoder."""
    difference: float | None
    """Root mean square of the difference, over that of the tensor as it should be; none if it holds what is not a
    number."""
    tolerance: float
    """The largest that is no finding."""

    def __str__(self) -> str:
        path = f"`{self.module}`, " if self.module is not None else ""
        found = "not finite" if self.difference is None else f"relative difference {self.difference:.2g}"
        step = f", step {self.step}" if self.step else ""
        return f"{self.part} ({path}{found}, tolerance {self.tolerance:.2g}){step}"


def graph_of(deviation: Deviation) -> str:
    """The graph that a tensor belongs to."""
    return DECODER_FILE if deviation.stage else ENCODER_FILE


def modules_of(tensors: Sequence[InnerTensor]) -> dict[str, dict[str, str]]:
    """For each graph, the part of the model whose output each inner tensor is."""
    modules: dict[str, dict[str, str]] = {ENCODER_FILE: {}, DECODER_FILE: {}}
    for one in tensors:
        if one.module is not None:
            modules[one.file][one.tensor] = one.module
    return modules


def location_of(deviation: Deviation, tolerance: float, modules: Mapping[str, Mapping[str, str]]) -> Location:
    """The place of a deviation; ``modules`` as from :func:`modules_of`."""
    graph = graph_of(deviation)
    module = modules.get(graph, {}).get(deviation.tensor)
    return Location(
        part=f"the {graph.removesuffix('.onnx')}'s `{deviation.tensor}`" if module is None else in_words(module),
        module=module,
        step=deviation.stage,
        difference=finite(deviation.difference),
        tolerance=tolerance,
    )


def in_words(module: str) -> str:
    """``encoder_layers.0.feed_forward.3`` as "encoder layer 1, feed-forward"."""
    words: list[str] = []
    for name in module.split("."):
        if not name.isdigit():
            words.append(name.replace("feed_forward", "feed-forward").replace("_", " "))
        elif words and words[-1].endswith("s"):
            words[-1] = f"{words[-1].removesuffix('s')} {int(name) + 1}"
    return ", ".join(words)


def finite(value: float) -> float | None:
    """The value with three significant digits, or none if it is no number."""
    return float(f"{value:.3g}") if value < float("inf") else None
