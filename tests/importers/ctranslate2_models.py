"""Small models of CTranslate2, made by its own package, and a writer of its file format that is independent of both."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.converters import MarianConverter
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation
from numpy.typing import NDArray

from tests.importers.marian_models import MARIAN

WIDTH, INNER, HEADS, WORDS = 32, 48, 4, 60
SHARED = ["<unk>", "<s>", "</s>", *(f"w{index}" for index in range(WORDS))]
"""Entries of a vocabulary."""


class Random:
    """Arrays of weights: matrices that keep variances, so that many layers neither vanish nor explode."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def matrix(self, rows: int, columns: int, scale: float = 1.0) -> NDArray[np.float32]:
        values = self._random.normal(size=(rows, columns)) * scale / np.sqrt(columns)
        return np.asarray(values, np.float32)

    def vector(self, size: int, mean: float = 0.0) -> NDArray[np.float32]:
        return np.asarray(mean + 0.1 * self._random.normal(size=size), np.float32)


def fill(spec: Any, seed: int, sizes: tuple[int, int], *, bias: bool = True) -> Any:
    """Give random weights to a specification.

    Args:
        spec: made by ``TransformerSpec.from_config``.
        seed: of the weights.
        sizes: number of entries of the source and the target vocabulary.
        bias: whether linear layers have biases.
    """
    random = Random(seed)

    def linear(layer: Any, rows: int, columns: int, scale: float = 1.5) -> None:
        layer.weight = random.matrix(rows, columns, scale)
        if bias:
            layer.bias = random.vector(rows)

    def norm(layer: Any) -> None:
        layer.gamma = random.vector(WIDTH, 1.0)
        if hasattr(layer, "beta"):
            layer.beta = random.vector(WIDTH)

    for side, size in ((spec.encoder, sizes[0]), (spec.decoder, sizes[1])):
        table = side.embeddings[0] if side is spec.encoder else side.embeddings
        table.weight = random.matrix(size, WIDTH)
        for name in ("layer_norm", "layernorm_embedding"):
            if hasattr(side, name):
                norm(getattr(side, name))
        for layer in side.layer:
            linear(layer.self_attention.linear[0], 3 * WIDTH, WIDTH)
            linear(layer.self_attention.linear[1], WIDTH, WIDTH)
            norm(layer.self_attention.layer_norm)
            if side is spec.decoder:
                for block, rows in zip(layer.attention.linear, (WIDTH, 2 * WIDTH, WIDTH), strict=True):
                    linear(block, rows, WIDTH)
                norm(layer.attention.layer_norm)
            linear(layer.ffn.linear_0, INNER, WIDTH)
            if hasattr(layer.ffn, "linear_0_noact"):
                linear(layer.ffn.linear_0_noact, INNER, WIDTH)
            linear(layer.ffn.linear_1, WIDTH, INNER)
            norm(layer.ffn.layer_norm)
    spec.decoder.projection.weight = random.matrix(sizes[1], WIDTH, 3.0)
    return spec


def save(spec: Any, folder: Path, vocabularies: Sequence[Sequence[str]], quantization: str | None = None) -> Path:
    """Write a model as CTranslate2's converters do, and its arrays beside it, as its package has them."""
    end = list(vocabularies[-1]).index(spec.config.eos_token)
    spec.decoder.projection.weight[end] *= 3  # random weights hardly end otherwise
    folder.mkdir(parents=True)
    spec.register_source_vocabulary(list(vocabularies[0]))
    spec.register_target_vocabulary(list(vocabularies[-1]))
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))
    if "bfloat16" not in (quantization or ""):  # which numpy does not have
        arrays = {name: value.numpy() for name, value in spec.variables().items() if not isinstance(value, str)}
        np.savez(arrays_file(folder), **arrays)
    return folder


def arrays_file(folder: Path) -> Path:
    """File with the arrays of a model that :func:`save` wrote."""
    return folder.with_suffix(".npz")


def opennmt_py(folder: Path, quantization: str | None = None) -> Path:
    """Norms before sublayers, a source vocabulary without start and end, and interleaved positions."""
    source, target = ["<unk>", "<blank>", *SHARED[3:]], ["<unk>", "<blank>", "<s>", "</s>", *SHARED[10:]]
    spec: Any = TransformerSpec.from_config((2, 2), HEADS, pre_norm=True)
    fill(spec, 1, (len(source), len(target)))
    spec.decoder.projection.bias = Random(9).vector(len(target))
    angles = np.arange(64)[:, None] / 10_000 ** (np.arange(0, WIDTH, 2) / WIDTH)
    table = np.stack((np.sin(angles), np.cos(angles)), -1).reshape(64, WIDTH).astype(np.float32)
    spec.encoder.position_encodings.encodings = spec.decoder.position_encodings.encodings = table
    return save(spec, folder, (source, target), quantization)


def opennmt_tf(folder: Path, quantization: str | None = None) -> Path:
    """Positions that the engine computes, an end token after the source, and different depths."""
    spec: Any = TransformerSpec.from_config((3, 1), HEADS, pre_norm=True, activation=Activation.GELUTanh)
    fill(spec, 2, (len(SHARED), len(SHARED)))
    spec.decoder.embeddings.weight = spec.encoder.embeddings[0].weight
    spec.config.add_source_bos = spec.config.add_source_eos = True
    return save(spec, folder, (SHARED,), quantization)


