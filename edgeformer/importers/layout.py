"""The weights of a Transformer, from a table with a toolkit's name for each of our modules.

``{}`` in both names is the number of the layer, and modules with the same name of theirs are one below the other there.
Position tables are as the toolkits' own engines compute them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from edgeformer.errors import ImporterError
from edgeformer.families import model_config
from edgeformer.importers.model import FloatArray, Weights
from edgeformer.model.transformer.config import TransformerConfig

SOURCE_TABLE, TARGET_TABLE = "source_embedding.tokens.weight", "target_embedding.tokens.weight"
OUTPUT_TABLE, OUTPUT_BIAS = "projection.weight", "projection.bias"
TYING = {(True, True): "all", (True, False): "inputs", (False, True): "decoder", (False, False): "none"}
"""``tied_embeddings``, by whether both embeddings are one, and whether the output projection is the target's."""


class MappedModule(NamedTuple):
    """A linear layer, a norm, or biases by distance."""

    ours: str
    """Our name."""
    theirs: str
    """The toolkit's name."""
    shape: tuple[int, ...]
    """Shape of the weight: ``(out, in)``, ``(D,)`` of a norm, or ``(buckets, H)`` of biases by distance."""
    has_bias: bool


def attention(ours: str, theirs: str, parts: Sequence[str]) -> dict[str, str]:
    """Name the projections of an attention.

    Args:
        ours: our name of the attention.
        theirs: the toolkit's name of a projection, with ``*`` for its part.
        parts: the parts for queries, keys, values and outputs.
    """
    names = ("query", "key", "value", "output")
    return {f"{ours}.{name}": theirs.replace("*", part) for name, part in zip(names, parts, strict=True)}


def modules(section: Mapping[str, Any], names: Mapping[str, str], first: int = 0) -> Iterator[MappedModule]:
    """List the modules of a model, except for tables of tokens and positions.

    Args:
        section: section ``[model]`` of the recipe; ``None`` stands for the default of a field.
        names: the table.
        first: the toolkit's number of the first layer.

    Raises:
        ConfigError: the section contradicts itself.
    """
    config = model_config({name: value for name, value in section.items() if value is not None})
    assert isinstance(config, TransformerConfig)
    absent = _absent(config, is_ssru=section["family"] == "ssru")
    listed = [(ours, theirs) for ours, theirs in names.items() if not absent.search(ours)]
    later = listed  # of all layers but the first
    if config.relative_bias is not None and not config.relative_bias.per_layer:
        later = [(ours, theirs) for ours, theirs in listed if "relative_bias" not in ours]
    for side, layers in (("encoder_layers.", config.encoder_layers), ("decoder_layers.", config.decoder_layers)):
        d_ff = (side == "decoder_layers." and config.decoder_d_ff) or config.d_ff
        for layer in range(layers):
            for ours, theirs in later if layer else listed:
                if ours.startswith(side):
                    yield MappedModule(ours.format(layer), theirs.format(first + layer), *_shape(ours, config, d_ff))
    for ours, theirs in listed:
        if "{}" not in ours:
            yield MappedModule(ours, theirs, *_shape(ours, config, 0))


