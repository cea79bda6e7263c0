"""The step session on ONNX Runtime: graphs, state tensors and bindings."""
