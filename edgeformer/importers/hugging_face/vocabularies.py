"""The vocabulary of each architecture: its files, special tokens, and how it names languages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from edgeformer.errors import ImporterError
from edgeformer.importers.hugging_face.byte_level import BYT5_SPECIAL, byt5_side, byte_level_side
from edgeformer.importers.hugging_face.checkpoint import Rows
from edgeformer.importers.hugging_face.entries import (
    Side,
    Vocabulary,
    names_of,
    padded,
    read_ids,
    sentencepiece_side,
    with_added,
)
from edgeformer.importers.hugging_face.folder import Folder
from edgeformer.importers.languages import M2M, MADLAD, MARIAN, MBART, NLLB, codes, tags, with_tags
from edgeformer.importers.tokenizers import fairseq_ids
from edgeformer.importers.tokenizers.model_file import SentencePieceModel
from edgeformer_runtime.bundle.text_format import SOURCE_LANGUAGE, TARGET_LANGUAGE

EOS, UNK, PAD, BOS = "</s>", "<unk>", "<pad>", "<s>"


def marian_vocabulary(folder: Folder, rows: Rows) -> Vocabulary:
    """``source.spm`` and ``target.spm``, with ids in ``vocab.json``, and ``target_vocab.json`` if they differ."""
    models = [folder.pieces(f"{side}.spm", side=index) for index, side in enumerate(("source", "target"))]
    vocabularies = [folder.needed("vocab.json", why="with the ids of its tokens")] * 2
    if folder.tokenizer.get("separate_vocabs") is True:
        vocabularies[1] = folder.needed("target_vocab.json", why="with the ids of target tokens")
    sides = []
    for model, vocabulary, count in zip(models, vocabularies, rows, strict=True):
        ids = read_ids(vocabulary)
        special = [EOS, PAD, *codes(ids, MARIAN).values()]
        sides.append(sentencepiece_side(model, ids, count, special, UNK))
    tokens = codes(sides[0].names, MARIAN)
    languages = {side: _tag(folder.tokenizer.get(f"{side}_lang")) for side in ("source", "target")}
    return Vocabulary(
        source=sides[0],
        target=sides[1],
        unk=UNK,
        prefix=(TARGET_LANGUAGE,) if tokens else (),
        suffix=(EOS,),
        languages=with_tags(tokens),
        source_language=languages["source"],
        target_language="" if tokens else languages["target"],
    )


def m2m_vocabulary(folder: Folder, rows: Rows) -> Vocabulary:
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
    side, tokens = _multilingual(folder, model, ids, rows[0], pattern)
    is_small = folder.tokenizer_class.startswith("SMALL100") or folder.file("tokenization_small100.py") is not None
    language = TARGET_LANGUAGE if is_small else SOURCE_LANGUAGE
    return Vocabulary(
        source=side,
        target=side,
        unk=UNK,
        prefix=(language,) if prefixed else (),
        suffix=(EOS,) if prefixed else (EOS, language),
        languages=with_tags(tokens),
        forces_target=not is_small,
    )


def mbart_vocabulary(folder: Folder, rows: Rows) -> Vocabulary:
    """Pieces numbered as fairseq does. mBART-50 has the language before a text, mBART-25 after it."""
    model = folder.pieces("sentencepiece.bpe.model")
    side, tokens = _multilingual(folder, model, fairseq_ids(model), rows[0], MBART)
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
    return Vocabulary(
        source=side,
        target=side,
        unk=UNK,
        prefix=(SOURCE_LANGUAGE,) if is_50 else (),
        suffix=(EOS,) if is_50 else (EOS, SOURCE_LANGUAGE),
        languages=with_tags(tokens),
        forces_target=is_50,
        target_language="" if is_50 else _tag(side.names[int(start)]),
    )


def bart_vocabulary(folder: Folder, rows: Rows) -> Vocabulary:
    """Byte-level BPE."""
    side = byte_level_side(folder, rows[0], (BOS, PAD, EOS, UNK, "<mask>"))
    for name in (BOS, PAD, EOS, UNK):
        if name not in side.names:
            raise ImporterError(f"The vocabulary of `{folder.path}` lacks `{name}`.")
    return Vocabulary(source=side, target=side, unk=UNK, prefix=(BOS,), suffix=(EOS,))


def t5_vocabulary(folder: Folder, rows: Rows) -> Vocabulary:
    """``spiece.model``, whose ids are the model's; for ByT5, bytes."""
    if folder.tokenizer_class == "ByT5Tokenizer":
        side = byt5_side(rows[0])
        _, eos, unk = BYT5_SPECIAL
        return Vocabulary(source=side, target=side, unk=unk, suffix=(eos,))
    model = folder.pieces("spiece.model", "spm.model", "sentencepiece.model")
    ids = {name: index for index, name in enumerate(model.pieces)}
    added = folder.added_tokens()
    ids = with_added(ids, ((name, index) for name, index in added.items() if index is not None and index < rows[0]))
    tokens = codes(names_of(padded(ids, rows[0])), MADLAD)
    is_piece = tokens and added.keys().isdisjoint(tokens.values())
    before = _before_language(model, next(iter(tokens.values()))) if is_piece else ()
    special = [PAD, EOS, *(name for name in added if name in ids), *tokens.values()]
    side = sentencepiece_side(model, ids, rows[0], special, model.unk_piece)
    return Vocabulary(
        source=side,
        target=side,
        unk=model.unk_piece,
        prefix=(*before, TARGET_LANGUAGE) if tokens else (),
        suffix=(EOS,),
        languages=with_tags(tokens),
        notes=_task_prefixes(folder),
    )


