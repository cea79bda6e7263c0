"""The registry of importers, which are found through the entry-point group ``edgeformer.importers``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.metadata import entry_points
from pathlib import Path

from edgeformer.errors import ConfigError
from edgeformer.importers.archive import refuse_unusable
from edgeformer.importers.model import ImportedModel
from edgeformer.traceback_summary import describe


@dataclass(frozen=True, kw_only=True)
class ImportOverrides:
    """Facts that users state about a model."""

    source_language: str = ""
    """BCP 47 tag."""
    target_language: str = ""
    """BCP 47 tag."""
    tokenizers: tuple[Path, ...] = ()
    """SentencePiece models: one, or one for each side."""

    @property
    def pieces(self) -> tuple[Path, Path] | None:
        """SentencePiece models of the source and of the target."""
        return (self.tokenizers[0], self.tokenizers[-1]) if self.tokenizers else None


NO_OVERRIDES = ImportOverrides()
"""Nothing is overridden."""


@dataclass(frozen=True, kw_only=True)
class Importer:
    """Reads the models of another toolkit."""

    name: str
    """The value of ``--from``."""
    recognizes: Callable[[Path], bool]
    """Whether a file or folder is of this format, judged by its content; raises nothing."""
    read: Callable[[Path, ImportOverrides], ImportedModel]
    """Reads a file or folder, with what users state about it; raises ``ImporterError`` with a sentence about what it
    cannot represent."""
    rank: int = 1
    """Of several formats in one folder, the lowest is read: 0 for weights as they were trained, 2 for what they are
    converted to for an engine, which may be quantized."""


def importers() -> list[Importer]:
    """List all known importers by name.

    Raises:
        ConfigError: an installed package declares a broken importer.
    """
    found = []
    for entry in sorted(entry_points(group="edgeformer.importers"), key=lambda entry: entry.name):
        try:
            importer = entry.load()
        except Exception as error:  # third-party code may raise anything
            raise ConfigError(
                f"Entry point `{entry.name} = {entry.value}` of edgeformer.importers cannot be loaded: "
                f"{describe(error)}."
            ) from error
        if not isinstance(importer, Importer) or importer.name != entry.name:
            raise ConfigError(f"Entry point `{entry.name} = {entry.value}` must be an Importer of that name.")
        found.append(importer)
    return found


def recognizing(path: Path) -> list[Importer]:
    """List the importers whose format a file or folder has, the one to read it with first."""
    return sorted((known for known in importers() if known.recognizes(path)), key=lambda known: known.rank)


def choose_importer(path: Path, name: str | None) -> Importer:
    """Choose an importer by name, or by the content of a file or folder.

    Raises:
        ConfigError: the name is unknown, or no importer recognizes the content.
        ImporterError: the content is what git has instead of large files, or incomplete.
    """
    known = importers()
    names = ", ".join(importer.name for importer in known)
    if name is not None:
        for importer in known:
            if importer.name == name:
                return importer
        raise ConfigError(f"`--from` must be one of {names}, but is `{name}`.")
    if not path.exists():
        raise ConfigError(
            f"`{path}` does not exist; give the file or folder of a model, firefox:PAIR, or hf:ORGANIZATION/NAME."
        )
    if recognized := recognizing(path):
        return recognized[0]
    for folder in sorted(path.iterdir()) if path.is_dir() else ():
        if folder.is_dir() and recognizing(folder):
            raise ConfigError(f"`{path}` has no model, but `{folder}` has one; import that.")
    refuse_unusable(path)
    if words := advice(path):
        raise ConfigError(f"`{path}` {words}.")
    raise ConfigError(f"The format of `{path}` is not recognized. Formats: {names}; choose one with --from.")


_CONVERT = "is a model of {}; convert it with `{}`, and import the folder that this writes".format
_LOAD = "has weights of {} only; load them with transformers 4 and `from_{}=True`, and save the model".format
_FOREIGN = {
    "manifest.json": "is a bundle; put it into a folder of models, and `edgeformer models` finds it",
    "run.json": "is a run; make a bundle of it with `edgeformer export`",
    "adapter_config.json": "is a LoRA adapter; merge it into its base model with peft and import the result",
    "*.gguf": "has a GGUF file, whose weights are quantized for llama.cpp; import the original model",
    "*.nemo": "is a model of NeMo, which cannot be converted to a format that can be imported",
    "*.onnx": "has ONNX graphs, as Optimum exports them, without the weights; import the original model",
    "tf_model.h5": _LOAD("TensorFlow", "tf"),
    "flax_model.msgpack": _LOAD("Flax", "flax"),
    "dict.*.txt": _CONVERT("fairseq", "ct2-fairseq-converter"),
    "*_step_[0-9]*.pt": _CONVERT("OpenNMT-py", "ct2-opennmt-py-converter"),
    "checkpoint*.pt": _CONVERT("fairseq", "ct2-fairseq-converter"),
    "*.index": _CONVERT("OpenNMT-tf", "ct2-opennmt-tf-converter"),
    "model.[0-9]*.safetensors": _CONVERT("Eole", "python -m ctranslate2.converters.eole_ct2"),
    "model.*.safetensors": "has a variant of the weights, whose name is not read; rename it to model.safetensors",
    "model-*-of-*.safetensors": "has weights in parts, but no model.safetensors.index.json; download that, too",
    **dict.fromkeys(
        ("*.tar", "*.tar.?z*", "*.tgz", "*.7z"), "is packed; unpack the archive, and import the folder with its files"
    ),
    **dict.fromkeys(
        ("*.pt", "*.pth", "*.ckpt", "params.best"),
        "has weights of PyTorch, but their network is defined in the code that trained it; export it from that code, "
        "as docs/your-own-model.md shows",
    ),
    "*.safetensors": "has weights, but nothing says what they are of; give the folder that also has config.json",
}
"""Advice on a folder with a file of this name; the first that matches counts."""


def advice(path: Path) -> str:
    """Say what a file or folder has instead of a model, and what to do, as the end of a sentence; empty if unknown."""
    names = [path.name] if path.is_file() else [file.name for file in path.glob("*")]
    found = (words for pattern, words in _FOREIGN.items() if any(fnmatch(name, pattern) for name in names))
    return next(found, "")
