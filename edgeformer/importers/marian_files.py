"""Files of a Marian model: which belong together, its options, and its vocabularies."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from edgeformer.errors import ImporterError
from edgeformer.importers.tokenizers import sentencepiece_tokenizer, word_tokenizer
from edgeformer_runtime.bundle.generation import Generation
from edgeformer_runtime.bundle.text_format import TARGET_LANGUAGE, TextFormat
from edgeformer_runtime.tokenizer import Tokenizer

OPTIONS = "special:model.yml"
"""Array with the options of the model, as YAML."""
MAX_OPTIONS = 1 << 20
"""Size of the options, in bytes."""
MAX_VOCABULARY = 64 << 20
"""Size of a vocabulary file, in bytes."""
START_TOKEN = "<s>"
"""Marian has no start token; the decoder's first input is a zero vector. Here, it is the last entry of a table."""
EOS_TOKEN, UNK_TOKEN = "</s>", "<unk>"
TEXT = TextFormat(pad=EOS_TOKEN, bos=START_TOKEN, suppress=(START_TOKEN,), forbid=(UNK_TOKEN,))
LANGUAGE_TOKEN = re.compile(r">>[^<>\s]+<<")
"""Target language of a model with several, as the first token of a source."""
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ESCAPES = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "_": "\xa0",
}


@dataclass(frozen=True)
class Files:
    """The files of a model."""

    model: Path
    """Weights and options."""
    vocabularies: tuple[Path, Path]
    """Source and target vocabulary; the same path if they share one."""
    pieces: tuple[Path, Path] | None = None
    """SentencePiece models whose pieces have the ids of the vocabularies; ``None`` if the vocabularies are
    SentencePiece models themselves, or split text at spaces."""
    decoder: Mapping[str, Any] = field(default_factory=dict)
    """Content of ``decoder.yml``."""

    def generation(self) -> Generation:
        """Decoding defaults, as far as Marian's have an equivalent."""
        normalize = self.decoder.get("normalize", 1)
        return Generation(
            beam_size=int(self.decoder.get("beam-size", 4)),
            length_penalty=float(normalize),
            max_len_a=float(self.decoder.get("max-length-factor", 3)),
            beam_shrinks=True,
        )

    def notes(self) -> tuple[str, ...]:
        """Options of ``decoder.yml`` that have no equivalent."""
        penalty = self.decoder.get("word-penalty", 0)
        return (f"`word-penalty` {penalty} of decoder.yml is not applied.",) if penalty else ()


def has_marian_model(path: Path) -> bool:
    """Return whether a file, or the only ``.npz`` file of a folder, is a model of Marian."""
    try:
        candidates = [path] if path.is_file() else sorted(path.glob("*.npz"))
        for candidate in candidates:
            with zipfile.ZipFile(candidate) as archive:
                if f"{OPTIONS}.npy" in archive.namelist():
                    return True
    except (OSError, zipfile.BadZipFile):
        pass
    return False


def find_files(path: Path) -> Files:
    """Find the model, its vocabularies and its ``decoder.yml``.

    Raises:
        ImporterError: a file is missing, or there are several that it could be.
    """
    folder = path if path.is_dir() else path.parent
    settings: Mapping[str, Any] = {}
    for name in (*((f"{path.name}.decoder.yml",) if path.is_file() else ()), "decoder.yml"):
        if (folder / name).is_file():
            settings = read_yaml((folder / name).read_bytes()[: MAX_OPTIONS + 1], folder / name)
            break
    model = path if path.is_file() else _named(folder, settings.get("models")) or _only(folder, "*.npz", "model")
    vocabularies = [folder / Path(str(name)).name for name in settings.get("vocabs") or ()]
    if len(vocabularies) == 2 and all(file.is_file() for file in vocabularies):
        found = vocabularies[0], vocabularies[1]
    else:
        found = _vocabularies(folder)
    pieces = None
    if ".spm" not in {file.suffix for file in found}:
        sides = [folder / f"{side}.spm" for side in ("source", "target")]
        if all(file.is_file() for file in sides):
            pieces = sides[0], sides[1]
    return Files(model, found, pieces, settings)


