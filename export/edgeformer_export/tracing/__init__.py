"""From torch models to ONNX graphs."""
