"""Export: torch to ONNX, graph passes, quantization, parity, bundles. Importing this loads neither torch nor onnx."""
