"""SentencePiece models from the ``tokenizer.json`` that ``transformers`` saves for them.

Its components divide some text otherwise than SentencePiece does, but its data are those of the model: pieces, scores
or the order of merges, and rules for characters.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import read_bytes
from edgeformer.importers.tokenizers.model_file import SentencePieceModel, parsed

MAX_BYTES = 64 << 20
"""Size of the file; that of NLLB has half of this."""
SPACES = {"Regex": " {2,}"}
"""Spaces that the converters of ``transformers`` replace with a single one."""


def read_library_file(path: Path) -> SentencePieceModel:
    """Rebuild a SentencePiece model.

    Raises:
        ImporterError: the file is damaged, or lacks a part of the model.
    """
    try:
        return _model(path, json.loads(read_bytes(path, MAX_BYTES)))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        why = str(error) if type(error) is ValueError else "it is damaged"
        raise ImporterError(
            f"`{path}` does not hold all of its SentencePiece model: {why}. Give the model itself with --tokenizer."
        ) from None


def _model(path: Path, tree: Mapping[str, Any]) -> SentencePieceModel:
    model, normalizers, splitters = tree["model"], _parts(tree["normalizer"]), _parts(tree["pre_tokenizer"])
    rules = [part["precompiled_charsmap"] for part in normalizers if part["type"] == "Precompiled"]
    schemes = [part.get("prepend_scheme", "always") for part in splitters if part["type"] == "Metaspace"]
    others = [part for part in normalizers if part["type"] not in ("Precompiled", "Strip")]
    if len(rules) != 1 or any(part.get("pattern") != SPACES for part in others):
        raise ValueError("it lacks the rules for characters, or has others")
    if len(schemes) != 1 or schemes[0] not in ("always", "first"):
        raise ValueError("it does not add a space before a text")
    if is_bpe := model["type"] == "BPE":
        names, unk = sorted(model["vocab"], key=model["vocab"].__getitem__), model["unk_token"]
        scores: dict[str, float] = {}
        for number, pair in enumerate(model["merges"]):
            scores.setdefault("".join(pair if isinstance(pair, list) else pair.split(" ")), -number)
    elif model["type"] == "Unigram":
        names, unk = [name for name, _ in model["vocab"]], model["vocab"][model["unk_id"]][0]
        scores = dict(model["vocab"])
    else:
        raise ValueError("it has neither scores nor merges")
    if "unk" not in unk.lower():  # transformers writes a fixed id for models of its own T5
        raise ValueError(f"its unknown piece is {unk[:40]!r}")
    proto = parsed(b"")
    kind = proto.SentencePiece
    kinds = {
        entry["content"]: kind.CONTROL if entry["special"] else kind.USER_DEFINED for entry in tree["added_tokens"]
    }
    if model["byte_fallback"]:
        kinds |= {f"<0x{byte:02X}>": kind.BYTE for byte in range(256)}
    kinds[unk] = kind.UNKNOWN
    proto.trainer_spec.model_type = proto.trainer_spec.BPE if is_bpe else proto.trainer_spec.UNIGRAM
    proto.trainer_spec.byte_fallback = model["byte_fallback"]
    proto.normalizer_spec.precompiled_charsmap = base64.b64decode(rules[0], validate=True)
    for name in names:
        proto.pieces.add(piece=name, score=scores.get(name, 0), type=kinds.get(name, kind.NORMAL))
    return SentencePieceModel(path, proto)


def _parts(component: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """The components of a sequence, or the component itself."""
    if component is None:
        return []
    return [*component.get("normalizers", ()), *component.get("pretokenizers", ())] or [component]
