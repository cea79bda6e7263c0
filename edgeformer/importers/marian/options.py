"""Options of Marian models, and what they are called here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import MAX_YAML, parse_yaml
from edgeformer.importers.layout import TYING

OPTIONS = "special:model.yml"
"""Array with the options of the model, as YAML."""
MAX_LENGTH = 512
"""Positions of an imported model: Marian itself has no limit."""
NORM_EPSILON = 1e-6
ACTIVATIONS = {"relu": "relu", "swish": "silu", "gelu": "gelu"}
PRE_NORM, POST_NORM = ({"n", "dn", "nd"}, {"a", "da"}), ({"", "d"}, {"an", "dan"})
"""Operations before and after a sublayer: d is dropout, a adds the input, n normalizes."""


def read_options(arrays: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """Read the options that Marian stores with the weights."""
    if OPTIONS not in arrays:
        raise ImporterError(f"`{path}` has no `{OPTIONS}`, in which Marian stores its options.")
    data = arrays[OPTIONS]
    if not isinstance(data, np.ndarray) or data.dtype.itemsize != 1 or data.size > MAX_YAML:
        raise ImporterError(f"`{OPTIONS}` of `{path}` is damaged.")
    return read_yaml(data.astype(np.uint8).tobytes().rstrip(b"\0"), path)


def read_yaml(data: bytes, path: Path) -> Mapping[str, Any]:
    """Parse a YAML mapping."""
    try:
        tree = parse_yaml(data.decode("utf-8"))
    except ValueError as error:
        raise ImporterError(f"The options of `{path}` cannot be parsed: {error}.") from None
    if not isinstance(tree, dict):
        raise ImporterError(f"The options of `{path}` must be a mapping.")
    return tree


def refuse_unknown(options: Mapping[str, Any]) -> None:
    """Refuse options that change the computation in a way that the families cannot represent."""
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
    _norms(options)


def model_config(arrays: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Section ``[model]`` of the recipe."""
    depth = {side: int(options[f"{side}-depth"]) for side in ("enc", "dec")}
    ssru = options.get("transformer-decoder-autoreg") == "rnn"
    norm, has_top_norm = _norms(options)
    positions = _positions(arrays, options)
    length = len(arrays["Wpos"]) if positions == "learned" else MAX_LENGTH
    return {
        "family": "ssru" if ssru else "transformer",
        "d_model": int(options["dim-emb"]),
        "d_ff": int(options["transformer-dim-ffn"]),
        "decoder_d_ff": int(options.get("transformer-decoder-dim-ffn") or 0) or None,
        "heads": int(options["transformer-heads"]),
        "encoder_layers": depth["enc"],
        "decoder_layers": depth["dec"],
        "positions": positions,
        # Marian scales embeddings where it adds sinusoids, and only there.
        "scale_embeddings": positions == "table",
        "embedding_norm": "n" in str(options.get("transformer-postprocess-emb", "d")),
        "norm": norm,
        "norm_epsilon": NORM_EPSILON,
        "final_norm": has_top_norm,
        "activation": ACTIVATIONS[str(options.get("transformer-ffn-activation", "relu"))],
        "tied_embeddings": _tying(arrays, options),
        "output_bias": not options.get("output-omit-bias", False),
        "dropout": 0.1,
        "max_source_length": length,
        "max_target_length": length,
    }


def _positions(arrays: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    if options.get("transformer-disable-position-embeddings"):
        return "none"
    trained = ("transformer-train-position-embeddings", "transformer-train-positions")
    # Marian's Transformer ignores the first option, and then adds sinusoids.
    return "learned" if "Wpos" in arrays and any(options.get(name) for name in trained) else "table"


def _norms(options: Mapping[str, Any]) -> tuple[str, bool]:
    """Return where the norms of sublayers are, and whether the encoder and the decoder end with a norm.

    Raises:
        ImporterError: norms are in places where no family has them.
    """
    before = str(options.get("transformer-preprocess", ""))
    after = str(options.get("transformer-postprocess", "dan"))
    top = str(options.get("transformer-postprocess-top", ""))
    places = {"pre": PRE_NORM, "post": POST_NORM}
    norm = next((name for name, (first, last) in places.items() if before in first and after in last), None)
    if norm is None or top not in {"", "n", "d", "nd", "dn"}:
        raise ImporterError(
            f"Marian's options `transformer-preprocess` {before!r}, `transformer-postprocess` {after!r} and "
            f"`transformer-postprocess-top` {top!r} together are not a norm that a model family has."
        )
    return norm, "n" in top


def _tying(arrays: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    inputs = "Wemb" in arrays
    output = bool(options.get("tied-embeddings-all") or options.get("tied-embeddings"))
    return TYING[inputs, output]