def _vocabularies(folder: Path) -> tuple[Path, Path]:
    """Vocabularies that no ``decoder.yml`` names."""
    files = [
        file
        for file in sorted(folder.iterdir())
        if re.search(r"vocab", file.name) and file.suffix in {".yml", ".yaml", ".json", ".spm", ".txt"}
    ]
    if len(files) == 1:
        return files[0], files[0]
    if len(files) == 2:
        sides = [re.search(r"(?:^|[._-])(src|source|trg|tgt|target)(?=[._-]|$)", file.name) for file in files]
        if any(side is not None and side[1] in {"trg", "tgt", "target"} for side in sides[:1]):
            files.reverse()
        elif not any(side is not None for side in sides):
            raise ImporterError(
                f"`{folder}` has the vocabularies {files[0].name} and {files[1].name}; name them in decoder.yml, the "
                "source first."
            )
        return files[0], files[1]
    names = ", ".join(file.name for file in files) or "none"
    raise ImporterError(f"`{folder}` must have one vocabulary or two, beside the model, but has {names}.")


def _named(folder: Path, names: Any) -> Path | None:
    """The model that ``decoder.yml`` names; with several, which Marian would average, the import is refused."""
    if not isinstance(names, list) or not names:
        return None
    if len(names) > 1:
        raise ImporterError("`decoder.yml` names several models, an ensemble; name one file.")
    file = folder / Path(str(names[0])).name
    return file if file.is_file() else None


def _only(folder: Path, pattern: str, what: str) -> Path:
    files = sorted(folder.glob(pattern))
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise ImporterError(f"`{folder}` must have one {what} ({pattern}), but has {names}; give the file itself.")
    return files[0]


def read_options(arrays: Mapping[str, NDArray[Any]], path: Path) -> Mapping[str, Any]:
    """Read the options that Marian stores with the weights.

    Raises:
        ImporterError: they are missing or damaged.
    """
    if OPTIONS not in arrays:
        raise ImporterError(f"`{path}` has no `{OPTIONS}`, in which Marian stores its options.")
    data = arrays[OPTIONS]
    if data.dtype.itemsize != 1 or data.size > MAX_OPTIONS:
        raise ImporterError(f"`{OPTIONS}` of `{path}` is damaged.")
    return read_yaml(data.astype(np.uint8).tobytes().rstrip(b"\0"), path)


