"""Encoding and decoding by SentencePiece's own library. It is not imported before a model needs it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sentencepiece import SentencePieceProcessor

from edgeformer_runtime.tokenizers.segmenter import Segmenter, Span
from edgeformer_runtime.tokenizers.tokenizer_file import SentencePieceFile

SPACE = "\u2581"
"""Stands for a space in pieces."""
_AS_IT_IS = "\uffff"
"""Put before text that is not to be taken for a piece when decoding; Unicode guarantees that no text has it."""


class SentencePieceSegmenter(Segmenter):
    """Encodes and decodes by a SentencePiece model.

    Ids are those of the pieces, or those of the file's own vocabulary. The second case is how Marian, CTranslate2 and
    Hugging Face use SentencePiece: it divides text into pieces, each of which is then looked up in the vocabulary.

    Args:
        file: the model.
        special: names of tokens that no text may be encoded to.
        unk: name of the unknown token.

    Raises:
        ValueError, RuntimeError: the file is damaged, or text could be encoded to a special token.
    """

    def __init__(self, file: SentencePieceFile, special: Collection[str], unk: str) -> None:
        self._file, self._special, self._unk = file, frozenset(special), unk
        self._names = file.vocabulary
        self._library = SentencePieceProcessor()
        self._library.LoadFromSerializedProto(file.proto())
        self.size = len(self._library if self._names is None else self._names)
        if self._names is not None:
            self._look_up(self._names)
            return
        ids = [index for name in self._special - {unk} if (index := self.token_id(name)) is not None]
        if not all(self._library.is_control(ids)):  # as these, SentencePiece finds them in no text
            raise ValueError("a special token is not a control piece")

    def __reduce__(self) -> tuple[type[SentencePieceSegmenter], tuple[SentencePieceFile, frozenset[str], str]]:
        return type(self), (self._file, self._special, self._unk)

    def token(self, index: int) -> str | None:
        """Return the entry with an id; ``None`` if there is no such id."""
        if not 0 <= index < self.size:
            return None
        name: str = self._library.id_to_piece(index) if self._names is None else self._names[index]
        return name

    def token_id(self, name: str) -> int | None:
        """Return the id of an entry; ``None`` if there is no such entry."""
        if self._names is not None:
            return self._ids.get(name)
        index: int = self._library.piece_to_id(name)  # that of the unknown piece, if there is no such piece
        return index if self._library.id_to_piece(index) == name else None

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts, without special tokens."""
        encode = self._library.encode  # of a list, it would start threads
        if self._names is None:
            return [encode(text) for text in texts]
        find, unk_id = self._matched.get, self._unk_id
        return [[find(piece, unk_id) for piece in encode(text, out_type=str)] for text in texts]

    def encode_with_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        """Encode texts, and return which characters of each of them its tokens stand for."""
        found = [self._library.encode(text, out_type="offset_mapping") for text in texts]
        if self._names is None:
            return [(each["ids"], each["offsets"]) for each in found]
        find, unk_id = self._matched.get, self._unk_id
        return [([find(piece, unk_id) for piece in each["pieces"]], each["offsets"]) for each in found]

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to text. Special tokens are dropped."""
        known = [index for index in ids if index < self.size]
        if self._names is not None:
            return self.decode_pieces(known)
        text: str = self._library.decode(known)
        return text

    def decode_pieces(self, tokens: Sequence[int | str]) -> str:
        """Decode ids and pieces of text. Special tokens are dropped."""
        find = self._library.id_to_piece if self._names is None else self._decoded.__getitem__
        names = [_AS_IT_IS + token if isinstance(token, str) else find(token) for token in tokens]
        text: str = self._library.decode(names)
        if any(name.startswith(_AS_IT_IS) for name in names):
            return text.removeprefix(f"{_AS_IT_IS} ").replace(_AS_IT_IS, "")  # no space before the first word
        return text

    def pieces(self, text: str) -> list[str]:
        """Return the part of a text that each token stands for, with a space before it if it begins a word."""
        found = self._library.encode(text, out_type="offset_mapping")
        return [
            " " * name.startswith(SPACE) + text[start:end].strip() + " " * name[1:].endswith(SPACE)
            for name, (start, end) in zip(found["pieces"], found["offsets"], strict=True)
        ]

    def _look_up(self, names: list[str]) -> None:
        """Prepare the encoding and decoding of entries of a vocabulary, whose names may be pieces or not."""
        own = self._library.piece_to_id(names)
        is_control, unknown = self._library.is_control(own), self._library.unk_id()
        dropped = self._special | {name for name, control in zip(names, is_control, strict=True) if control}
        self._ids = {name: index for index, name in enumerate(names)}
        self._matched = {name: index for name, index in self._ids.items() if name not in dropped}
        self._unk_id = self._ids.get(self._unk, -1)
        self._decoded = [
            name if index != unknown or name == self._unk else _AS_IT_IS + name.replace(SPACE, " ")
            for name, index in zip(names, own, strict=True)
        ]
