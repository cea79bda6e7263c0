"""Files of a Marian model: which belong together, and how their text is prepared."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import MAX_YAML, open_zip, read_bytes, refuse_pointer
from edgeformer.importers.marian.binary import is_shortlist
from edgeformer.importers.marian.options import OPTIONS, read_yaml
from edgeformer.importers.registry import ImportOverrides
from edgeformer.importers.tokenizers import TextFiles, side_of
from edgeformer_runtime.bundle.generation import Generation


@dataclass(frozen=True)
class MarianFiles:
    """The files of a model."""

    model: Path
    """Weights and options."""
    text: TextFiles
    """Vocabularies, and what divides text into their entries."""
    shortlist: Path | None = None
    """Bergamot's lexical shortlist."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Content of the decoder's configuration file."""

    def generation(self, *, beam_size: int, normalize: float, max_length_factor: float) -> Generation:
        """Decoding defaults, as far as Marian's have an equivalent.

        The arguments count where the configuration file states nothing: the beam, the exponent of the length that
        scores are divided by, and the limit of the length in multiples of that of the source.
        """
        return Generation(
            beam_size=int(self.settings.get("beam-size", beam_size)),
            length_penalty=float(self.settings.get("normalize", normalize)),
            max_len_a=float(self.settings.get("max-length-factor", max_length_factor)),
            beam_shrinks=True,
        )

    def notes(self) -> tuple[str, ...]:
        """Options of the configuration file that have no equivalent."""
        penalty = self.settings.get("word-penalty", 0)
        return (f"`word-penalty` {penalty} is not applied.",) if penalty else ()


def has_options(file: Path) -> bool:
    """Return whether a file is an ``.npz`` file with Marian's options."""
    try:
        with open_zip(file) as archive:
            return f"{OPTIONS}.npy" in archive.namelist()
    except ImporterError:
        return False


def find_files(path: Path, is_model: Callable[[Path], bool], suffix: str, overrides: ImportOverrides) -> MarianFiles:
    """Find the model, its vocabularies and the decoder's configuration.

    Args:
        path: the model, or the folder it is in.
        is_model: judges a file with the suffix of models by its content.
        suffix: the suffix.
        overrides: tokenizers, if they are elsewhere.
    """
    folder = path if path.is_dir() else path.parent
    patterns = f"{glob.escape(path.name)}.decoder.yml", "*decoder.yml", "config*.yml"
    candidates = [file for pattern in patterns for file in sorted(folder.glob(pattern))]
    settings = read_yaml(read_bytes(candidates[0], MAX_YAML), candidates[0]) if candidates else {}
    model = path
    if path.is_dir():
        found_models = [file for file in sorted(folder.glob(f"*{suffix}")) if is_model(file)]
        model = _named(folder, settings.get("models")) or _only(found_models, f"model ({suffix})", folder)
    vocabularies = [folder / Path(str(name)).name for name in settings.get("vocabs") or ()]
    if len(vocabularies) == 2 and all(file.is_file() for file in vocabularies):
        found = vocabularies[0], vocabularies[1]
    else:
        found = _vocabularies(folder)
    own = [file if file.suffix == ".spm" else None for file in found]
    pieces = None if any(own) else overrides.pieces or _sides(folder, "spm")
    if pieces is None and not any(own) and _sides(folder, "bpe"):
        raise ImporterError(
            f"`{folder}` has BPE codes of subword-nmt for text that Moses' scripts split, which are not supported; "
            "import a later release, with source.spm, or convert this one with `ct2-opus-mt-converter` and run it "
            "in CTranslate2."
        )
    binaries = sorted(folder.glob("*.bin"))
    for file in binaries:
        refuse_pointer(file)  # which could not be told from what is not a shortlist
    lists = [file for file in binaries if is_shortlist(file)]
    text = TextFiles(found, pieces or (own[0], own[1]))
    return MarianFiles(model, text, lists[0] if len(lists) == 1 else None, settings)


def _sides(folder: Path, suffix: str) -> tuple[Path, Path] | None:
    source, target = (folder / f"{side}.{suffix}" for side in ("source", "target"))
    return (source, target) if source.is_file() and target.is_file() else None


def _vocabularies(folder: Path) -> tuple[Path, Path]:
    """Vocabularies that no ``decoder.yml`` names."""
    files = [
        file
        for file in sorted(folder.iterdir())
        if "vocab" in file.name and file.suffix in {".yml", ".yaml", ".json", ".spm", ".txt"}
    ]
    if len(files) == 1:
        return files[0], files[0]
    if len(files) == 2:
        sides = [side_of(file) for file in files]
        if sides == [None, None]:
            raise ImporterError(
                f"`{folder}` has the vocabularies {files[0].name} and {files[1].name}; name them in decoder.yml, the "
                "source first."
            )
        return (files[1], files[0]) if sides[0] == 1 or sides[1] == 0 else (files[0], files[1])
    if not files and (sides_of_text := _sides(folder, "spm")):
        return sides_of_text
    names = ", ".join(file.name for file in files) or "none"
    raise ImporterError(f"`{folder}` must have one vocabulary or two, beside the model, but has {names}.")


def _named(folder: Path, names: Any) -> Path | None:
    """The model that the configuration names; with several, which Marian would average, the import is refused."""
    if not isinstance(names, list) or not names:
        return None
    if len(names) > 1:
        raise ImporterError("The configuration names several models, an ensemble; give one file.")
    file = folder / Path(str(names[0])).name
    return file if file.is_file() else None


def _only(files: Sequence[Path], what: str, folder: Path) -> Path:
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise ImporterError(f"`{folder}` must have one {what}, but has {names}; give the file itself.")
    return files[0]
