"""Writes a model that was imported from Bergamot as its engine reads it: the reverse of the import."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.importers.marian.binary import EMBEDDINGS, FLOAT32, HEADER, VERSION, Item, QuantizedMatrix
from edgeformer.importers.marian.weights import OUTPUT_ACTIVATION, OUTPUT_WEIGHT, marian_modules, tables
from edgeformer.quantization import LinearScales
from edgeformer.run.folder import Run
from edgeformer_bench.peers.base import PeerError, Weights
from edgeformer_bench.peers.bergamot import FIRST_CHARACTER, MODEL_FILE, VOCABULARY_FILES
from edgeformer_bench.peers.converted import save_rules
from edgeformer_bench.peers.marian_model import marian_arrays, marian_config
from edgeformer_runtime.files import staged_folder
from edgeformer_runtime.tokenizer import Tokenizer

INT8, INTGEMM8 = 0x101, 0x4101
ALIGNMENT = 256
CHARACTERS = 0x10FFFE - FIRST_CHARACTER
"""Private-use characters, of which each token is one."""


def convert_run(run: Run, out: Path, weights: Weights) -> None:
    """Write a run's model with its integers and scales, and vocabularies with a character for each id.

    Raises:
        PeerError: Bergamot's engine has no such model.
    """
    assert weights == "int8"
    with staged_folder(out) as folder:
        model = run.load_model()
        config = marian_config(run, model)
        for name, needed in {"family": "ssru", "activation": "relu", "norm": "post"}.items():
            if config[name] != needed:
                raise PeerError(f"Firefox's engine needs `{name}` = {needed!r}, but this model has {config[name]!r}.")
        items = quantized_items(marian_arrays(model, config), config, run.info.quantization)
        (folder / MODEL_FILE).write_bytes(binary_model(items))
        for file, tokenizer in zip(VOCABULARY_FILES, (run.source_tokenizer, run.target_tokenizer), strict=True):
            (folder / file).write_bytes(vocabulary(tokenizer))
        save_rules(run, model.max_target_length, folder)


def quantized_items(
    arrays: Mapping[str, NDArray[Any]], config: Mapping[str, Any], quantization: Mapping[str, LinearScales]
) -> dict[str, Item]:
    """Turn the weights of quantized layers into the integers that they came from, and add the factors of activations.

    Raises:
        PeerError: a layer has no scales.
    """
    linear = [module for module in marian_modules(config) if not module.is_norm]
    layers = {module.weight: (module.ours, module.activation) for module in linear}
    layers |= {theirs: (ours, "") for ours, theirs in tables(config).items()}
    output = tables(config)["target_embedding.tokens"]
    if config["tied_embeddings"] in {"none", "inputs"}:
        output = OUTPUT_WEIGHT
        layers[output] = "projection", ""
    layers[output] = layers[output][0], OUTPUT_ACTIVATION
    items: dict[str, Item] = dict(arrays)
    for name, (ours, activation) in layers.items():
        scales = quantization.get(ours)
        if scales is None or (activation and scales.activation is None):
            raise PeerError(
                "Firefox's engine needs a model that was imported with 8-bit weights and scales of activations; "
                f"`{ours}` has none."
            )
        integers = np.rint(arrays[name] / np.float64(scales.weight))
        items[name] = QuantizedMatrix(integers.astype(np.int8), 1 / scales.weight)
        if activation and scales.activation is not None:
            items[activation] = np.full((1, 1), 1 / scales.activation, np.float32)
    return items


def binary_model(items: Mapping[str, Item]) -> bytes:
    """Write Marian's binary format; see :mod:`edgeformer.importers.marian.binary`.

    Args:
        items: arrays, in single precision or bytes, and quantized matrices by Marian's names.
    """
    stored = [(name.encode() + b"\0", *_stored(name, item)) for name, item in items.items()]
    data = struct.pack("<2Q", VERSION, len(stored))
    for name, kind, shape, content in stored:
        data += HEADER.pack(len(name), kind, len(shape), len(content))
    data += b"".join(name for name, *_ in stored)
    for _, _, shape, _ in stored:
        data += struct.pack(f"<{len(shape)}i", *shape)
    padding = ALIGNMENT - (len(data) + 8) % ALIGNMENT
    data += struct.pack("<Q", padding) + bytes(padding)
    return data + b"".join(content for *_, content in stored)


def _stored(name: str, item: Item) -> tuple[int, tuple[int, ...], bytes]:
    """Return type, axes and data of an item."""
    if isinstance(item, QuantizedMatrix):
        integers = item.integers if name in EMBEDDINGS else item.integers.T
        content = np.ascontiguousarray(integers).tobytes() + struct.pack("<f", item.factor)
        return INTGEMM8, item.integers.shape, _padded(content)
    kind = INT8 if item.dtype.itemsize == 1 else FLOAT32
    return kind, item.shape, _padded(np.ascontiguousarray(item).tobytes())


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)


def vocabulary(tokenizer: Tokenizer) -> bytes:
    """Write a SentencePiece model that splits text into characters, of which each stands for one id.

    Raises:
        PeerError: there are not enough characters.
    """
    from sentencepiece import sentencepiece_model_pb2

    count = tokenizer.vocab_size - 1  # the start token is none of Bergamot's
    if count > CHARACTERS:
        raise PeerError(f"Vocabularies may have at most {CHARACTERS:,} entries here; this one has {count:,}.")
    message: Any = sentencepiece_model_pb2
    model, kinds = message.ModelProto(), message.ModelProto.SentencePiece
    names = {tokenizer.eos_id: ("</s>", kinds.CONTROL), tokenizer.unk_id: ("<unk>", kinds.UNKNOWN)}
    for index in range(count):
        text, kind = names.get(index, (chr(FIRST_CHARACTER + index), kinds.NORMAL))
        model.pieces.add(piece=text, score=0.0, type=kind)
    model.trainer_spec.eos_id, model.trainer_spec.unk_id = tokenizer.eos_id, tokenizer.unk_id
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = model.normalizer_spec.remove_extra_whitespaces = False
    content: bytes = model.SerializeToString()
    return content
