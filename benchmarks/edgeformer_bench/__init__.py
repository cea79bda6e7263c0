"""Benchmarks: latency and memory of bundles, and comparisons with other engines."""

import edgeformer_runtime  # noqa: F401  # switches telemetry off before anything here loads onnxruntime
