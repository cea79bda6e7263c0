# mypy: disable-error-code="no-any-return, no-untyped-call"
"""Small models of ``transformers`` with random weights, each saved as a folder with a tokenizer of its own.

The weights are large enough that outputs depend on the input, and that the end token comes up after some steps.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
import torch
import transformers
from torch import nn
from transformers.utils import logging

from edgeformer.importers.sample import sample_text

logging.set_verbosity_error()
logging.disable_progress_bar()

GAIN, END = 2.5, 6.0
VOCABULARY = 400
SENTENCES = sample_text("en", 200)
LANGUAGES = ("en", "fr", "de")
BART_SIZES = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 96,
}
T5_SIZES = {"d_model": 32, "d_kv": 6, "d_ff": 48, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 4}


def train_pieces(folder: Path, name: str, *, language: str = "en", size: int = VOCABULARY, **options: Any) -> None:
    """Train a SentencePiece model."""
    text = sample_text(language, 1000)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text),
        model_prefix=str(folder / "trained"),
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    (folder / "trained.model").rename(folder / name)
    (folder / "trained.vocab").unlink()


def pieces_of(file: Path) -> list[str]:
    """The pieces of a SentencePiece model, by id."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(file))
    return [processor.id_to_piece(index) for index in range(len(processor))]


def write_json(folder: Path, name: str, tree: Any) -> None:
    (folder / name).write_text(json.dumps(tree), encoding="utf-8")


def changed(folder: Path, to: Path, file: str = "config.json", **values: Any) -> Path:
    """A copy of a folder, with other values in a JSON file."""
    shutil.copytree(folder, to, dirs_exist_ok=True)
    if values:
        content = json.loads((to / file).read_text(encoding="utf-8")) if (to / file).exists() else {}
        write_json(to, file, {**content, **values})
    return to


def saved(model: Any, folder: Path, *, end: int, seed: int = 3, first: Sequence[int] = ()) -> Any:
    """Give a model large random weights, save it, and return it.

    Args:
        model: the model.
        folder: where to save it.
        end: the end token.
        seed: seed of the weights.
        first: tokens right after which outputs rarely end.
    """
    generator = torch.Generator().manual_seed(seed)
    table_scale = 0.3 if getattr(model.config, "scale_embedding", False) else 1.0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" in name and type(model).__name__.startswith(("Marian", "Pegasus")):
                continue  # computed
            if parameter.ndim == 2:
                scale = table_scale if parameter.shape[0] > 200 else GAIN * parameter.shape[1] ** -0.5
                parameter.normal_(0, scale, generator=generator)
            elif "norm" in name and name.endswith("weight"):
                parameter.uniform_(0.8, 1.2, generator=generator)
            else:
                parameter.normal_(0, 0.1, generator=generator)
        table = model.get_output_embeddings().weight
        table[end] *= END
        table[list(first)] -= table[end] / 2
        if getattr(model, "final_logits_bias", None) is not None:
            model.final_logits_bias.normal_(0, 0.5, generator=generator)
    model.eval().save_pretrained(folder)
    return model


def marian(folder: Path, **changes: Any) -> Any:
    """OPUS-MT: two SentencePiece models, and a vocabulary for both."""
    folder.mkdir(parents=True)
    for side, language in (("source", "en"), ("target", "fr")):
        train_pieces(folder, f"{side}.spm", language=language)
    pieces = [name for side in ("source", "target") for name in pieces_of(folder / f"{side}.spm")[3:]]
    names = ["</s>", "<unk>", *dict.fromkeys(pieces), ">>fra<<", ">>deu<<"][:-20]
    names = [*names, ">>fra<<", ">>deu<<", "<pad>"]
    write_json(folder, "vocab.json", {name: index for index, name in enumerate(names)})
    write_json(folder, "tokenizer_config.json", {"source_lang": "eng", "target_lang": "fra"})
    pad = len(names) - 1
    tokens = {"pad_token_id": pad, "eos_token_id": 0, "decoder_start_token_id": pad, "forced_eos_token_id": 0}
    settings = {**BART_SIZES, "activation_function": "swish", "scale_embedding": True, **tokens, **changes}
    model = transformers.MarianMTModel(transformers.MarianConfig(vocab_size=len(names), **settings))
    model.generation_config.bad_words_ids = [[pad]]
    return saved(model, folder, end=0, seed=0)


