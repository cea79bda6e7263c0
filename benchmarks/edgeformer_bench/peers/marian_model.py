"""Writes a model in Marian's own format: the reverse of the import."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import yaml
from numpy.typing import NDArray

from edgeformer.importers.layout import halves
from edgeformer.importers.marian.options import ACTIVATIONS, NORM_EPSILON, OPTIONS
from edgeformer.importers.marian.weights import OUTPUT_BIAS, OUTPUT_WEIGHT, marian_modules, tables
from edgeformer.model.base import EncoderDecoder
from edgeformer.model.transformer.model import Transformer
from edgeformer.run.folder import Run
from edgeformer_bench.peers.base import PeerError, Weights
from edgeformer_bench.peers.converted import save_rules, side_names
from edgeformer_bench.peers.marian import MODEL_FILE, VOCABULARY_FILES
from edgeformer_runtime.files import staged_folder

Arrays = dict[str, NDArray[Any]]


def convert_run(run: Run, out: Path, weights: Weights) -> None:
    """Write a run's model, and vocabularies with a name for each id.

    Raises:
        PeerError: Marian has no such model.
    """
    assert weights == "float32"
    with staged_folder(out) as folder:
        model = run.load_model()
        config = marian_config(run, model)
        if config["family"] == "transformer" and config["norm"] == "pre":
            raise PeerError(
                'With `norm` = "pre", Marian\'s decoder leaves out a norm that the model was trained with; its '
                "translations would be others."
            )
        arrays: Any = marian_arrays(model, config)
        np.savez(folder / MODEL_FILE, **arrays)
        for file, tokenizer in zip(VOCABULARY_FILES, (run.source_tokenizer, run.target_tokenizer), strict=True):
            names = side_names(tokenizer)[:-1]
            lines = [f"{json.dumps(name)}: {index}\n" for index, name in enumerate(names)]
            (folder / file).write_text("".join(lines), encoding="utf-8")
        save_rules(run, model.max_target_length, folder)


def marian_config(run: Run, model: EncoderDecoder) -> dict[str, Any]:
    """Return the configuration of a model that Marian has, with the family.

    Raises:
        PeerError: names the option that Marian lacks.
    """
    family = run.recipe.model["family"]
    if not isinstance(model, Transformer) or family not in {"transformer", "ssru"}:
        raise PeerError("Of our families, Marian has `transformer` and `ssru` only.")
    config = model.config
    tree = {**msgspec.structs.asdict(config), "family": family, "final_norm": config.has_final_norm}
    tree["d_k"], tree["d_v"] = config.key_width * config.heads, config.value_width * config.heads
    tree["scale_embeddings"] = config.embedding_scale
    needed: dict[str, tuple[Any, ...]] = {
        "d_k": (config.d_model,),
        "d_v": (config.d_model,),
        "attention_bias": (True,),
        "attention_output_bias": (True,),
        "attention_scale": ("d_k",),
        "share_head_projection": (False,),
        "positions": ("table", "none"),
        "relative_bias": (None,),
        "scale_embeddings": (1.0 if config.positions == "none" else config.d_model**0.5,),
        "norm_type": ("layer",),
        "norm_epsilon": (NORM_EPSILON,),
        "activation": tuple(ACTIVATIONS.values()),
        "encoder_attention_only": (False,),
        "ffn_bias": (True,),
        "ffn_gated": (False,),
        "output_scale": (1.0,),
    }
    for name, values in needed.items():
        if tree[name] not in values:
            raise PeerError(f"Marian has no model with this `{name}`, {getattr(config, name)!r}.")
    _require_positions(model)
    _require_text(run, model)
    return tree


def _require_positions(model: Transformer) -> None:
    """Refuse other tables than Marian's, which are not stored with its weights."""
    width = model.config.d_model
    for embedding in (model.source_embedding, model.target_embedding):
        if embedding.positions is not None:
            expected = halves(len(embedding.positions), width, denominator=width // 2 - 1)
            if np.abs(embedding.positions.numpy() - expected).max() > 1e-6:
                raise PeerError("Marian has no model with this `positions`; its table is another one.")


def _require_text(run: Run, model: Transformer) -> None:
    """Refuse other rules of special tokens than Marian's."""
    text = run.info.text
    if (text.suppress, text.forbid, text.source_suffix) != ((text.bos,), (text.unk,), (text.eos,)):
        raise PeerError(
            "Marian ends sources with the end token, and never writes the unknown token; this model differs."
        )
    if text.target_prefix:
        raise PeerError("Marian does not support a `target_prefix`.")
    for tokenizer in (run.source_tokenizer, run.target_tokenizer):
        if tokenizer.bos_id != tokenizer.vocab_size - 1:
            raise PeerError("Marian has no start token; that of this model is not the last entry of a vocabulary.")
    if model.target_embedding.tokens.weight[run.target_tokenizer.bos_id].any():
        raise PeerError("Marian's decoder starts from zeros; the start token of this model has other values.")


def marian_arrays(model: EncoderDecoder, config: Mapping[str, Any]) -> Arrays:
    """Return a model's weights by Marian's names, without the rows of the start token, and its options."""
    weights = {name: tensor.float().numpy() for name, tensor in model.state_dict().items()}
    arrays: Arrays = {}
    for module in marian_modules(config):
        weight = weights[f"{module.ours}.weight"]
        arrays[module.weight] = weight[None] if module.is_norm else weight.T
        if module.bias is not None:
            arrays[module.bias] = weights[f"{module.ours}.bias"][None]
    for ours, theirs in tables(config).items():
        arrays[theirs] = weights[f"{ours}.weight"][:-1]
    if config["tied_embeddings"] in {"none", "inputs"}:
        arrays[OUTPUT_WEIGHT] = weights["projection.weight"][:-1].T
    if config["output_bias"]:
        arrays[OUTPUT_BIAS] = weights["projection.bias"][None, :-1]
    sizes = [model.source_vocab_size - 1, model.target_vocab_size - 1]
    options = yaml.safe_dump({**marian_options(config), "dim-vocabs": sizes})
    arrays[OPTIONS] = np.frombuffer(options.encode() + b"\0", np.int8)
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def marian_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return Marian's options of a model, except for the sizes of its vocabularies; see :func:`marian_arrays`."""
    tied, pre_norm, ssru = config["tied_embeddings"], config["norm"] == "pre", config["family"] == "ssru"
    activations = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
    return {
        "type": "transformer",
        "version": "v1.12.0",
        "dim-emb": config["d_model"],
        "enc-depth": config["encoder_layers"],
        "dec-depth": config["decoder_layers"],
        "dec-cell": "ssru" if ssru else "gru",
        "input-types": [],
        "lemma-dim-emb": 0,
        "output-omit-bias": not config["output_bias"],
        "tied-embeddings": tied == "decoder",
        "tied-embeddings-all": tied == "all",
        "tied-embeddings-src": tied == "inputs",
        "transformer-decoder-autoreg": "rnn" if ssru else "self-attention",
        "transformer-decoder-dim-ffn": config["decoder_d_ff"] or 0,
        "transformer-decoder-ffn-depth": 0,
        "transformer-dim-ffn": config["d_ff"],
        "transformer-disable-position-embeddings": config["positions"] == "none",
        "transformer-ffn-activation": activations[config["activation"]],
        "transformer-ffn-depth": 2,
        "transformer-guided-alignment-layer": "last",
        "transformer-heads": config["heads"],
        "transformer-no-projection": False,
        "transformer-postprocess": "da" if pre_norm else "dan",
        "transformer-postprocess-emb": "nd" if config["embedding_norm"] else "d",
        "transformer-postprocess-top": "n" if config["final_norm"] else "",
        "transformer-preprocess": "n" if pre_norm else "",
        "transformer-tied-layers": [],
        "transformer-train-position-embeddings": False,
        "ulr": False,
    }
