"""The files of a model folder, read as data; code among them is not run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import parse_yaml, read_json
from edgeformer.importers.tokenizers.sentencepiece_model import SentencePieceModel, read_library_file, read_model

MAX_CARD = 1 << 16
"""Bytes of a model card that are searched for the license."""
JsonObject = dict[str, Any]
"""A JSON object."""


@dataclass(frozen=True)
class ModelFolder:
    """A model folder."""

    path: Path
    config: Mapping[str, Any]
    """Content of ``config.json``."""
    generation: Mapping[str, Any]
    """Content of ``generation_config.json``; without it, ``transformers`` takes generation settings from
    ``config.json``."""
    tokenizer: Mapping[str, Any]
    """Content of ``tokenizer_config.json``; empty without it."""
    tokenizers: tuple[Path, ...] = ()
    """SentencePiece models that users give: one, or one for each side."""
    opened: list[Path] = field(default_factory=list)
    """Files that SentencePiece models were read from."""

    def file(self, *names: str) -> Path | None:
        """Return the first of these files that exists."""
        return next((self.path / name for name in names if (self.path / name).is_file()), None)

    def needed(self, *names: str, why: str) -> Path:
        """Return the first of these files that exists."""
        file = self.file(*names)
        if file is None:
            raise ImporterError(f"`{self.path}` lacks {' or '.join(names)}, {why}.")
        return file

    def pieces(self, *names: str, side: int | None = None) -> SentencePieceModel:
        """Read the SentencePiece model of a tokenizer: the one that users give, one of these files, or what
        ``tokenizer.json`` has of it.

        Args:
            names: names of the file.
            side: 0 for the source and 1 for the target, if each side has one; ``tokenizer.json`` is for both.
        """
        file = self.tokenizers[-1 if side else 0] if self.tokenizers else self.file(*names)
        rebuilt = self.file("tokenizer.json") if side is None else None
        if file is None and rebuilt is None:
            raise ImporterError(
                f"`{self.path}` lacks {' or '.join(names)}, the SentencePiece model of its tokenizer; give it with "
                "--tokenizer."
            )
        model = read_model(file) if file is not None else read_library_file(self.path / "tokenizer.json")
        self.opened.append(model.path)
        return model

    def added_tokens(self) -> dict[str, int | None]:
        """Names of tokens beside the tokenizer's own vocabulary, and their ids where they are stated, in order."""
        found: dict[str, int | None] = {}
        for index, entry in self._decoder.items():
            _add(found, entry, int(index) if str(index).isdecimal() and len(str(index)) < 10 else None)
        for name, index in _optional(self.path / "added_tokens.json").items():
            _add(found, name, index)
        for entry in self._listed:
            _add(found, entry, _mapping(entry).get("id"))
        for settings in (self.tokenizer, _optional(self.path / "special_tokens_map.json")):
            for key in ("additional_special_tokens", "extra_special_tokens"):
                for entry in _list(settings.get(key)):
                    _add(found, entry, None)
        return found

    def words(self) -> tuple[str, ...]:
        """Tokens that were added to be found in texts, as those of languages are not."""
        entries = [_mapping(entry) for entry in (*self._decoder.values(), *self._listed)]
        names = [entry.get("content") for entry in entries if entry.get("special") is False]
        return tuple(dict.fromkeys(name for name in names if isinstance(name, str)))

    @property
    def _decoder(self) -> Mapping[str, Any]:
        return _mapping(self.tokenizer.get("added_tokens_decoder"))

    @property
    def _listed(self) -> list[Any]:
        return _list(_optional(self.path / "tokenizer.json").get("added_tokens"))

    @property
    def tokenizer_class(self) -> str:
        """Name of the class of the tokenizer, which ``config.json`` has if ``tokenizer_config.json`` lacks it; empty
        if none is stated."""
        return str(self.tokenizer.get("tokenizer_class") or self.config.get("tokenizer_class") or "")

    def license(self) -> str:
        """License that the front matter of ``README.md`` states; empty if it states none."""
        try:
            with (self.path / "README.md").open("rb") as stream:
                text = stream.read(MAX_CARD).decode("utf-8", errors="replace").replace("\r\n", "\n")
            if not text.startswith("---\n"):
                return ""
            front = parse_yaml(text[4:].split("\n---", 1)[0])
        except (OSError, ValueError):
            return ""
        stated = _mapping(front).get("license", "")
        names = stated if isinstance(stated, list) else [stated]
        return ", ".join(name for name in names if isinstance(name, str))[:200]


def open_folder(path: Path, tokenizers: tuple[Path, ...] = ()) -> ModelFolder:
    """Read the settings of a model folder; see :class:`ModelFolder` for the tokenizers."""
    if not path.is_dir():
        raise ImporterError(f"`{path}` must be a folder with config.json and weights.")
    if not (path / "config.json").is_file():
        raise ImporterError(f"`{path}` lacks config.json, with the architecture of the model.")
    config = read_json(path / "config.json", JsonObject)
    generation = path / "generation_config.json"
    return ModelFolder(
        path,
        config,
        read_json(generation, JsonObject) if generation.is_file() else config,
        _optional(path / "tokenizer_config.json"),
        tokenizers,
    )


def has_config(path: Path) -> bool:
    """Return whether a folder has a ``config.json`` with the type of a model, or a damaged one, which is then named."""
    try:
        file = path / "config.json"
        return file.is_file() and isinstance(read_json(file, JsonObject).get("model_type"), str)
    except ImporterError:
        return True


def _optional(file: Path) -> dict[str, Any]:
    return read_json(file, JsonObject) if file.is_file() else {}


def _add(found: dict[str, int | None], entry: Any, index: Any) -> None:
    """Add a token, which may be a name or a mapping with one; a stated id stays."""
    name = _mapping(entry).get("content") if isinstance(entry, dict) else entry
    if isinstance(name, str) and found.get(name) is None:
        found[name] = index if type(index) is int and index >= 0 else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
