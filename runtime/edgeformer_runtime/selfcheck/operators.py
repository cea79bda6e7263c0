"""The operators and weights of a bundle's graphs: whether the manifest tells the truth about them, and about the
longest source, the last step and the highest token ids; and whether the installed onnxruntime supports them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
import onnxruntime as ort

from edgeformer_runtime.bundle.graphs import check_graph
from edgeformer_runtime.bundle.manifest import Manifest
from edgeformer_runtime.bundle.onnx_file import ELEMENT_BITS, FLOAT16, INT8, UINT8, OnnxFile
from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.bundle.operators import ORT_OPERATORS
from edgeformer_runtime.bundle.plain_files import shortened
from edgeformer_runtime.contract import ATTENTION_FILE, ENCODER_FILE
from edgeformer_runtime.engine.onnx_session import OnnxSession
from edgeformer_runtime.errors import BundleError, ModelError
from edgeformer_runtime.limits import MAX_DECODING_BYTES
from edgeformer_runtime.precision import MIN_BLOCK, PRECISIONS, Precision

MAX_PARAMETER_RATIO = 4
"""How many times as many parameters as constants in the graphs a manifest may state. Training may have needed some that
no graph has."""
MAX_CONSTANT_RATIO = 8
"""How many times as many constants as parameters the graphs may have. Position tables and merged weights are not
parameters."""


class Operators(msgspec.Struct, kw_only=True, frozen=True):
    """The operators that the graphs require."""

    opsets: dict[str, int]
    """Version of each operator set by domain; ``ai.onnx`` is the ONNX standard."""
    kinds: int
    """Number of distinct operators."""
    nodes: int
    """Number of nodes in all graphs."""


def check_operators(bundle: Bundle) -> Operators:
    """Check that the installed onnxruntime supports the graphs, and that they are what the manifest says.

    Compares operators, operator sets, target, precision of the weights, and roughly the number of parameters.

    Raises:
        BundleError: onnxruntime lacks an operator, or a graph differs from the manifest. The message lists every
            problem.
    """
    manifest = bundle.manifest
    graphs = {file: check_graph(bundle, file) for file in manifest.precision}
    if problems := list(_differences(manifest, graphs)):
        raise BundleError(f"Bundle `{bundle.path}`: graphs and manifest differ: " + "; ".join(problems) + ".")
    if missing := list(_unsupported(graphs)):
        raise BundleError(
            f"Bundle `{bundle.path}` does not work with onnxruntime {ort.__version__}: " + "; ".join(missing) + "."
        )
    used = sum((graph.operators for graph in graphs.values()), Counter[str]())
    names = {domain or "ai.onnx": version for domain, version in manifest.opsets.items()}
    return Operators(opsets=names, kinds=len(used), nodes=used.total())


def _differences(manifest: Manifest, graphs: Mapping[str, OnnxFile]) -> Iterator[str]:
    """Yield each way in which the graphs are not what the manifest says."""
    for file, graph in graphs.items():
        listed = manifest.report.operators.get(file)
        if not listed:
            yield f"the manifest does not list the operators of `{file}`"
        elif listed != graph.operators:
            yield f"`{file}` has other operators than the manifest lists"
        for domain, version in graph.opsets.items():
            if manifest.opsets.get(domain) != version:
                name = shortened(domain) or "ai.onnx"
                yield f"`{file}` uses version {version} of {name}, which the manifest does not state"
        if manifest.target == "portable" and (own := sorted(graph.operators.keys() & ORT_OPERATORS)):
            yield f"`{file}` uses {own[0]}, which is not portable"
        expected, found = manifest.precision[file], _precision(graph)
        quantization = manifest.report.quantization
        kept = quantization.kept.values() if quantization is not None else ()
        if found != expected and found not in kept and not _is_narrow(graph, expected):
            yield f"`{file}` has weights in {found} instead of {expected}"
        # The engine gives zeros for rows that such a table lacks, where others fail.
        vocab_size = manifest.source_vocab_size if file == ENCODER_FILE else manifest.target_vocab_size
        if graph.block_tables and max(graph.block_tables) < vocab_size:
            yield f"`{file}` has embeddings of {max(graph.block_tables)} tokens instead of {vocab_size}"
    for domain in sorted(manifest.opsets.keys() - {domain for graph in graphs.values() for domain in graph.opsets}):
        yield f"the manifest states operator set `{domain or 'ai.onnx'}`, which no graph uses"
    constants = _constants(graphs)
    if not constants / MAX_CONSTANT_RATIO <= manifest.parameters <= constants * MAX_PARAMETER_RATIO:
        yield f"the manifest states {manifest.parameters:,} parameters, but the graphs have {constants:,} constants"


def _precision(graph: OnnxFile) -> Precision:
    """Lowest precision of a graph's matrix products, as far as its weights show it."""
    for name, traits in reversed(PRECISIONS.items()):
        if traits.in_blocks and traits.bits in graph.block_bits:
            return name
    types = {tensor.element_type for tensor in graph.tensors}
    return "int8" if INT8 in types else "fp16" if FLOAT16 in types else "fp32"


def _is_narrow(graph: OnnxFile, precision: Precision) -> bool:
    """Whether all weights are too narrow for the blocks of a precision, and have the encoder's precision instead."""
    traits = PRECISIONS[precision]
    matrices = [tensor.shape for tensor in graph.tensors if tensor.element_type == INT8 and len(tensor.shape) == 2]
    return (
        traits.in_blocks and _precision(graph) == traits.encoder and all(min(shape) < MIN_BLOCK for shape in matrices)
    )


def _constants(graphs: Mapping[str, OnnxFile]) -> int:
    """Number of values in all constants; those that several tensors read count once."""
    stored: dict[object, float] = {}
    for file, graph in graphs.items():
        for number, tensor in enumerate(graph.tensors):
            if tensor.external is None and file == ATTENTION_FILE:
                continue  # the decoder has the same
            key = (file, number) if tensor.external is None else tuple(sorted(tensor.external.items()))
            packed = tensor.element_type == UINT8 and graph.block_bits
            stored[key] = tensor.nbytes * 8 / (min(graph.block_bits) if packed else ELEMENT_BITS[tensor.element_type])
    return math.ceil(sum(stored.values()))


def _unsupported(graphs: Mapping[str, OnnxFile]) -> Iterator[str]:
    """Yield each operator that the installed onnxruntime lacks."""
    known = known_operators()
    for file, graph in graphs.items():
        for operator in sorted(graph.operators) if known else ():
            domain, _, name = operator.rpartition(".")
            version = graph.opsets.get(domain, 0)
            if not any(since <= version for since in known.get((domain, name), ())):
                yield f"`{file}` needs operator {name} of {domain or 'ai.onnx'} {version}"


def known_operators() -> dict[tuple[str, str], list[int]]:
    """Versions of each operator in onnxruntime, by domain and name; empty if onnxruntime does not expose them."""
    list_schemas = getattr(ort.capi.onnxruntime_pybind11_state, "get_all_operator_schema", None)
    versions: dict[tuple[str, str], list[int]] = defaultdict(list)
    for schema in list_schemas() if list_schemas is not None else ():
        versions[schema.domain, schema.name].append(schema.since_version)
    return versions


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