def read_yaml(data: bytes, path: Path) -> Mapping[str, Any]:
    """Parse a YAML mapping.

    Raises:
        ImporterError: it is too long, damaged, or no mapping.
    """
    import yaml

    if len(data) > MAX_OPTIONS:
        raise ImporterError(f"The options of `{path}` are longer than {MAX_OPTIONS:,} bytes.")
    try:
        tree = yaml.safe_load(data.decode("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ImporterError(f"The options of `{path}` cannot be parsed: {' '.join(str(error).split())}.") from None
    if not isinstance(tree, dict):
        raise ImporterError(f"The options of `{path}` must be a mapping.")
    return tree


@dataclass(frozen=True)
class Vocabularies:
    """Both tokenizers, each with the start token as its last entry."""

    source: str
    """Content of its ``tokenizer.json``."""
    target: str
    """Equal to the source's if both sides share one."""
    sizes: tuple[int, int]
    """Number of entries, the start token included."""
    text: TextFormat


def read_vocabularies(files: Files) -> Vocabularies:
    """Convert the vocabularies, and append the start token to each.

    Raises:
        ImporterError: a vocabulary is missing, damaged, or lacks the end or the unknown token.
    """
    converted: dict[tuple[Path, Path | None], tuple[str, int]] = {}
    for key in _sides(files):
        if key not in converted:
            converted[key] = _vocabulary(*key)
    (source, source_size), (target, target_size) = (converted[key] for key in _sides(files))
    languages = {}
    if files.pieces is not None:
        names = [name for name in read_vocabulary(files.vocabularies[0]) if LANGUAGE_TOKEN.fullmatch(name)]
        languages = {name[2:-2]: name for name in names}
    text = replace(TEXT, source_prefix=(TARGET_LANGUAGE,), languages=languages) if languages else TEXT
    return Vocabularies(source, target, (source_size, target_size), text)


def _sides(files: Files) -> tuple[tuple[Path, Path | None], tuple[Path, Path | None]]:
    """Vocabulary and SentencePiece model of each side."""
    (source, target), pieces = files.vocabularies, files.pieces or (None, None)
    return (source, pieces[0]), (target, pieces[1])


def _vocabulary(file: Path, pieces: Path | None) -> tuple[str, int]:
    """Return a tokenizer's content and the number of its entries, the start token included."""
    if file.suffix == ".spm":
        content = sentencepiece_tokenizer(file, special_tokens=(START_TOKEN,))
        return content, Tokenizer.from_json(content, file, TEXT).vocab_size
    ids = read_vocabulary(file)
    for token in (EOS_TOKEN, UNK_TOKEN):
        if token not in ids:
            raise ImporterError(f"Vocabulary `{file}` lacks `{token}`.")
    if START_TOKEN in ids:
        raise ImporterError(f"Vocabulary `{file}` has an entry `{START_TOKEN}`, which Marian does not use.")
    ids[START_TOKEN] = max(ids.values()) + 1
    if pieces is not None:
        special = [START_TOKEN, EOS_TOKEN, *(name for name in ids if LANGUAGE_TOKEN.fullmatch(name))]
        return sentencepiece_tokenizer(pieces, ids=ids, special_tokens=special, unk_token=UNK_TOKEN), len(ids)
    words = word_tokenizer(ids, special_tokens=(START_TOKEN, EOS_TOKEN), unk_token=UNK_TOKEN)
    return words, len(ids)


def read_vocabulary(file: Path) -> dict[str, int]:
    """Read a vocabulary in one of Marian's text formats: YAML, JSON, or one entry per line.

    Marian's YAML has one entry per line, whose control characters may be unescaped, which YAML does not allow.

    Raises:
        ImporterError: the file cannot be read, or is damaged.
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_VOCABULARY + 1)
        if len(data) > MAX_VOCABULARY:
            raise ImporterError(f"Vocabulary `{file}` has more than {MAX_VOCABULARY:,} bytes.")
        text = data.decode("utf-8")
        if file.suffix == ".json":
            ids = json.loads(text)
        elif file.suffix == ".txt":
            ids = {line: index for index, line in enumerate(text.removesuffix("\n").split("\n"))}
        else:
            ids = dict(_yaml_entry(line) for line in text.split("\n") if line.strip())
    except OSError as error:
        raise ImporterError(f"Vocabulary `{file}` cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise ImporterError(f"Vocabulary `{file}` is damaged: {error}.") from None
    if not isinstance(ids, dict) or not all(isinstance(index, int) and index >= 0 for index in ids.values()):
        raise ImporterError(f"Vocabulary `{file}` must give an id to each entry.")
    return ids


def _yaml_entry(line: str) -> tuple[str, int]:
    """Parse ``token: id``, whose token may be quoted.

    Raises:
        ValueError: the line has another form.
    """
    token, separator, index = line.rpartition(":")
    if not separator:
        raise ValueError(f"the line `{line[:80]}` has no colon")
    if len(token) > 1 and token[0] == token[-1] == '"':
        token = _ESCAPE.sub(_unescaped, token[1:-1])
    elif len(token) > 1 and token[0] == token[-1] == "'":
        token = token[1:-1].replace("''", "'")
    return token, int(index)


def _unescaped(match: re.Match[str]) -> str:
    if match[4] is not None:
        return _ESCAPES.get(match[4], match[4])
    code = int(match[1] or match[2] or match[3], 16)
    if code > sys.maxunicode:
        raise ValueError(f"`{match[0]}` is no character")
    return chr(code)
