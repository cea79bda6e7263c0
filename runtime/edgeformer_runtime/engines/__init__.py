"""Engines that run the models of bundles: ONNX Runtime, and the kernels."""

from typing import Literal, get_args

Engine = Literal["onnxruntime", "kernels"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