def split_marian(folder: Path) -> Any:
    """OPUS-MT with a vocabulary for each side."""
    folder.mkdir(parents=True)
    names = []
    for side, language, size in (("source", "en", 400), ("target", "fr", 350)):
        train_pieces(folder, f"{side}.spm", language=language, size=size)
        names.append(["</s>", "<unk>", *pieces_of(folder / f"{side}.spm")[3:], "<pad>"])
    while len(names[1]) < len(names[0]):  # transformers pads both sides with one id
        names[1].insert(-1, f"<fill {len(names[1])}>")
    for name, entries in zip(("vocab.json", "target_vocab.json"), names, strict=True):
        write_json(folder, name, {entry: index for index, entry in enumerate(entries)})
    write_json(folder, "tokenizer_config.json", {"separate_vocabs": True})
    pad = len(names[0]) - 1
    tokens = {"pad_token_id": pad, "eos_token_id": 0, "decoder_start_token_id": pad, "forced_eos_token_id": 0}
    settings = {**BART_SIZES, "activation_function": "relu", **tokens, "share_encoder_decoder_embeddings": False}
    config = transformers.MarianConfig(vocab_size=len(names[0]), decoder_vocab_size=len(names[1]) + 3, **settings)
    return saved(transformers.MarianMTModel(config), folder, end=0, seed=2)


def m2m(folder: Path) -> Any:
    """M2M-100: ids in ``vocab.json``, then languages, then rows without an entry."""
    folder.mkdir(parents=True)
    train_pieces(folder, "sentencepiece.bpe.model", model_type="bpe")
    names = ["<s>", "<pad>", "</s>", "<unk>", *pieces_of(folder / "sentencepiece.bpe.model")[3:-5]]
    write_json(folder, "vocab.json", {name: index for index, name in enumerate(names)})
    languages = [f"__{code}__" for code in LANGUAGES]
    write_json(folder, "special_tokens_map.json", {"additional_special_tokens": languages})
    sizes = {**BART_SIZES, "activation_function": "relu", "scale_embedding": True}
    rows = len(names) + len(languages) + 8
    config = transformers.M2M100Config(vocab_size=rows, **sizes)
    return saved(
        transformers.M2M100ForConditionalGeneration(config),
        folder,
        end=2,
        first=range(rows - 8 - len(languages), rows - 8),
    )


def nllb(folder: Path) -> Any:
    """NLLB: pieces, languages and a mask numbered as in fairseq."""
    folder.mkdir(parents=True)
    train_pieces(folder, "sentencepiece.bpe.model", model_type="bpe")
    languages = ["eng_Latn", "fra_Latn", "zho_Hans", "zho_Hant"]
    write_json(folder, "special_tokens_map.json", {"additional_special_tokens": languages})
    rows = len(pieces_of(folder / "sentencepiece.bpe.model")) + 1 + len(languages) + 1 + 2
    sizes = {**BART_SIZES, "activation_function": "relu", "scale_embedding": True}
    config = transformers.M2M100Config(vocab_size=rows, **sizes)
    return saved(
        transformers.M2M100ForConditionalGeneration(config), folder, end=2, seed=1, first=range(rows - 7, rows - 3)
    )


def mbart(folder: Path, *, is_50: bool = False) -> Any:
    """mBART-25, whose decoder starts with the target language, or mBART-50, whose outputs begin with it."""
    folder.mkdir(parents=True)
    train_pieces(folder, "sentencepiece.bpe.model")
    languages = ["en_XX", "fr_XX", "zh_CN"]
    base = len(pieces_of(folder / "sentencepiece.bpe.model")) + 1
    write_json(folder, "tokenizer.json", {"added_tokens": added_tokens([*languages, "<mask>"], base)})
    name = "MBart50Tokenizer" if is_50 else "MBartTokenizer"
    write_json(folder, "tokenizer_config.json", {"tokenizer_class": name})
    tokens = {"decoder_start_token_id": 2 if is_50 else base + 1}
    config = transformers.MBartConfig(vocab_size=base + 4, scale_embedding=True, **BART_SIZES, **tokens)
    return saved(transformers.MBartForConditionalGeneration(config), folder, end=2, first=range(base, base + 3))


