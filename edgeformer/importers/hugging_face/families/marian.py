"""Marian: OPUS-MT, with two SentencePiece models, and languages as ``>>fra<<``."""

from __future__ import annotations

from edgeformer.importers.hugging_face.checkpoint import Rows
from edgeformer.importers.hugging_face.families.bart_network import BartNetwork
from edgeformer.importers.hugging_face.family import EOS, PAD, UNK, ModelFamily, ModelVocabulary, sentencepiece_side
from edgeformer.importers.hugging_face.model_folder import ModelFolder
from edgeformer.importers.languages import MARIAN as TOKENS
from edgeformer.importers.languages import codes, single_tag, with_tags
from edgeformer.importers.tokenizers import read_ids
from edgeformer_runtime.bundle.text_format import TARGET_LANGUAGE


def marian_vocabulary(folder: ModelFolder, rows: Rows) -> ModelVocabulary:
    """``source.spm`` and ``target.spm``, with ids in ``vocab.json``, and ``target_vocab.json`` if they differ."""
    models = [folder.pieces(f"{side}.spm", side=index) for index, side in enumerate(("source", "target"))]
    vocabularies = [folder.needed("vocab.json", why="with the ids of its tokens")] * 2
    if folder.tokenizer.get("separate_vocabs") is True:
        vocabularies[1] = folder.needed("target_vocab.json", why="with the ids of target tokens")
    sides = []
    for model, vocabulary, count in zip(models, vocabularies, rows, strict=True):
        ids = read_ids(vocabulary)
        special = [EOS, PAD, *codes(ids, TOKENS).values()]
        sides.append(sentencepiece_side(model, ids, count, special, UNK))
    tokens = codes(sides[0].names, TOKENS)
    languages = {side: single_tag(folder.tokenizer.get(f"{side}_lang")) for side in ("source", "target")}
    return ModelVocabulary(
        source=sides[0],
        target=sides[1],
        unk=UNK,
        prefix=(TARGET_LANGUAGE,) if tokens else (),
        suffix=(EOS,),
        languages=with_tags(tokens),
        source_language=languages["source"],
        target_language="" if tokens else languages["target"],
    )


MARIAN = ModelFamily(
    convert=BartNetwork(
        pre_norm=False,
        embedding_norm=False,
        positions="marian",
        may_split_vocabulary=True,
        defaults={"vocab_size": 58_101},
    ).convert,
    vocabulary=marian_vocabulary,
    notes=(
        "Positions are those of the transformers library, which differ slightly from those of the training; an import "
        "of Marian's own model.npz is exact.",
    ),
)
