"""Marian's models: ``model.npz`` with its options inside, vocabularies beside it.

The arithmetic is that of Marian's own CPU decoder (Junczys-Dowmunt et al. 2018): positions have sines in the left half,
cosines in the right one, and frequencies with the exponent ``-i / (D / 2 - 1)``; norms add 1e-6; the first input of the
decoder is a zero vector plus the first position.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import read_npz, sha256_of
from edgeformer.importers.marian_files import Files, find_files, has_marian_model, read_options, read_vocabularies
from edgeformer.importers.model import ImportedModel, Weights
from edgeformer.importers.positions import halves
from edgeformer.importers.registry import Importer

MAX_LENGTH = 512
"""Positions of an imported model: Marian itself has no limit."""
NORM_EPSILON = 1e-6
ACTIVATIONS = {"relu": "relu", "swish": "silu", "gelu": "gelu"}
POST_NORM = {"dan", "an"}
"""Operations after a sublayer: d is dropout, a adds the input, n normalizes."""

Arrays = Mapping[str, NDArray[Any]]


def read_marian(path: Path) -> ImportedModel:
    """Read a model of Marian.

    Args:
        path: the ``.npz`` file, or a folder that has one, with its vocabularies beside it.

    Raises:
        ImporterError: a file is missing or damaged, or the model has an option that the families cannot represent.
    """
    files = find_files(path)
    arrays = read_npz(files.model)
    options = read_options(arrays, files.model)
    return imported(arrays, options, files)


def imported(arrays: Arrays, options: Mapping[str, Any], files: Files) -> ImportedModel:
    """Convert the arrays of a model, in Marian's names and shapes.

    Raises:
        ImporterError: as for :func:`read_marian`.
    """
    refuse_unknown(options)
    config = model_config(arrays, options)
    weights = _Weights(arrays, config).convert()
    vocabularies = read_vocabularies(files)
    for side, vocabulary in zip(("source", "target"), vocabularies.sizes, strict=True):
        rows = len(weights[f"{side}_embedding.tokens.weight"]) if f"{side}_embedding.tokens.weight" in weights else None
        if rows is not None and rows != vocabulary:
            raise ImporterError(
                f"The {side} vocabulary has {vocabulary - 1:,} entries, but the model has {rows - 1:,}."
            )
    return ImportedModel(
        model=config,
        weights=weights,
        source_tokenizer=vocabularies.source,
        target_tokenizer=vocabularies.target,
        text=vocabularies.text,
        generation=files.generation(),
        hashes=sha256_of([files.model, *files.vocabularies, *(files.pieces or ())]),
        notes=files.notes(),
    )


def refuse_unknown(options: Mapping[str, Any]) -> None:
    """Refuse options that change the computation in a way that the families cannot represent.

    Raises:
        ImporterError: names the option.
    """
    allowed: dict[str, tuple[Any, ...]] = {
        "type": ("transformer",),
        "transformer-ffn-depth": (2,),
        "transformer-decoder-ffn-depth": (0, 2),
        "transformer-no-projection": (False,),
        "transformer-rnn-projection": (False,),
        "transformer-no-affine": (False,),
        "transformer-no-bias": (False,),
        "transformer-tied-layers": ([],),
        "transformer-decoder-autoreg": ("self-attention", "rnn"),
        "transformer-ffn-activation": tuple(ACTIVATIONS),
        "transformer-pool": (False,),
        "input-types": ([], ["sequence"], ["sequence", "sequence"]),
        "lemma-dim-emb": (0, -1),
        "factors-dim-emb": (0,),
        "right-left": (False,),
        "transformer-attention-mask": ("default",),
        "transformer-alibi-trainable": (False,),
        "transformer-alibi-shift": (False,),
        "ulr": (False,),
    }
    for name, values in allowed.items():
        if (value := options.get(name, values[0])) not in values:
            raise ImporterError(f"Marian's option `{name}` is {value!r}, which no model family can represent.")
    if options.get("transformer-decoder-autoreg") == "rnn" and options.get("dec-cell") != "ssru":
        raise ImporterError(f"Marian's option `dec-cell` is {options.get('dec-cell')!r}; only `ssru` is supported.")
    if str(options.get("transformer-postprocess-emb", "d")) not in {"", "d", "n", "nd", "dn"}:
        raise ImporterError("Marian's option `transformer-postprocess-emb` may have d and n only.")
    _has_top_norm(options)


def model_config(arrays: Arrays, options: Mapping[str, Any]) -> dict[str, Any]:
    """Section ``[model]`` of the recipe."""
    depth = {side: int(options[f"{side}-depth"]) for side in ("enc", "dec")}
    ssru = options.get("transformer-decoder-autoreg") == "rnn"
    positions = len(arrays["Wpos"]) if "Wpos" in arrays else MAX_LENGTH
    return {
        "family": "ssru" if ssru else "transformer",
        "d_model": int(options["dim-emb"]),
        "d_ff": int(options["transformer-dim-ffn"]),
        "decoder_d_ff": int(options.get("transformer-decoder-dim-ffn") or 0) or None,
        "heads": int(options["transformer-heads"]),
        "encoder_layers": depth["enc"],
        "decoder_layers": depth["dec"],
        "positions": _positions(options),
        "embedding_norm": "n" in str(options.get("transformer-postprocess-emb", "d")),
        "norm": "post",
        "norm_epsilon": NORM_EPSILON,
        "final_norm": _has_top_norm(options),
        "activation": ACTIVATIONS[str(options.get("transformer-ffn-activation", "relu"))],
        "tied_embeddings": _tying(arrays, options),
        "output_bias": not options.get("output-omit-bias", False),
        "dropout": 0.1,
        "max_source_length": positions,
        "max_target_length": positions,
    }


def _positions(options: Mapping[str, Any]) -> str:
    if options.get("transformer-disable-position-embeddings"):
        return "none"
    trained = ("transformer-train-position-embeddings", "transformer-train-positions")
    return "learned" if any(options.get(name) for name in trained) else "table"


def _has_top_norm(options: Mapping[str, Any]) -> bool:
    """Whether the encoder and the decoder end with a norm. All others must be behind sublayers.

    Raises:
        ImporterError: they are elsewhere.
    """
    before = str(options.get("transformer-preprocess", ""))
    after = str(options.get("transformer-postprocess", "dan"))
    top = str(options.get("transformer-postprocess-top", ""))
    if before == "" and after in POST_NORM and top in {"", "n"}:
        return top == "n"
    if before == "n":
        raise ImporterError(
            "Marian's option `transformer-preprocess` is 'n': its norms are before sublayers, and only queries are "
            "normalized, which no model family can represent."
        )
    raise ImporterError(
        f"Marian's options `transformer-preprocess` {before!r}, `transformer-postprocess` {after!r} and "
        f"`transformer-postprocess-top` {top!r} together are no norm that a model family has."
    )


def _tying(arrays: Arrays, options: Mapping[str, Any]) -> str:
    inputs = "Wemb" in arrays
    output = bool(options.get("tied-embeddings-all") or options.get("tied-embeddings"))
    names = {(True, True): "all", (True, False): "inputs", (False, True): "decoder", (False, False): "none"}
    return names[inputs, output]


class _Weights:
    """Converts arrays from Marian's names and shapes, ``(in, out)`` and ``(1, out)``."""

    def __init__(self, arrays: Arrays, config: Mapping[str, Any]) -> None:
        self.arrays, self.config = arrays, config
        self.weights: Weights = {}

    def convert(self) -> Weights:
        config = self.config
        for index in range(config["encoder_layers"]):
            ours, theirs = f"encoder_layers.{index}", f"encoder_l{index + 1}"
            self.attention(f"{ours}.attention", f"{ours}.attention_residual", f"{theirs}_self")
            self.feed_forward(ours, theirs)
        for index in range(config["decoder_layers"]):
            ours, theirs = f"decoder_layers.{index}", f"decoder_l{index + 1}"
            if config["family"] == "ssru":
                self.linear(f"{ours}.target_layer.forget", f"{theirs}_rnn_Wf", f"{theirs}_rnn_bf")
                self.linear(f"{ours}.target_layer.candidate", f"{theirs}_rnn_W", None)
                self.norm(f"{ours}.target_residual.norm", f"{theirs}_rnn_ffn_ln")
            else:
                self.attention(f"{ours}.target_layer.attention", f"{ours}.target_residual", f"{theirs}_self")
            self.attention(f"{ours}.cross_attention", f"{ours}.cross_residual", f"{theirs}_context")
            self.feed_forward(ours, theirs)
        if config["final_norm"]:
            for side in ("encoder", "decoder"):
                self.norm(f"{side}_norm", f"{side}_top_ln")
        self.embeddings()
        return self.weights

    def array(self, name: str) -> NDArray[np.float32]:
        if name not in self.arrays:
            raise ImporterError(f"The model lacks the array `{name}`.")
        return np.asarray(self.arrays[name], dtype=np.float32)

    def linear(self, ours: str, weight: str, bias: str | None) -> None:
        self.weights[f"{ours}.weight"] = self.array(weight).T
        if bias is not None:
            self.weights[f"{ours}.bias"] = self.array(bias).reshape(-1)

    def norm(self, ours: str, theirs: str, after: str = "") -> None:
        self.weights[f"{ours}.weight"] = self.array(f"{theirs}_scale{after}").reshape(-1)
        self.weights[f"{ours}.bias"] = self.array(f"{theirs}_bias{after}").reshape(-1)

    def attention(self, ours: str, residual: str, theirs: str) -> None:
        for part, letter in {"query": "q", "key": "k", "value": "v", "output": "o"}.items():
            self.linear(f"{ours}.{part}", f"{theirs}_W{letter}", f"{theirs}_b{letter}")
        self.norm(f"{residual}.norm", f"{theirs}_Wo_ln")

    def feed_forward(self, ours: str, theirs: str) -> None:
        for place, number in ((0, 1), (3, 2)):
            self.linear(f"{ours}.feed_forward.{place}", f"{theirs}_ffn_W{number}", f"{theirs}_ffn_b{number}")
        self.norm(f"{ours}.feed_forward_residual.norm", f"{theirs}_ffn_ffn_ln")

    def embeddings(self) -> None:
        """Tables of tokens, which get a row of zeros for the start token, and of positions."""
        config, weights = self.config, self.weights
        tied = config["tied_embeddings"]
        for side in ("target",) if tied in {"all", "inputs"} else ("source", "target"):
            name = "Wemb" if tied in {"all", "inputs"} else {"source": "encoder_Wemb", "target": "decoder_Wemb"}[side]
            weights[f"{side}_embedding.tokens.weight"] = with_start_row(self.array(name))
        if tied in {"none", "inputs"}:
            output = "decoder_ff_logit_out_W"
            rows = self.array(f"{output}t") if f"{output}t" in self.arrays else self.array(output).T
            weights["projection.weight"] = with_start_row(rows)
        if config["output_bias"]:
            bias = self.array("decoder_ff_logit_out_b").reshape(-1, 1)
            weights["projection.bias"] = with_start_row(bias).reshape(-1)
        if config["positions"] != "none":
            trained, width = config["positions"] == "learned", config["d_model"]
            positions = self.array("Wpos") if trained else halves(MAX_LENGTH, width, denominator=width // 2 - 1)
            weights["source_embedding.positions"] = weights["target_embedding.positions"] = positions
        if config["embedding_norm"]:
            for side, prefix in (("source", "encoder"), ("target", "decoder")):
                self.norm(f"{side}_embedding.norm", f"{prefix}_emb_ln", after="_post")


def with_start_row(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Append the row of the start token, zeros."""
    return np.concatenate((rows, np.zeros((1, rows.shape[1]), np.float32)))


MARIAN = Importer(
    name="marian",
    description="Marian's model.npz with its vocabularies, OPUS-MT's among them",
    recognizes=has_marian_model,
    read=read_marian,
)
