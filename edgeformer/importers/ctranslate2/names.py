"""Names of the arrays in files of older versions, and what the latest version calls them."""

from __future__ import annotations

import numpy as np

from edgeformer.errors import ImporterError
from edgeformer.importers.ctranslate2.model_file import Array, ModelFile

HEADS = {"": 8, "TransformerBase": 8, "TransformerBig": 16, "TransformerSpec": 8}
"""Specifications of encoder–decoder Transformers, and the number of heads where a model does not state it."""
LATEST_REVISION = 7
_OPENNMT_TF = (
    ("transformer/", ""),
    (":0", ""),
    ("w_embs", "embeddings/weight"),
    ("kernel", "weight"),
    ("LayerNorm", "layer_norm"),
    ("dense", "projection"),
    ("conv1d_", "linear_"),
    ("conv1d", "linear_0"),
)
"""Revision 1 has the names of OpenNMT-tf. Each is replaced once."""
_OF_BOTH_SIDES = ("num_heads", "pre_norm", "activation")
"""Before revision 5, stated for the encoder and the decoder together."""


def current_names(file: ModelFile) -> dict[str, Array]:
    """Return the arrays by the names that the latest revision has for them.

    Raises:
        ImporterError: the model is not an encoder–decoder Transformer, or of a later revision.
    """
    if file.specification not in HEADS:
        raise ImporterError(
            f"The model is a `{file.specification}`; only encoder–decoder Transformers for text, `TransformerSpec`, "
            "can be imported."
        )
    if file.revision > LATEST_REVISION:
        raise ImporterError(
            f"The model has the revision {file.revision} of `{file.specification}`; revisions up to {LATEST_REVISION} "
            "are supported."
        )
    arrays = dict(file.arrays)
    if file.revision == 1:
        arrays = {_from_opennmt_tf(name): array for name, array in arrays.items()}
    if file.revision < 3:
        arrays.setdefault("num_heads", np.array(HEADS[file.specification]))
    if file.revision < 5:
        for name in _OF_BOTH_SIDES:
            if name in arrays:
                value = arrays.pop(name)
                arrays |= {f"{side}/{name}": value for side in ("encoder", "decoder")}
    for side in ("encoder", "decoder"):
        if (old := f"{side}/embeddings/multiply_by_sqrt_depth") in arrays:
            arrays.setdefault(f"{side}/scale_embeddings", arrays.pop(old))
    for suffix in ("weight", "weight_scale"):
        if (old := f"encoder/embeddings/{suffix}") in arrays:
            arrays.setdefault(f"encoder/embeddings_0/{suffix}", arrays.pop(old))
    return arrays


def _from_opennmt_tf(name: str) -> str:
    for old, new in _OPENNMT_TF:
        name = name.replace(old, new, 1)
    if "encoder" in name:
        return name.replace("multi_head", "self_attention", 1)
    return name.replace("masked_multi_head", "self_attention", 1).replace("multi_head", "attention", 1)
