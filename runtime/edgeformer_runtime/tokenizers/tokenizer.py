"""The tokenizer of a model, whatever kind of file defines it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.bundle.plain_files import shortened
from edgeformer_runtime.bundle.text_format import TextFormat
from edgeformer_runtime.errors import BundleError, ConfigError, EdgeformerError, InputError, missing_package
from edgeformer_runtime.limits import MAX_TEXT_CHARACTERS
from edgeformer_runtime.tokenizers.segmenter import Segmenter, Span
from edgeformer_runtime.tokenizers.tokenizer_file import SentencePieceFile, read_tokenizer_file

if TYPE_CHECKING:
    import tokenizers

DEFAULT_FORMAT = TextFormat()
"""Names of the special tokens of models that this project trains."""
PAD_TOKEN, UNK_TOKEN, BOS_TOKEN, EOS_TOKEN = DEFAULT_FORMAT.special_tokens


class Tokenizer:
    """Encodes plain text. No text can produce the ids of special tokens.

    Immutable after construction, and therefore thread-safe.

    Args:
        tokenizer: the library's tokenizer, whose settings are changed, or a tokenizer of another kind.
        text: names of the special tokens.
        prefix: names of the tokens that the model expects before a text.
        suffix: names of the tokens that it expects after a text; by default, the end token.

    Raises:
        BundleError: a special token is not in the vocabulary, or ids are missing or there twice.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer | Segmenter,
        text: TextFormat = DEFAULT_FORMAT,
        *,
        prefix: Sequence[str] = (),
        suffix: Sequence[str] | None = None,
    ) -> None:
        if not isinstance(tokenizer, Segmenter):
            from edgeformer_runtime.tokenizers.library import LibrarySegmenter

            tokenizer = LibrarySegmenter(tokenizer)
        self._model = tokenizer
        self.text, self.vocab_size = text, self._model.size
        self.pad_id, self.unk_id, self.bos_id, self.eos_id = self.ids(text.special_tokens)
        ids = map(self.token_id, _special(text))
        self._special_ids = frozenset(index for index in ids if index is not None)
        self._unwritten_ids = self._special_ids - {self.unk_id}
        self._prefix, self._suffix = self.ids(prefix), self.ids((text.eos,) if suffix is None else suffix)

    @classmethod
    def from_file(cls, path: str | Path, text: TextFormat = DEFAULT_FORMAT) -> Tokenizer:
        """Read a ``tokenizer.json``; see the class for the other argument.

        Raises:
            BundleError: the file is missing or damaged, or lacks a special token.
            ConfigError: it needs packages that are not installed.
        """
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise BundleError(f"Tokenizer file `{path}` cannot be read: {error}. Export the bundle again.") from None
        return cls.from_content(content, path, text)

    @classmethod
    def from_content(cls, content: str | bytes, path: str | Path, text: TextFormat = DEFAULT_FORMAT) -> Tokenizer:
        """Create a tokenizer from the content of a ``tokenizer.json``.

        Args:
            content: the content.
            path: the file's name, for errors.
            text: names of the special tokens.

        Raises:
            BundleError: the content is damaged, has a component that bundles may not have, or lacks a special token.
            ConfigError: it needs packages that are not installed.
        """
        with _library_errors(f"Tokenizer file `{path}` is damaged, or has a part that bundles may not have"):
            file = read_tokenizer_file(content)
            if isinstance(file, SentencePieceFile):
                return cls(_sentencepiece(file, text), text)
            import tokenizers

            return cls(tokenizers.Tokenizer.from_str(msgspec.json.encode(file).decode("utf-8")), text)

    def for_sources(self, source_language: str = "", target_language: str = "") -> Tokenizer:
        """Return this tokenizer with what the model expects around a source.

        Args:
            source_language: code of the language to translate from, if the model has several.
            target_language: code of the language to translate to, if the model has several.

        Raises:
            BundleError: a token is not in the vocabulary.
            OptionError: a language is needed, but the model does not have it.
        """
        languages, tokenizer = (source_language, target_language), copy(self)
        tokenizer._prefix = self.ids(self.text.resolved(self.text.source_prefix, *languages))
        tokenizer._suffix = self.ids(self.text.resolved(self.text.source_suffix, *languages))
        return tokenizer

    def target_prefix(self, source_language: str = "", target_language: str = "") -> tuple[int, ...]:
        """Ids of the tokens that every target begins with after the start token; the arguments are those of
        :meth:`for_sources`.

        Raises:
            BundleError: a token is not in the vocabulary.
            OptionError: a language is needed, but the model does not have it.
        """
        return self.ids(self.text.resolved(self.text.target_prefix, source_language, target_language))

    @property
    def prefix_length(self) -> int:
        """Number of tokens that the model expects before a text."""
        return len(self._prefix)

    @property
    def suffix_length(self) -> int:
        """Number of tokens that the model expects after a text."""
        return len(self._suffix)

    def ids(self, tokens: Sequence[str]) -> tuple[int, ...]:
        """Return the id of each vocabulary entry.

        Raises:
            BundleError: an entry does not exist.
        """
        found = {token: self.token_id(token) for token in tokens}
        if missing := [token for token, index in found.items() if index is None]:
            names = ", ".join(f"`{token}`" for token in missing)
            raise BundleError(
                f"The tokenizer must have special tokens {names}, but its vocabulary lacks them; pass its own names."
            )
        return tuple(index for token in tokens if (index := found[token]) is not None)

    @property
    def vocabulary_sha256(self) -> str:
        """SHA-256 of all tokens and their ids, in lowercase hexadecimal. Computed on each access."""
        lines = "".join(f"{index}\t{self._model.token(index)}\n" for index in range(self.vocab_size))
        return hashlib.sha256(lines.encode("utf-8")).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Encode a text, without special tokens.

        Raises:
            InputError: the text is too long, or not valid Unicode (it contains a lone surrogate).
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str], *, special_tokens: bool = False) -> list[list[int]]:
        """Encode texts, without padding.

        Args:
            texts: texts to encode.
            special_tokens: add the tokens that the model expects around a text, such as the end token.

        Raises:
            InputError: a text is too long, or not valid Unicode (it contains a lone surrogate).
        """
        _check_texts(texts)
        with _library_errors("The tokenizer cannot encode a text"):
            encoded = [self._as_text(ids) for ids in self._model.encode(texts)]
        return [[*self._prefix, *ids, *self._suffix] for ids in encoded] if special_tokens else encoded

    def encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        """Encode texts with special tokens; see :meth:`encode_batch`. The spans are those of :meth:`spans`."""
        _check_texts(texts)
        with _library_errors("The tokenizer cannot encode a text"):
            encoded = self._model.encode_with_spans(texts)
        return [([*self._prefix, *self._as_text(ids), *self._suffix], spans) for ids, spans in encoded]

    def _as_text(self, ids: list[int]) -> list[int]:
        """Put the unknown token for words that a text has in common with special tokens."""
        if self._unwritten_ids.isdisjoint(ids):
            return ids
        return [self.unk_id if index in self._unwritten_ids else index for index in ids]

    def unknown_share(self, texts: Sequence[str]) -> float:
        """Fraction of the tokens of texts that are the unknown token; 1 if there are no tokens.

        Raises:
            InputError: as for :meth:`encode_batch`.
        """
        ids = [index for encoded in self.encode_batch(texts) for index in encoded]
        return ids.count(self.unk_id) / len(ids) if ids else 1.0

    def decode(self, ids: Iterable[int]) -> str:
        """Decode token ids to text, without special tokens."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, sequences: Sequence[Iterable[int]]) -> list[str]:
        """Decode each of several sequences of token ids, as :meth:`decode` does."""
        special = self._special_ids
        kept = [[index for each in ids if (index := int(each)) not in special] for ids in sequences]
        with _library_errors("The tokenizer cannot decode a text"):
            return self._model.decode_batch(kept)

    def decode_with(self, ids: Sequence[int], pieces: Mapping[int, str]) -> str:
        """Decode token ids to text, with pieces of other text in place of some tokens.

        Args:
            ids: token ids.
            pieces: text to put in place of a token, by the token's position; it has a space before it if it begins a
                word.
        """
        kept = [place for place, index in enumerate(ids) if place in pieces or index not in self._special_ids]
        with _library_errors("The tokenizer cannot decode a text"):
            return self._model.decode_pieces([pieces.get(place, ids[place]) for place in kept]).strip()

    def pieces(self, text: str) -> list[str]:
        """Return the part of a text that each of its tokens stands for, whether or not the vocabulary has it, with a
        space before it if it begins a word."""
        with _library_errors("The tokenizer cannot encode a text"):
            return self._model.pieces(text)

    def spans(self, text: str) -> list[Span]:
        """Return which characters of a text each of its tokens stands for, as pairs of start and end. They may overlap
        where a character is divided, and be empty."""
        with _library_errors("The tokenizer cannot encode a text"):
            return self._model.spans(text)

    def token_id(self, token: str) -> int | None:
        """Return the id of a vocabulary entry; ``None`` if there is no such entry."""
        return self._model.token_id(token)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the vocabulary entry of each id.

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        ids = list(map(int, ids))
        for index in ids:
            if not 0 <= index < self.vocab_size:
                raise ValueError(f"A token id must be between 0 and {self.vocab_size - 1}, got {index}.")
        return self._model.tokens(ids)


def _check_texts(texts: Sequence[str]) -> None:
    for index, text in enumerate(texts):
        if len(text) > (limit := MAX_TEXT_CHARACTERS):
            raise InputError(index, f"has {len(text):,} characters, but may have at most {limit:,}; split it.")
        check_unicode(index, text)


def check_unicode(index: int, text: str) -> None:
    """Raise an ``InputError`` if the text of this position contains a lone surrogate."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(
            index, "must be valid Unicode, but contains a lone surrogate; decode it with errors='replace'."
        ) from None


