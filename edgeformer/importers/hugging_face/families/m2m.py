"""M2M-100, NLLB and SMaLL-100: norms before sublayers, fairseq's sinusoids, and languages as tokens."""

from __future__ import annotations

from edgeformer.importers.hugging_face.checkpoint import Rows
from edgeformer.importers.hugging_face.families.bart_network import BartNetwork
from edgeformer.importers.hugging_face.family import EOS, UNK, ModelFamily, ModelVocabulary, multilingual_side
from edgeformer.importers.hugging_face.model_folder import ModelFolder
from edgeformer.importers.languages import M2M, NLLB, with_tags
from edgeformer.importers.tokenizers import fairseq_ids, read_ids
from edgeformer_runtime.bundle.text_format import SOURCE_LANGUAGE, TARGET_LANGUAGE


def m2m_vocabulary(folder: ModelFolder, rows: Rows) -> ModelVocabulary:
    """M2M-100 has ids in ``vocab.json``; NLLB numbers its pieces as fairseq does. SMaLL-100, which is in files an
    M2M-100 but for its tokenizer, has the target language before a text, and outputs begin with none."""
    model = folder.pieces("sentencepiece.bpe.model", "spm.model")
    vocabulary = folder.file("vocab.json")
    if vocabulary is not None:
        pattern, ids = M2M, read_ids(vocabulary)
        prefixed = True
    else:
        pattern, ids = NLLB, fairseq_ids(model)
        prefixed = folder.tokenizer.get("legacy_behaviour") is not True
    side, tokens = multilingual_side(folder, model, ids, rows[0], pattern)
    is_small = folder.tokenizer_class.startswith("SMALL100") or folder.file("tokenization_small100.py") is not None
    language = TARGET_LANGUAGE if is_small else SOURCE_LANGUAGE
    return ModelVocabulary(
        source=side,
        target=side,
        unk=UNK,
        prefix=(language,) if prefixed else (),
        suffix=(EOS,) if prefixed else (EOS, language),
        languages=with_tags(tokens),
        forces_target=not is_small,
    )


M2M_100 = ModelFamily(
    convert=BartNetwork(
        pre_norm=True,
        embedding_norm=False,
        positions="fairseq",
        defaults={"vocab_size": 128_112, "activation_function": "relu", "scale_embedding": True},
    ).convert,
    vocabulary=m2m_vocabulary,
)