def fairseq(folder: Path, quantization: str | None = None) -> Path:
    """The decoder starts with the end token; norms of embeddings, of which there is one table."""
    spec: Any = TransformerSpec.from_config((2, 2), HEADS, activation=Activation.GELU, layernorm_embedding=True)
    fill(spec, 3, (len(SHARED), len(SHARED)))
    spec.decoder.projection.weight = spec.decoder.embeddings.weight = spec.encoder.embeddings[0].weight
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = 2.5
    spec.config.decoder_start_token, spec.config.add_source_eos = "</s>", True
    return save(spec, folder, (SHARED,), quantization)


def t5(folder: Path, quantization: str | None = None, *, per_layer: bool = False) -> Path:
    """RMSNorm, biases by distance, no other biases, gated layers, scaled outputs."""
    spec: Any = TransformerSpec.from_config(
        (2, 2), HEADS, activation=Activation.GELUTanh, ffn_glu=True, rms_norm=True, relative_attention_bias=True
    )
    tokens = ["<pad>", "</s>", "<unk>", *SHARED[3:]]
    fill(spec, 4, (len(tokens), len(tokens)), bias=False)
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = False
        for index, layer in enumerate(side.layer):
            layer.self_attention.relative_attention_bias = Random(index * per_layer).matrix(16, HEADS, 2.0)
            layer.self_attention.relative_attention_max_distance = np.int32(20)
            for attention in [layer.self_attention, *([layer.attention] if side is spec.decoder else [])]:
                attention.queries_scale = 1.0
    spec.encoder.embeddings[0].weight *= 3
    spec.decoder.projection.weight = spec.decoder.embeddings.weight = spec.encoder.embeddings[0].weight
    spec.decoder.scale_outputs = WIDTH**-0.5
    spec.config.bos_token = spec.config.decoder_start_token = "<pad>"
    return save(spec, folder, (tokens,), quantization)


def m2m(folder: Path, quantization: str | None = None) -> Path:
    """Tokens of languages before sources and targets."""
    spec: Any = TransformerSpec.from_config((2, 2), HEADS, pre_norm=True)
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *SHARED[3:], "__en__", "__fr__", "__de__"]
    fill(spec, 5, (len(tokens), len(tokens)))
    spec.decoder.embeddings.weight = spec.encoder.embeddings[0].weight
    spec.config.decoder_start_token = "</s>"
    return save(spec, folder, (tokens,), quantization)


def marian(folder: Path, quantization: str | None = None) -> Path:
    """The committed model of Marian with self-attention, by CTranslate2's converter, with other words."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    model, vocabulary = folder.with_suffix(".marian.npz"), folder.with_suffix(".yml")
    arrays: Any = dict(np.load(MARIAN / "self-attention" / "model.npz"))
    options = arrays["special:model.yml"].tobytes().rstrip(b"\0")  # the converter removes only one
    np.savez(model, **{**arrays, "special:model.yml": np.frombuffer(options + b"\0", np.int8)})
    tokens = ["</s>", "<unk>", *(f"w{index}" for index in range(len(arrays["Wemb"]) - 2))]
    vocabulary.write_text("".join(f"{token}: {index}\n" for index, token in enumerate(tokens)))
    converter = MarianConverter(str(model), [str(vocabulary)] * 2)
    return Path(converter.convert(str(folder), quantization=quantization))


def t5_per_layer(folder: Path, quantization: str | None = None) -> Path:
    """T5, whose layers have biases of their own (UMT5)."""
    return t5(folder, quantization, per_layer=True)


MODELS: dict[str, Callable[..., Path]] = {
    "opennmt_py": opennmt_py,
    "opennmt_tf": opennmt_tf,
    "fairseq": fairseq,
    "t5": t5,
    "t5_per_layer": t5_per_layer,
    "m2m": m2m,
    "marian": marian,
}


def write_model_file(
    path: Path,
    arrays: Mapping[str, NDArray[Any]],
    *,
    version: int,
    specification: str = "TransformerSpec",
    revision: int = 7,
    aliases: Mapping[str, str] | None = None,
) -> list[int]:
    """Write a ``model.bin`` of any version, as CTranslate2 1 to 4 do.

    Returns:
        Offsets of all bytes that are not data of arrays.
    """
    types = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}
    content, structure = bytearray(), list[int]()

    def put(data: bytes) -> None:
        structure.extend(range(len(content), len(content) + len(data)))
        content.extend(data)

    def put_string(text: str) -> None:
        put(struct.pack("<H", len(text.encode()) + 1) + text.encode() + b"\0")

    put(struct.pack("<I", version))
    if version >= 2:
        put_string(specification)
        put(struct.pack("<I", revision))
    put(struct.pack("<I", len(arrays)))
    for name, array in sorted(arrays.items()):
        put_string(name)
        put(struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape))
        kind, count = (types[array.dtype.name], array.nbytes) if version >= 4 else (array.itemsize, array.size)
        put(struct.pack("<BI", kind, count))
        content += array.tobytes()
    if version >= 3:
        put(struct.pack("<I", len(aliases or {})))
        for alias, name in (aliases or {}).items():
            put_string(alias)
            put_string(name)
    path.write_bytes(content)
    return structure
