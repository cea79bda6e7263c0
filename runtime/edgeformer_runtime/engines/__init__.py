"""What runs the models of bundles: ONNX Runtime, or the kernels."""

from typing import Literal, get_args

Engine = Literal["onnxruntime", "kernels"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
