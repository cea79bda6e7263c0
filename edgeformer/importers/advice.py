"""Advice on files that no importer reads."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

_CONVERT = "is a model of {}; convert it with `{}`, and import the folder that this writes".format
_LOAD = "has weights of {} only; load them with transformers 4 and `from_{}=True`, and save the model".format
_FOREIGN = {
    "manifest.json": "is a bundle; put it into a folder of models, and `edgeformer models` finds it",
    "run.json": "is a run; make a bundle of it with `edgeformer export`",
    "adapter_config.json": "is a LoRA adapter; merge it into its base model with peft and import the result",
    "*.gguf": "has a GGUF file, whose weights are quantized for llama.cpp; import the original model",
    "*.nemo": "is a model of NeMo, which cannot be converted to a format that can be imported",
    "*.onnx": "has ONNX graphs, as Optimum exports them, without the weights; import the original model",
    "tf_model.h5": _LOAD("TensorFlow", "tf"),
    "flax_model.msgpack": _LOAD("Flax", "flax"),
    "dict.*.txt": _CONVERT("fairseq", "ct2-fairseq-converter"),
    "*.pt": _CONVERT("PyTorch", "ct2-opennmt-py-converter` or `ct2-fairseq-converter"),
    "*.index": _CONVERT("OpenNMT-tf", "ct2-opennmt-tf-converter"),
    "model.*.safetensors": _CONVERT("Eole", "python -m ctranslate2.converters.eole_ct2"),
    **dict.fromkeys(
        ("*.tar", "*.tar.?z*", "*.tgz", "*.7z"), "is packed; unpack the archive, and import the folder with its files"
    ),
    "*.safetensors": "has weights, but nothing says what they are of; give the folder that also has config.json",
}
"""Advice on a folder with a file of this name; the first that matches counts."""


def advice(path: Path) -> str:
    """Say what a file or folder has instead of a model, and what to do, as the end of a sentence; empty if unknown."""
    names = [path.name] if path.is_file() else [file.name for file in path.glob("*")]
    found = (words for pattern, words in _FOREIGN.items() if any(fnmatch(name, pattern) for name in names))
    return next(found, "")