class WeightConverter(ABC):
    """Gives arrays of a model our names, by one table per toolkit, and remembers which it has converted.

    Subclasses say how a toolkit stores an array and what its biases are called.

    Args:
        names: the toolkit's names of the arrays.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._taken: set[str] = set()
        self.weights: Weights = {}
        """Those converted so far, by our names."""

    def __contains__(self, name: str) -> bool:
        return name in self._names

    @abstractmethod
    def _read(self, name: str) -> FloatArray:
        """Read an array in single precision."""

    @abstractmethod
    def _weight(self, module: MappedModule, shape: tuple[int, ...]) -> FloatArray:
        """The weight of a module, in our layout."""

    @abstractmethod
    def _bias(self, module: MappedModule, size: int) -> FloatArray:
        """The bias of a module."""

    def take(self, name: str, *shape: int) -> FloatArray:
        """Return an array in single precision, which must have the shape, if one is given.

        Raises:
            ImporterError: the model lacks it, its shape is another one, or its numbers are no weights.
        """
        if name not in self:
            raise ImporterError(f"The model lacks the array `{name}`.")
        array = self._read(name)
        if shape and array.shape != shape:
            raise ImporterError(f"The array `{name}` has the shape {array.shape} instead of {shape}.")
        self._taken.add(name)
        return array

    def layers(self, section: Mapping[str, Any], names: Mapping[str, str], first: int = 0) -> None:
        """Convert all but the tables; see :func:`modules` for the arguments."""
        for _, same in groupby(modules(section, names, first), attrgetter("theirs")):
            merged = list(same)
            rows = [module.shape[0] for module in merged]
            parts = {"weight": self._weight(merged[0], (sum(rows), *merged[0].shape[1:]))}
            if merged[0].has_bias:
                parts["bias"] = self._bias(merged[0], sum(rows))
            for kind, array in parts.items():
                for module, part in zip(merged, np.split(array, np.cumsum(rows)[:-1]), strict=True):
                    self.weights[f"{module.ours}.{kind}"] = part

    def add_rows(self, sizes: tuple[int, int]) -> None:
        """Append rows of zeros for special tokens that the source and target vocabularies have, but not the model."""
        rows = dict.fromkeys((TARGET_TABLE, OUTPUT_TABLE, OUTPUT_BIAS), sizes[1]) | {SOURCE_TABLE: sizes[0]}
        for name in rows.keys() & self.weights.keys():
            table = self.weights[name]
            if added := rows[name] - len(table):
                self.weights[name] = np.concatenate((table, np.zeros((added, *table.shape[1:]), np.float32)))

    def refuse_surplus(self, ignored: str) -> None:
        """Refuse arrays that were not converted, unless a regular expression matches their names."""
        surplus = [name for name in sorted(self._names - self._taken) if not re.fullmatch(ignored, name)]
        if surplus:
            names = ", ".join(f"`{name[:80]}`" for name in surplus[:3])
            raise ImporterError(f"No model family has a place for {len(surplus)} of the arrays, such as {names}.")


def _absent(config: TransformerConfig, *, is_ssru: bool) -> re.Pattern[str]:
    """Parts of our names of modules that a model does not have."""
    is_absent = {
        r"feed_forward\.0$": config.ffn_gated,
        r"feed_forward\.0\.": not config.ffn_gated,
        r"target_layer\.attention": is_ssru,
        r"target_layer\.(forget|candidate)": not is_ssru,
        r"relative_bias": config.relative_bias is None,
        r"embedding\.norm": not config.embedding_norm,
        r"coder_norm": not config.has_final_norm,
    }
    return re.compile("|".join(pattern for pattern, absent in is_absent.items() if absent))


def _shape(ours: str, config: TransformerConfig, d_ff: int) -> tuple[tuple[int, ...], bool]:
    """Shape of a module's weight, and whether the module has a bias."""
    width, heads, bias = config.d_model, config.heads, config.relative_bias
    keys, values = heads * config.key_width, heads * config.value_width
    inner = (d_ff, width), config.ffn_bias
    known: dict[str, tuple[tuple[int, ...], bool]] = {
        "query": ((keys, width), config.attention_bias),
        "key": ((keys, width), config.attention_bias),
        "value": ((values, width), config.attention_bias),
        "output": ((width, values), config.attention_output_bias),
        "forget": ((width, width), True),
        "candidate": ((width, width), False),
        "relative_bias": ((0 if bias is None else bias.buckets, heads), False),
        **dict.fromkeys(("0", "gate", "linear"), inner),
        "3": ((width, d_ff), config.ffn_bias),
    }
    return known.get(ours.rpartition(".")[2], ((width,), config.norm_type == "layer"))


def tied_tables(source: FloatArray, target: FloatArray, output: FloatArray) -> tuple[str, Weights]:
    """Find out which tables of tokens, all ``(V, D)``, are one.

    Returns:
        ``tied_embeddings``, and the weights, equal ones once.
    """
    inputs, projection = (table is target or np.array_equal(table, target) for table in (source, output))
    weights: Weights = {TARGET_TABLE: target}
    if not inputs:
        weights[SOURCE_TABLE] = source
    if not projection:
        weights[OUTPUT_TABLE] = output
    return TYING[inputs, projection], weights


def halves(length: int, width: int, *, denominator: float, start: int = 0) -> FloatArray:
    """Sines in the left half and cosines in the right one, in float32.

    Args:
        length: number of positions.
        width: width of the table (D).
        denominator: what divides the index of a frequency: ``D / 2 - 1`` in Marian and in fairseq, so that the lowest
            frequency is exactly 1 / 10,000, and ``D / 2`` in the ports to Hugging Face's Marian and to CTranslate2.
        start: number of the first position.
    """
    position = np.arange(start, start + length, dtype=np.float64)[:, None]
    frequency = np.exp(-np.log(10_000.0) * np.arange(width // 2) / denominator)
    angle = position * frequency
    return np.concatenate((np.sin(angle), np.cos(angle)), axis=1).astype(np.float32)
