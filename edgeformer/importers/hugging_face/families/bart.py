"""BART: the original, with learned positions and byte-level BPE."""

from __future__ import annotations

from edgeformer.errors import ImporterError
from edgeformer.importers.hugging_face.byte_level import byte_level_side
from edgeformer.importers.hugging_face.checkpoint import Rows
from edgeformer.importers.hugging_face.families.bart_network import BartNetwork
from edgeformer.importers.hugging_face.family import BOS, EOS, PAD, UNK, ModelFamily, ModelVocabulary
from edgeformer.importers.hugging_face.model_folder import ModelFolder


def bart_vocabulary(folder: ModelFolder, rows: Rows) -> ModelVocabulary:
    """Byte-level BPE."""
    side = byte_level_side(folder, rows[0], (BOS, PAD, EOS, UNK, "<mask>"))
    for name in (BOS, PAD, EOS, UNK):
        if name not in side.names:
            raise ImporterError(f"The vocabulary of `{folder.path}` lacks `{name}`.")
    return ModelVocabulary(source=side, target=side, unk=UNK, prefix=(BOS,), suffix=(EOS,))


BART = ModelFamily(
    convert=BartNetwork(pre_norm=False, embedding_norm=True, positions="learned").convert,
    vocabulary=bart_vocabulary,
)
