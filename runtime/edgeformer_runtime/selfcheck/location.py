"""Where a bundle first deviates from the expected values, with readable names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from edgeformer_runtime.contract import DECODER_FILE, ENCODER_FILE
from edgeformer_runtime.selfcheck.trace import Deviation


class InnerTensor(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A tensor inside a graph that PyTorch also computes."""

    file: Annotated[str, msgspec.Meta(pattern=r"\A(?:encoder|decoder)\.onnx\Z")]
    """File name of the graph."""
    tensor: str
    """Name of the tensor in the graph."""
    module: str | None
    """Path of the PyTorch module whose output it is; ``None`` for an output of the graph."""
    error: float
    """Largest relative error compared with PyTorch at export."""


class Location(msgspec.Struct, kw_only=True, frozen=True):
    """The first tensor that differs by more than its tolerance."""

    part: str
    """The part of the model in words, or the graph and the tensor."""
    module: str | None
    """Path of the PyTorch module; ``None`` if only the graph is known."""
    step: int
    """Decoder step, from 1; 0 in the encoder."""
    difference: float | None
    """Root mean square of the difference, relative to that of the expected tensor; ``None`` if not finite."""
    tolerance: float
    """Largest relative difference that is not reported."""

    def __str__(self) -> str:
        path = f"`{self.module}`, " if self.module is not None else ""
        difference = "not finite" if self.difference is None else f"relative difference {self.difference:.2g}"
        step = f", step {self.step}" if self.step else ""
        return f"{self.part} ({path}{difference}, tolerance {self.tolerance:.2g}){step}"


def graph_of(deviation: Deviation) -> str:
    """File name of the graph that the tensor belongs to."""
    return DECODER_FILE if deviation.stage else ENCODER_FILE


def modules_of(tensors: Sequence[InnerTensor]) -> dict[str, dict[str, str]]:
    """For each graph file, map inner tensors to the paths of the PyTorch modules that produce them."""
    modules: dict[str, dict[str, str]] = {ENCODER_FILE: {}, DECODER_FILE: {}}
    for tensor in tensors:
        if tensor.module is not None:
            modules[tensor.file][tensor.tensor] = tensor.module
    return modules


def location_of(deviation: Deviation, tolerance: float, modules: Mapping[str, Mapping[str, str]]) -> Location:
    """Locate a deviation; ``modules`` is the result of :func:`modules_of`."""
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
    """Describe a module path: ``encoder_layers.0.feed_forward.3`` becomes "encoder layer 1, feed-forward"."""
    words: list[str] = []
    for name in module.split("."):
        if not name.isdigit():
            words.append(name.replace("feed_forward", "feed-forward").replace("_", " "))
        elif words and words[-1].endswith("s"):
            words[-1] = f"{words[-1].removesuffix('s')} {int(name) + 1}"
    return ", ".join(words)


def finite(value: float) -> float | None:
    """Round a value to three significant digits; ``None`` if it is NaN or infinite."""
    return float(f"{value:.3g}") if value < float("inf") else None
