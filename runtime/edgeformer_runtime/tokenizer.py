"""Conversion between text and token ids, defined by a ``tokenizer.json``."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import tokenizers

from edgeformer_runtime.errors import BundleError, InputError
from edgeformer_runtime.limits import MAX_TEXT_CHARACTERS

# If this is unset, the library warns on standard error when the process forks after using its threads.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

PAD_TOKEN = "<pad>"
UNK_TOKEN = "<unk>"
BOS_TOKEN = "<s>"
EOS_TOKEN = "</s>"


class Tokenizer:
    """Encodes plain text. No text can produce the ids of special tokens.

    Immutable after construction, and therefore thread-safe.

    Args:
        tokenizer: the library's tokenizer; the new object takes ownership of it and changes its settings.
        pad_token: pads the shorter rows of a batch.
        unk_token: represents text that is not in the vocabulary.
        bos_token: starts a target.
        eos_token: ends a source and a target.

    Raises:
        BundleError: a special token is not in the vocabulary.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        *,
        pad_token: str = PAD_TOKEN,
        unk_token: str = UNK_TOKEN,
        bos_token: str = BOS_TOKEN,
        eos_token: str = EOS_TOKEN,
    ) -> None:
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        special = (pad_token, unk_token, bos_token, eos_token)
        if missing := [token for token in special if token not in vocabulary]:
            names = ", ".join(f"`{token}`" for token in missing)
            raise BundleError(
                f"The tokenizer must have special tokens {names}, but its vocabulary lacks them; pass its own names."
            )
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True  # "</s>" typed by a user is plain text
        self._tokenizer = tokenizer
        self._special_ids = frozenset(vocabulary[token] for token in special)
        self.pad_id: int = vocabulary[pad_token]
        self.unk_id: int = vocabulary[unk_token]
        self.bos_id: int = vocabulary[bos_token]
        self.eos_id: int = vocabulary[eos_token]
        self.vocab_size: int = max(vocabulary.values()) + 1

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        pad_token: str = PAD_TOKEN,
        unk_token: str = UNK_TOKEN,
        bos_token: str = BOS_TOKEN,
        eos_token: str = EOS_TOKEN,
    ) -> Tokenizer:
        """Read a ``tokenizer.json``; see the class for the other arguments.

        Raises:
            BundleError: the file is missing or damaged, or lacks a special token.
        """
        try:
            content = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BundleError(f"Tokenizer file `{path}` cannot be read: {error}. Export the bundle again.") from None
        return cls.from_json(
            content, path, pad_token=pad_token, unk_token=unk_token, bos_token=bos_token, eos_token=eos_token
        )

    @classmethod
    def from_json(cls, content: str, path: str | Path, **special: str) -> Tokenizer:
        """Create a tokenizer from the content of a ``tokenizer.json``.

        Args:
            content: the file's content.
            path: the file's name, for errors.
            special: special tokens; see the class.

        Raises:
            BundleError: the content is damaged, or lacks a special token.
        """
        with _library_errors(f"Tokenizer file `{path}` is damaged"):
            tokenizer = tokenizers.Tokenizer.from_str(content)
        return cls(tokenizer, **special)

    @property
    def vocabulary_sha256(self) -> str:
        """SHA-256 of all tokens and their ids, in lowercase hexadecimal. Computed on each access."""
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        lines = "".join(f"{index}\t{token}\n" for token, index in sorted(vocabulary.items(), key=lambda item: item[1]))
        return hashlib.sha256(lines.encode("utf-8")).hexdigest()

    def encode(self, text: str) -> list[int]:
        """Encode a text, without special tokens.

        Raises:
            InputError: the text is too long, or not valid Unicode (it contains a lone surrogate).
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str], *, end_token: bool = False) -> list[list[int]]:
        """Encode texts, without padding.

        Args:
            texts: texts to encode.
            end_token: append the end token, as encoders require; otherwise, no special tokens are added.

        Raises:
            InputError: a text is too long, or not valid Unicode (it contains a lone surrogate).
        """
        for index, text in enumerate(texts):
            if len(text) > MAX_TEXT_CHARACTERS:
                raise InputError(
                    index, f"has {len(text):,} characters, but may have at most {MAX_TEXT_CHARACTERS:,}; split it."
                )
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                raise InputError(
                    index, "must be valid Unicode, but contains a lone surrogate; decode it with errors='replace'."
                ) from None
        with _library_errors("The tokenizer cannot encode a text"):
            encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        end = [self.eos_id] if end_token else []
        return [encoding.ids + end for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """Decode token ids to text, without special tokens."""
        kept = [int(index) for index in ids]
        with _library_errors("The tokenizer cannot decode a text"):
            text: str = self._tokenizer.decode(
                [index for index in kept if index not in self._special_ids], skip_special_tokens=True
            )
        return text

    def decode_with(self, ids: Sequence[int], pieces: Mapping[int, str]) -> str:
        """Decode token ids to text, with pieces of other text in place of some tokens.

        Args:
            ids: token ids.
            pieces: text to put in place of a token, by the token's position; it has a space before it if it begins a
                word.
        """
        kept = [place for place, index in enumerate(ids) if place in pieces or index not in self._special_ids]
        tokens = self.tokens(ids)
        with _library_errors("The tokenizer cannot decode a text"):
            text: str = self._tokenizer.decoder.decode([pieces.get(place, tokens[place]) for place in kept])
        return text.strip()

    def pieces(self, text: str) -> list[str]:
        """Return the part of a text that each of its tokens stands for, whether or not the vocabulary has it, with a
        space before it if it begins a word."""
        with _library_errors("The tokenizer cannot encode a text"):
            offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        pieces = [text[start:end] for start, end in offsets]
        return [f" {pieces[0].lstrip()}", *pieces[1:]] if pieces else []

    def token_id(self, token: str) -> int | None:
        """Return the id of a vocabulary entry; ``None`` if there is no such entry."""
        index: int | None = self._tokenizer.token_to_id(token)
        return index

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the vocabulary entry of each id.

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        tokens = []
        for index in ids:
            token = self._tokenizer.id_to_token(int(index)) if 0 <= index < 2**32 else None
            if token is None:
                raise ValueError(f"A token id must be between 0 and {self.vocab_size - 1}, got {index}.")
            tokens.append(token)
        return tokens


@contextmanager
def _library_errors(what: str) -> Iterator[None]:
    """Raise the library's errors, whose cause is the tokenizer's definition, as :class:`BundleError`."""
    try:
        yield
    except BaseException as error:  # the library raises plain Exception, and PanicException, which is not one
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise BundleError(f"{what}: {error}. Export the bundle again.") from None
