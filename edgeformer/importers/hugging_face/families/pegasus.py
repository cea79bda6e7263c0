"""Pegasus: sinusoids as in Marian, norms before sublayers, and a SentencePiece model after tokens of its training."""

from __future__ import annotations

from edgeformer.importers.hugging_face.checkpoint import Rows
from edgeformer.importers.hugging_face.families.bart_network import BartNetwork
from edgeformer.importers.hugging_face.family import EOS, PAD, ModelFamily, ModelVocabulary, sentencepiece_side
from edgeformer.importers.hugging_face.model_folder import ModelFolder

SPECIAL = (PAD, EOS, "<mask_1>", "<mask_2>", *(f"<unk_{index}>" for index in range(2, 103)))
"""First entries; the pieces follow, without those for padding and the end, which are their first two."""


def pegasus_vocabulary(folder: ModelFolder, rows: Rows) -> ModelVocabulary:
    """``spiece.model``, whose ids are 103 less than the model's, or ``tokenizer.json``, which has the model's."""
    model = folder.pieces("spiece.model")
    names = model.pieces if SPECIAL[-1] in model.pieces else [*SPECIAL, *model.pieces[2:]]
    ids = {name: index for index, name in enumerate(names)}
    side = sentencepiece_side(model, ids, rows[0], SPECIAL, model.unk_piece)
    return ModelVocabulary(source=side, target=side, unk=model.unk_piece, suffix=(EOS,))


PEGASUS = ModelFamily(
    convert=BartNetwork(pre_norm=True, embedding_norm=False, positions="marian").convert,
    vocabulary=pegasus_vocabulary,
)
