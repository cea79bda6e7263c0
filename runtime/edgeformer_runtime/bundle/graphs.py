"""The check of graph files before the engine opens them: where their weights are, and which operators they use."""

from __future__ import annotations

import re

from edgeformer_runtime import limits
from edgeformer_runtime.bundle.onnx_file import GraphFormatError, OnnxFile, Tensor, read_onnx
from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.bundle.operators import OPERATORS
from edgeformer_runtime.bundle.plain_files import shortened
from edgeformer_runtime.contract import WEIGHTS_FILE
from edgeformer_runtime.errors import BundleError

_NUMBER = re.compile(r"[0-9]{1,18}")


def check_graph(bundle: Bundle, file: str) -> OnnxFile:
    """Check a graph file of a bundle: format, operators, and that its weights are in the bundle's weight file.

    The engine would read weights from wherever the graph says, so it may open a graph only after this check.

    Raises:
        BundleError: the file is not a graph, exceeds a limit, uses an operator that bundles may not use, or refers to
            something other than the bundle's weights.
    """
    data = bundle.read(file, limits.MAX_GRAPH_BYTES)
    try:
        graph = read_onnx(data)
    except GraphFormatError as error:
        raise BundleError(
            f"Bundle `{bundle.path}`: `{file}` is not a graph as edgeformer writes it: {shortened(error)}. Export it "
            "again."
        ) from None
    if unknown := sorted(graph.operators.keys() - OPERATORS):
        names = ", ".join(map(shortened, unknown[:10]))
        raise BundleError(f"Bundle `{bundle.path}`: `{file}` uses operators that bundles may not use: {names}.")
    available = bundle.manifest.files[WEIGHTS_FILE].size
    external = [tensor for tensor in graph.tensors if tensor.external is not None]
    problem = next((problem for tensor in external if (problem := _weight_problem(tensor, available))), None)
    if problem is None and sum(tensor.nbytes for tensor in external) > limits.MAX_WEIGHT_READS * available:
        problem = f"its weights are more than {limits.MAX_WEIGHT_READS} times as large as `{WEIGHTS_FILE}`"
    if problem is not None:
        raise BundleError(f"Bundle `{bundle.path}`: `{file}` is damaged: {shortened(problem)}. Export it again.")
    return graph


def _weight_problem(tensor: Tensor, available: int) -> str | None:
    """Why a tensor is not a part of the weight file, which has ``available`` bytes; ``None`` if it is."""
    place = tensor.external or {}
    if place.get("location") != WEIGHTS_FILE:
        return f"it reads weights from `{place.get('location', '')}` instead of `{WEIGHTS_FILE}`"
    offset, length = place.get("offset", "0"), place.get("length", "")
    if not _NUMBER.fullmatch(offset) or not _NUMBER.fullmatch(length):
        return f"it does not say which bytes of `{WEIGHTS_FILE}` a weight has"
    if int(length) != tensor.nbytes or int(offset) + int(length) > available:
        return f"a weight has {tensor.nbytes} bytes, but {length} bytes of `{WEIGHTS_FILE}` from {offset} were given"
    return None
