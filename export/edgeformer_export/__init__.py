"""Export: torch to ONNX, graph passes, quantization, parity, bundles. Importing this loads neither torch nor onnx."""

import edgeformer_runtime  # noqa: F401  # switches telemetry off before anything here loads onnxruntime
