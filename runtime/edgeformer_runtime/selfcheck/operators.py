"""The operators that a bundle's graphs use, and whether the installed onnxruntime supports them."""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec
import onnxruntime as ort

from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.errors import BundleError


class Operators(msgspec.Struct, kw_only=True, frozen=True):
    """The operators that the graphs require."""

    opsets: dict[str, int]
    """Version of each operator set by domain; ``ai.onnx`` is the ONNX standard."""
    kinds: int
    """Number of distinct operators."""
    nodes: int
    """Number of nodes in all graphs."""


def check_operators(bundle: Bundle) -> Operators:
    """Check that the installed onnxruntime supports the operators that the manifest lists.

    The graphs are not read: their hashes guarantee that they are the graphs whose operators the exporter listed.

    Raises:
        BundleError: the manifest does not list the operators of a graph, or onnxruntime lacks an operator. The message
            lists every problem.
    """
    known, manifest = known_operators(), bundle.manifest
    used: Counter[str] = Counter()
    problems = []
    for file in manifest.precision:
        counts = manifest.report.operators.get(file)
        if not counts:
            problems.append(f"the manifest does not list the operators of `{file}`")
            continue
        used.update(counts)
        for operator in sorted(counts):
            domain, _, name = operator.rpartition(".")
            # Earlier exporters did not write domains.
            opsets = {domain: manifest.opsets.get(domain, 1)} if domain else manifest.opsets
            if known and not any(
                version <= opset for domain, opset in opsets.items() for version in known.get((domain, name), ())
            ):
                problems.append(f"`{file}` needs operator {name} of {_named(opsets)}")
    if problems:
        raise BundleError(
            f"Bundle `{bundle.path}` does not suit onnxruntime {ort.__version__}: " + "; ".join(problems) + "."
        )
    names = {domain or "ai.onnx": version for domain, version in manifest.opsets.items()}
    return Operators(opsets=names, kinds=len(used), nodes=used.total())


def known_operators() -> dict[tuple[str, str], list[int]]:
    """Versions of each operator in onnxruntime, by domain and name; empty if onnxruntime does not expose them."""
    list_schemas = getattr(ort.capi.onnxruntime_pybind11_state, "get_all_operator_schema", None)
    versions: dict[tuple[str, str], list[int]] = defaultdict(list)
    for schema in list_schemas() if list_schemas is not None else ():
        versions[schema.domain, schema.name].append(schema.since_version)
    return versions


def _named(opsets: dict[str, int]) -> str:
    return ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in opsets.items())
