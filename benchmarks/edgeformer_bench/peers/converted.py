"""Tokenizers and decoding rules of converted models, stored beside their weights for every engine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeformer_bench.peers.base import PeerError
from edgeformer_runtime.bundle.generation import Generation
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.bundle.text_format import TextFormat
from edgeformer_runtime.tokenizers import BOS_TOKEN, EOS_TOKEN, PAD_TOKEN, UNK_TOKEN, Tokenizer, special_tokens

if TYPE_CHECKING:
    from edgeformer.run.folder import Run

RULES_FILE = "rules.json"


class DecodingRules(msgspec.Struct, kw_only=True, frozen=True):
    """Rules of a model's translations, apart from its weights and vocabularies."""

    max_target_length: int
    """Maximum number of decoding steps."""
    text: TextFormat
    """Names of special tokens, and what is around the tokens of a text."""
    languages: tuple[str, str]
    """Codes of the languages to translate from and to."""
    generation: Generation
    """Decoding defaults of the model."""
    tokenizers: tuple[str, str]
    """Names of the tokenizer files of both sides."""


class ConvertedModel:
    """Tokenizers and rules in a folder of a converted model.

    Args:
        folder: where :func:`save_rules` wrote them.
    """

    def __init__(self, folder: Path) -> None:
        self.rules = msgspec.json.decode((folder / RULES_FILE).read_bytes(), type=DecodingRules)
        text, languages = self.rules.text, self.rules.languages
        source, target = (Tokenizer.from_file(folder / name, text) for name in self.rules.tokenizers)
        self.source_tokenizer, self.target_tokenizer = source.for_sources(*languages), target
        prefix = self.target_tokenizer.target_prefix(*languages)
        self.special = special_tokens(self.source_tokenizer, self.target_tokenizer, prefix)

    def texts(self, texts: Sequence[str], translate: Callable[[list[list[int]]], list[list[int]]]) -> list[str]:
        """Translate texts by what translates token ids."""
        output = translate(self.source_tokenizer.encode_batch(texts, special_tokens=True))
        return [self.target_tokenizer.decode(ids) for ids in output]

    def limits(self, sources: Sequence[Sequence[int]]) -> list[int]:
        """Return the maximum number of output tokens for each source, end token included, without what every target
        begins with."""
        factor, limit = self.rules.generation.max_len_a, self.rules.max_target_length - len(self.special.prefix)
        return [min(limit, max(1, int(factor * len(source)))) if factor else limit for source in sources]


def save_rules(run: Run, max_target_length: int, folder: Path) -> None:
    """Write a run's tokenizers and rules into the folder of a converted model.

    Raises:
        PeerError: lengths are counted as in no other engine.
    """
    generation = run.info.generation
    if not generation.length_includes_end:
        raise PeerError("Other engines count the end token in lengths; `length_includes_end` must not be false.")
    files = run.source_tokenizer_path, run.target_tokenizer_path
    rules = DecodingRules(
        max_target_length=max_target_length,
        text=run.info.text,
        languages=run.languages,
        generation=generation,
        tokenizers=(files[0].name, files[1].name),
    )
    (folder / RULES_FILE).write_bytes(msgspec.json.encode(rules))
    for file in files:
        shutil.copyfile(file, folder / file.name)


def side_names(tokenizer: Tokenizer) -> list[str]:
    """Make a unique name for each id of a tokenizer's vocabulary; see :func:`token_names`."""
    return token_names(tokenizer.vocab_size, special_tokens(tokenizer, tokenizer, ()))


def token_names(vocab_size: int, special: SpecialTokens) -> list[str]:
    """Make a unique name for each id, for engines that read and write names; the tokenizer's names may repeat."""
    names = {special.pad: PAD_TOKEN, special.bos: BOS_TOKEN, special.eos: EOS_TOKEN}
    if special.unk is not None:
        names[special.unk] = UNK_TOKEN
    return [names.get(index, f"t{index}") for index in range(vocab_size)]
