"""The text of a run as token ids, in files that every process of the run maps, and that later sessions use again."""

from __future__ import annotations

import hashlib
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from edgeformer.data.batches import EncodedPairs
from edgeformer.data.corpora import ParallelCorpus
from edgeformer.errors import DataError
from edgeformer.model.base import EncoderDecoder
from edgeformer.run.folder import Run
from edgeformer.staged_folder import staged_folder
from edgeformer_runtime.bundle.open import file_sha256

_PARTS, _INDEX = ("train", "valid"), "index.json"


def encode_corpus(run: Run, corpus: ParallelCorpus, model: EncoderDecoder) -> None:
    """Tokenize the pairs for training and validation, unless a former session did and the files are intact.

    Raises:
        DataError: no pair of a part fits the model, or the files cannot be written.
    """
    path, key = run.encoded, _key(run, corpus, model)
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):  # if it is damaged, it is written again
        if msgspec.json.decode((path / _INDEX).read_bytes()) == _index(path, key):
            return
    shutil.rmtree(path, ignore_errors=True)
    try:
        with staged_folder(path) as folder:
            for part in _PARTS:
                (folder / part).mkdir()
                EncodedPairs.encode(
                    getattr(corpus, part),
                    run.source_tokenizer,
                    run.target_tokenizer,
                    max_source_length=model.max_source_length,
                    max_target_length=model.max_target_length,
                    special=run.special,
                    folder=folder / part,
                )
            (folder / _INDEX).write_bytes(msgspec.json.encode(_index(folder, key)))
    except OSError as error:
        raise DataError(
            f"`{path}` cannot be written: {error.strerror}. It needs about as much space as the text; free some, and "
            "continue with --resume."
        ) from None


def open_encoded(run: Run) -> tuple[EncodedPairs, EncodedPairs]:
    """Map the pairs for training and for validation."""
    train, valid = (EncodedPairs.open(run.encoded / part, run.special) for part in _PARTS)
    return train, valid


def _index(folder: Path, key: str) -> dict[str, str]:
    """Return what the ids depend on, and the hash of each file."""
    return {"key": key, **{f"{file.parent.name}/{file.name}": file_sha256(file) for file in folder.glob("*/*")}}


def _key(run: Run, corpus: ParallelCorpus, model: EncoderDecoder) -> str:
    depends_on = (
        corpus.provenance.sha256,
        corpus.report,
        len(corpus.train),
        run.recipe.data,
        [file_sha256(path) for path in (run.source_tokenizer_path, run.target_tokenizer_path)],
        run.info.text,
        run.languages,
        run.special,
        model.max_source_length,
        model.max_target_length,
    )
    return hashlib.sha256(msgspec.json.encode(depends_on)).hexdigest()
