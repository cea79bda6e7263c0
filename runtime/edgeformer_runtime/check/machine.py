"""The machine that runs the graphs: processor, instruction sets, engine."""

from __future__ import annotations

import platform

import msgspec
import numpy as np
import onnxruntime as ort

from edgeformer_runtime.engines.cpus import available_cpus, cpu_facts, cpu_flags
from edgeformer_runtime.engines.onnx import PROVIDERS
from edgeformer_runtime.engines.onnx_graphs import products_saturate

INSTRUCTIONS = {
    "avx2": "AVX2",
    "avx_vnni": "AVX-VNNI",
    "avx512f": "AVX512",
    "avx512_vnni": "AVX512-VNNI",
    "avx512_bf16": "AVX512-BF16",
    "amx_int8": "AMX-INT8",
    "asimd": "NEON",
    "asimdhp": "NEON fp16",
    "asimddp": "NEON dotprod",
    "i8mm": "NEON i8mm",
    "sve": "SVE",
}
"""Instruction sets for which the engine has dedicated kernels, keyed by their names in ``/proc/cpuinfo``."""


class Machine(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Everything that determines which kernels run."""

    architecture: str
    """Processor architecture, such as ``x86_64`` or ``aarch64``."""
    processor: str
    """Name of the processor, or empty if unknown; informational only."""
    instructions: tuple[str, ...]
    """Instruction sets from :data:`INSTRUCTIONS` that the processor supports."""
    products_saturate: bool
    """See :func:`~edgeformer_runtime.engines.onnx_graphs.products_saturate`."""
    engine: str
    """onnxruntime version."""
    provider: str
    """Execution provider."""


def this_machine(device: str) -> Machine:
    """Describe this machine when it runs graphs on ``cpu`` or ``cuda``."""
    name, instructions = _processor()
    return Machine(
        architecture=platform.machine(),
        processor=name,
        instructions=instructions,
        products_saturate=products_saturate(),
        engine=ort.__version__,
        provider=PROVIDERS[device],
    )


def machine_summary() -> str:
    """Summarize the processor, the CPUs available to this process, and the system in one line for reports."""
    processor = _processor()[0] or platform.machine()
    return f"{processor}, {available_cpus()} CPUs, {platform.system()} {platform.machine()}"


def _processor() -> tuple[str, tuple[str, ...]]:
    """Name and instruction sets of the processor, as far as the system reports them."""
    facts = cpu_facts()
    if facts is None:
        # numpy reports groups of instruction sets under its own names, such as X86_V3 for AVX2.
        extensions = np.show_config(mode="dicts").get("SIMD Extensions", {})
        return platform.processor(), (*extensions.get("baseline", ()), *extensions.get("found", ()))
    flags = cpu_flags(facts)
    return facts.get("model name", ""), tuple(name for flag, name in INSTRUCTIONS.items() if flag in flags)