VOCABULARIES: Mapping[str, Callable[[Folder, Rows], Vocabulary]] = {
    "marian": marian_vocabulary,
    "m2m_100": m2m_vocabulary,
    "mbart": mbart_vocabulary,
    "bart": bart_vocabulary,
    "t5": t5_vocabulary,
    "mt5": t5_vocabulary,
    "umt5": t5_vocabulary,
}
"""Readers of vocabularies by ``model_type``. Each raises ``ImporterError``: a file is missing or damaged."""


def _multilingual(
    folder: Folder, model: SentencePieceModel, ids: Mapping[str, int], rows: int, pattern: re.Pattern[str]
) -> tuple[Side, dict[str, str]]:
    """A vocabulary to which languages are added, and their tokens by code."""
    added = folder.added_tokens()
    languages = {name: index for name, index in added.items() if pattern.fullmatch(name)}
    others = {name: index for name, index in added.items() if name == "<mask>" and pattern is not M2M}
    ids = with_added(ids, [*languages.items(), *others.items()])
    tokens = codes(names_of(ids), pattern)
    if not tokens:
        raise ImporterError(
            f"`{folder.path}` does not list the languages of the model; download tokenizer_config.json and "
            "special_tokens_map.json."
        )
    side = sentencepiece_side(model, ids, rows, [BOS, PAD, EOS, UNK, *others, *tokens.values()], UNK)
    return side, tokens


def _tag(code: object) -> str:
    """BCP 47 tag of the code of one language; empty if it is none, such as ``mul``."""
    found = tags(code) if isinstance(code, str) and code not in {"mul", "ine", "roa"} else []
    return found[-1] if found else ""


def _before_language(model: SentencePieceModel, token: str) -> tuple[str, ...]:
    """Pieces before a language token that is itself a piece: the space that SentencePiece adds in front of a text."""
    from sentencepiece import SentencePieceProcessor

    library = SentencePieceProcessor(model_proto=model.proto.SerializeToString())
    pieces: list[str] = library.encode(f"{token} a", out_type=str)
    return tuple(pieces[: pieces.index(token)]) if token in pieces else ()


def _task_prefixes(folder: Folder) -> tuple[str, ...]:
    """A note about the words that T5 expects in front of a text."""
    tasks = folder.config.get("task_specific_params")
    prefixes = (
        [task.get("prefix") for task in tasks.values() if isinstance(task, dict)] if isinstance(tasks, dict) else []
    )
    named = ", ".join(f"`{prefix[:60]}`" for prefix in prefixes[:8] if isinstance(prefix, str) and prefix)
    return (f"The model expects each text to begin with one of {named}.",) if named else ()