def bart(folder: Path) -> Any:
    """BART: byte-level BPE."""
    folder.mkdir(parents=True)
    trained = tokenizers.ByteLevelBPETokenizer(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(SENTENCES, VOCABULARY, special_tokens=special, show_progress=False)
    trained.save_model(str(folder))
    config = transformers.BartConfig(vocab_size=trained.get_vocab_size() + 3, **BART_SIZES)
    return saved(transformers.BartForConditionalGeneration(config), folder, end=2)


def pegasus(folder: Path) -> Any:
    """Pegasus: tokens of its training, then pieces."""
    folder.mkdir(parents=True)
    train_pieces(folder, "spiece.model", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    rows = len(pieces_of(folder / "spiece.model")) + 103 + 5
    config = transformers.PegasusConfig(vocab_size=rows, scale_embedding=True, activation_function="relu", **BART_SIZES)
    return saved(transformers.PegasusForConditionalGeneration(config), folder, end=1)


def t5(folder: Path, config_type: str = "T5", *, pieces: Sequence[str] = (), seed: int = 3, **changes: Any) -> Any:
    """T5: ids of the SentencePiece model, then extra ids, then rows without an entry."""
    folder.mkdir(parents=True)
    ids: dict[str, Any] = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    train_pieces(folder, "spiece.model", byte_fallback=config_type == "UMT5", user_defined_symbols=list(pieces), **ids)
    base = len(pieces_of(folder / "spiece.model"))
    extra = [f"<extra_id_{99 - index}>" for index in range(100)]
    decoder = {str(token["id"]): token for token in added_tokens(extra, base)}
    write_json(folder, "tokenizer_config.json", {"added_tokens_decoder": decoder})
    config = getattr(transformers, f"{config_type}Config")(
        vocab_size=base + 128, decoder_start_token_id=0, **T5_SIZES, **changes
    )
    return saved(getattr(transformers, f"{config_type}ForConditionalGeneration")(config), folder, end=1, seed=seed)


def byt5(folder: Path) -> Any:
    """ByT5: tokens are bytes."""
    folder.mkdir(parents=True)
    write_json(folder, "tokenizer_config.json", {"tokenizer_class": "ByT5Tokenizer"})
    config = transformers.T5Config(
        vocab_size=384, decoder_start_token_id=0, feed_forward_proj="gated-gelu", tie_word_embeddings=False, **T5_SIZES
    )
    return untied(saved(transformers.T5ForConditionalGeneration(config), folder, end=1, seed=1), folder)


def untied(model: Any, folder: Path) -> Any:
    """Give a model an output projection of its own, and save it again as published models were saved."""
    weight = torch.empty_like(model.lm_head.weight)
    weight.normal_(0, 0.3, generator=torch.Generator().manual_seed(1))
    weight[1] *= END
    model.lm_head.weight = nn.Parameter(weight)
    model.config.tie_word_embeddings = False
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder, "config.json", {**config, "tie_word_embeddings": False, "transformers_version": "4.57.1"})
    return model


def added_tokens(names: Sequence[str], first: int) -> list[dict[str, Any]]:
    """Added tokens, as ``tokenizer.json`` lists them."""
    return [{"id": first + index, "content": name, "special": True} for index, name in enumerate(names)]


GATED: dict[str, Any] = {"feed_forward_proj": "gated-gelu"}
T5_1_1: dict[str, Any] = {**GATED, "seed": 1, "tie_word_embeddings": False}
ARCHITECTURES: Mapping[str, Callable[[Path], Any]] = {
    "marian": marian,
    "split_marian": split_marian,
    "m2m": m2m,
    "nllb": nllb,
    "mbart": mbart,
    "mbart_50": lambda folder: mbart(folder, is_50=True),
    "bart": bart,
    "pegasus": pegasus,
    "t5": t5,
    "t5_gated": lambda folder: untied(t5(folder, **T5_1_1), folder),
    "umt5": lambda folder: t5(folder, "UMT5", **GATED),
    "mt5": lambda folder: untied(t5(folder, "MT5", seed=1, **GATED), folder),
    "madlad": lambda folder: untied(t5(folder, pieces=["<2en>", "<2fr>", "<2zh_Hant>"], **T5_1_1), folder),
    "byt5": byt5,
}
"""Makers of models; each takes a folder that does not exist, and returns the model."""
TRANSLATES = {
    "marian": ("en", "fra"),
    "m2m": ("en", "de"),
    "nllb": ("en", "zh-Hant"),
    "mbart": ("en", "fr"),
    "mbart_50": ("en", "zh"),
    "madlad": ("", "zh-Hant"),
}
"""Languages to translate from and to, of models that need them."""


SAVED: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "t5": ("T5Tokenizer", "spiece.model", {"extra_ids": 100}),
    "mt5": ("T5Tokenizer", "spiece.model", {"extra_ids": 100}),
    "madlad": ("T5Tokenizer", "spiece.model", {"extra_ids": 100}),
    "pegasus": ("PegasusTokenizer", "spiece.model", {}),
    "nllb": ("NllbTokenizer", "sentencepiece.bpe.model", {"extra_special_tokens": ["eng_Latn", "fra_Latn"]}),
    "mbart_50": ("MBart50Tokenizer", "sentencepiece.bpe.model", {}),
}
"""Classes whose tokenizers ``transformers`` saves without the SentencePiece model, the model, and options."""
FAST = ("marian", "m2m", "mbart", "bart", "pegasus", "t5_gated", "umt5")
"""Architectures of the fast tests: one of each kind."""


def reloaded(folder: Path) -> Any:
    """The model of a folder as ``transformers`` reads it, in single precision."""
    return transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()


def references(model: Any, sources: Sequence[Sequence[int]], pad: int, **options: Any) -> list[list[int]]:
    """What ``transformers`` generates for token ids, without the start token, and up to the end token."""
    longest = max(map(len, sources))
    ids = torch.tensor([[*source, *[pad] * (longest - len(source))] for source in sources])
    mask = torch.tensor([[1] * len(source) + [0] * (longest - len(source)) for source in sources])
    with torch.inference_mode():
        outputs = model.generate(input_ids=ids, attention_mask=mask, do_sample=False, **options)
    end = model.generation_config.eos_token_id
    results = []
    for row in outputs.tolist():
        output = row[1:]
        results.append(output[: output.index(end)] if end in output else output)
    return results