def special_tokens(source: Tokenizer, target: Tokenizer, prefix: tuple[int, ...]) -> SpecialTokens:
    """Ids of the special tokens of a model, and what its targets begin with.

    Args:
        source: tokenizer of the source side.
        target: tokenizer of the target side.
        prefix: what every target begins with after the start token; see :meth:`Tokenizer.target_prefix`.

    Raises:
        BundleError: a token is not in the vocabulary.
    """
    text = target.text
    return SpecialTokens(
        pad=source.pad_id,
        unk=target.unk_id,
        bos=target.bos_id,
        eos=target.eos_id,
        suppress=target.ids(text.suppress),
        forbid=target.ids(text.forbid),
        prefix=prefix,
    )


def _special(text: TextFormat) -> set[str]:
    """Names of the tokens that no text may be encoded to."""
    return {*text.special_tokens, *text.suppress, *text.languages.values()}


def _sentencepiece(file: SentencePieceFile, text: TextFormat) -> Segmenter:
    """Open a SentencePiece model.

    Raises:
        ConfigError: ``sentencepiece`` is not installed.
    """
    try:
        from edgeformer_runtime.tokenizers.sentencepiece import SentencePieceSegmenter
    except ModuleNotFoundError as error:
        raise ConfigError(missing_package("The model's tokenizer", error.name, "sentencepiece")) from None
    return SentencePieceSegmenter(file, _special(text), text.unk)


@contextmanager
def _library_errors(what: str) -> Iterator[None]:
    """Raise the library's errors, whose cause is the tokenizer's definition, as :class:`BundleError`."""
    try:
        yield
    except EdgeformerError:
        raise
    except BaseException as error:  # the library raises plain Exception, and PanicException, which is not one
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise BundleError(f"{what}: {shortened(error).removesuffix('.')}. Export the bundle again.") from None
