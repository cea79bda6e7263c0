"""Step sessions on ONNX Runtime."""
