"""mBART-25 and mBART-50: BART with norms before sublayers, and languages as tokens."""

from __future__ import annotations

from edgeformer.errors import ImporterError
from edgeformer.importers.hugging_face.checkpoint import Rows
from edgeformer.importers.hugging_face.families.bart_network import BartNetwork
from edgeformer.importers.hugging_face.family import EOS, UNK, ModelFamily, ModelVocabulary, multilingual_side
from edgeformer.importers.hugging_face.model_folder import ModelFolder
from edgeformer.importers.languages import MBART as TOKENS
from edgeformer.importers.languages import single_tag, with_tags
from edgeformer.importers.tokenizers import fairseq_ids
from edgeformer_runtime.bundle.text_format import SOURCE_LANGUAGE


def mbart_vocabulary(folder: ModelFolder, rows: Rows) -> ModelVocabulary:
    """Pieces numbered as fairseq does. mBART-50 has the language before a text, mBART-25 after it."""
    model = folder.pieces("sentencepiece.bpe.model")
    side, tokens = multilingual_side(folder, model, fairseq_ids(model), rows[0], TOKENS)
    start = folder.generation.get("decoder_start_token_id", folder.config.get("decoder_start_token_id"))
    if folder.tokenizer_class.startswith("MBart50"):
        is_50 = True
    elif folder.tokenizer_class.startswith("MBartTokenizer"):
        is_50 = False
    else:
        is_50 = type(start) is int and start == folder.config.get("eos_token_id", 2)
    if not is_50 and not (type(start) is int and start < len(side.names) and side.names[start] in tokens.values()):
        raise ImporterError(
            "`decoder_start_token_id` of config.json must be the language that this model translates to; a model that "
            "was only pretrained cannot translate."
        )
    return ModelVocabulary(
        source=side,
        target=side,
        unk=UNK,
        prefix=(SOURCE_LANGUAGE,) if is_50 else (),
        suffix=(EOS,) if is_50 else (EOS, SOURCE_LANGUAGE),
        languages=with_tags(tokens),
        forces_target=is_50,
        target_language="" if is_50 else single_tag(side.names[int(start)]),
    )


MBART = ModelFamily(
    convert=BartNetwork(pre_norm=True, embedding_norm=True, positions="learned").convert,
    vocabulary=mbart_vocabulary,
)
