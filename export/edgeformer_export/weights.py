"""Writes one weight file for both graphs, in which every distinct tensor is stored once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import onnx_ir as ir

ALIGNMENT = 4096
"""Alignment of large tensors in bytes: the page size, so that they can be memory-mapped in place."""
SMALL_ALIGNMENT = 64
LARGE = 65_536
MIN_BYTES = 1024
"""Smaller tensors stay in the graph files."""


def write_weights(models: Iterable[ir.Model], path: Path) -> int:
    """Move the weights of all models into one file, without duplicates, and make the models refer to it.

    Args:
        models: graphs to modify in place; save them next to ``path`` afterwards.
        path: file to write.

    Returns:
        Size of the file in bytes.
    """
    places: dict[tuple[str, int], int] = {}
    with path.open("wb") as stream:
        for model in models:
            for value in model.graph.initializers.values():
                tensor = value.const_value
                if tensor is None or tensor.nbytes < MIN_BYTES:
                    continue
                data = tensor.tobytes()
                key = (hashlib.sha256(data).hexdigest(), len(data))
                if key not in places:
                    alignment = ALIGNMENT if len(data) >= LARGE else SMALL_ALIGNMENT
                    stream.write(b"\0" * (-stream.tell() % alignment))
                    places[key] = stream.tell()
                    stream.write(data)
                value.const_value = ir.ExternalTensor(
                    path.name,
                    offset=places[key],
                    length=len(data),
                    dtype=tensor.dtype,
                    shape=ir.Shape(tensor.shape.numpy()),
                    name=str(value.name),
                    base_dir=path.parent,
                )
        return stream.tell()
