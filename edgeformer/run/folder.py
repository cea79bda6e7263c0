"""The run folder: everything that training writes, and the way back to a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tokenizers

from edgeformer.config import Recipe, recipe_from_tree
from edgeformer.errors import CheckpointError, ConfigError
from edgeformer.families import family_names, get_family
from edgeformer.model.base import EncoderDecoder
from edgeformer.model.build import build_model
from edgeformer.run.info import RunInfo
from edgeformer.run.weights import load_weights
from edgeformer.staged_folder import can_be_replaced, staged_folder
from edgeformer_runtime.errors import BundleError, OptionError
from edgeformer_runtime.files import write_atomically
from edgeformer_runtime.tokenizers import Tokenizer, special_tokens

RECIPE_FILE = "recipe.json"
INFO_FILE = "run.json"
MODEL_FILE = "model.safetensors"
SAMPLE_FILE = "sample.tsv"
METRICS_FILE = "metrics.csv"
SHARED_TOKENIZER_FILE = "tokenizer.json"
SOURCE_TOKENIZER_FILE = "source.tokenizer.json"
TARGET_TOKENIZER_FILE = "target.tokenizer.json"
CHECKPOINT_FOLDER = "checkpoints"
RESUME_FILE = "last.ckpt"
INITIAL_FILE = "initial.safetensors"

SAMPLE_SIZE = 1000
FORMER_DATA_KEYS = ("augment", "same_digits", "french_spaces")
"""Keys of section ``[data]`` of earlier versions. They mattered only while a run was trained."""
MAX_UNKNOWN = 0.1
"""Fraction of unknown tokens, or of empty translations, above which a sample of text is unlike what a model is for."""
AFTER_DIVERGENCE = (
    "To train further, start again in another folder with a lower `train.learning_rate` or more `train.warmup_steps`."
)
"""Advice after divergence; resuming would only diverge again."""


class Run:
    """A run folder on disk.

    ::

        recipe.json  run.json  metrics.csv  sample.tsv
        tokenizer.json, or source.tokenizer.json and target.tokenizer.json
        model.safetensors            the final model, once finished or diverged
        training.png                 a picture of metrics.csv
        tensorboard/                 the same metrics, if TensorBoard is installed
        checkpoints/initial.safetensors  weights that training started from, if it did not start from random ones
        checkpoints/last.ckpt        the checkpoint to resume from
        checkpoints/step-*.safetensors
        encoded/                     the text as token ids, until training has finished
    """

    former_keys: tuple[str, ...] = ()
    """Those of :data:`FORMER_DATA_KEYS` that the recipe set; such a run is complete, but cannot be resumed."""

    def __init__(self, path: Path, recipe: Recipe, info: RunInfo) -> None:
        self.path = path
        self.recipe = recipe
        self.info = info
        names = (
            (SHARED_TOKENIZER_FILE,) * 2 if recipe.tokenizer.shared else (SOURCE_TOKENIZER_FILE, TARGET_TOKENIZER_FILE)
        )
        self.source_tokenizer_path, self.target_tokenizer_path = (path / name for name in names)
        if any(path.glob("*tokenizer.spm")):
            raise CheckpointError(f"Run `{path}` is of an earlier version; import its model again into a new folder.")
        try:
            source = Tokenizer.from_file(self.source_tokenizer_path, info.text)
            self.source_tokenizer = source.for_sources(*self.languages)
            self.target_tokenizer = Tokenizer.from_file(self.target_tokenizer_path, info.text)
            prefix = self.target_tokenizer.target_prefix(*self.languages)
            self.special = special_tokens(self.source_tokenizer, self.target_tokenizer, prefix)
            """Ids of the special tokens, and what targets in the recipe's language begin with."""
        except (BundleError, OptionError) as error:
            raise CheckpointError(f"Run `{path}` is damaged. {error} Train again into a new folder.") from None

    @classmethod
    def create(
        cls,
        path: Path,
        recipe: Recipe,
        source_tokenizer: tokenizers.Tokenizer | str,
        target_tokenizer: tokenizers.Tokenizer | str,
        sample: Sequence[tuple[str, str]],
        info: RunInfo,
        complete: Callable[[Path], object] | None = None,
    ) -> Run:
        """Write a new run folder, as a whole or not at all.

        Args:
            path: the folder; missing or empty.
            recipe: what defines the model.
            source_tokenizer: the library's tokenizer, or the content of a ``tokenizer.json``.
            target_tokenizer: the same for the target side; not used if the recipe's tokenizer is shared.
            sample: pairs of the training text.
            info: what is known so far.
            complete: writes what else is in the folder, before that gets its name.

        Raises:
            CheckpointError: the folder exists and is not empty.
            ConfigError: it is the current folder or a mount point.
        """
        refuse_used(path)
        with staged_folder(path) as folder:
            (folder / CHECKPOINT_FOLDER).mkdir()
            (folder / RECIPE_FILE).write_bytes(_json(recipe))
            (folder / INFO_FILE).write_bytes(_json(info))
            if recipe.tokenizer.shared:
                files = {SHARED_TOKENIZER_FILE: source_tokenizer}
            else:
                files = {SOURCE_TOKENIZER_FILE: source_tokenizer, TARGET_TOKENIZER_FILE: target_tokenizer}
            for name, tokenizer in files.items():
                content = tokenizer if isinstance(tokenizer, str) else tokenizer.to_str()
                (folder / name).write_text(content, encoding="utf-8")
            (folder / SAMPLE_FILE).write_bytes(_lines(sample))
            if complete is not None:
                complete(folder)
        return cls(path, recipe, info)

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Read a run folder, except for the model itself; see :meth:`load_model`.

        Raises:
            CheckpointError: the folder is missing or damaged, or its model family cannot be used here.
        """
        path = Path(path)
        if not (path / RECIPE_FILE).is_file():
            raise CheckpointError(
                f"`{path}` is not a run folder: it has no {RECIPE_FILE}. Make one with `edgeformer train`."
            )
        file = RECIPE_FILE
        try:
            tree = msgspec.json.decode((path / RECIPE_FILE).read_bytes())
            _require_family(path, tree)
            former = _remove_former_keys(tree)
            recipe = recipe_from_tree(tree, str(path / RECIPE_FILE))
            file = INFO_FILE
            info = msgspec.json.decode((path / INFO_FILE).read_bytes(), type=RunInfo)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ConfigError, OSError) as error:
            reason = str(error).removesuffix(".")
            raise CheckpointError(
                f"Run `{path}` is damaged: `{file}` cannot be used ({reason}). Restore the file, or train again "
                "into a new folder."
            ) from None
        run = cls(path, recipe, info)
        run.former_keys = former
        return run

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language of the recipe."""
        return self.recipe.source_language, self.recipe.target_language

    @property
    def checkpoints(self) -> Path:
        """Folder of the weights and of the checkpoint to resume from."""
        return self.path / CHECKPOINT_FOLDER

    @property
    def encoded(self) -> Path:
        """Folder of the text as token ids."""
        return self.path / "encoded"

    @property
    def initial_path(self) -> Path:
        """File of the weights that training starts from; missing if they are random."""
        return self.checkpoints / INITIAL_FILE

    @property
    def model_path(self) -> Path:
        """File of the final model's weights."""
        return self.path / MODEL_FILE

    @property
    def sample(self) -> list[tuple[str, str]]:
        """A sample of the training pairs, for calibrating quantization and for showing."""
        try:
            text = (self.path / SAMPLE_FILE).read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"Run `{self.path}` is damaged: {error}.") from None
        return [(source, target) for source, _, target in (line.partition("\t") for line in text.split("\n") if line)]

    @property
    def sample_warnings(self) -> list[str]:
        """Reasons why :attr:`sample` is unfit for calibration and comparison, in sentences; usually empty."""
        sources, targets = zip(*self.sample, strict=True) if self.sample else ((), ())
        unknown, empty = self.source_tokenizer.unknown_share(sources), sum(not target.strip() for target in targets)
        advice = (
            "Quantization is calibrated on it: use text like that to be translated, such as `edgeformer import --text`."
        )
        warnings = []
        if sources and unknown > MAX_UNKNOWN:
            warnings.append(f"{unknown:.0%} of the tokens of the run's sample are unknown to the model. {advice}")
        if empty > MAX_UNKNOWN * len(targets):
            warnings.append(f"{empty} of {len(targets)} translations in the run's sample are empty. {advice}")
        return warnings

    def build_model(self) -> EncoderDecoder:
        """Build the untrained model that the recipe describes."""
        return build_model(self.recipe, self.source_tokenizer.vocab_size, self.target_tokenizer.vocab_size)

    def load_model(self) -> EncoderDecoder:
        """Load the final model, in evaluation mode.

        Raises:
            CheckpointError: the run has no final model, or its weights are damaged or belong to another model.
        """
        if not self.model_path.is_file() and self.info.status == "diverged":
            raise CheckpointError(
                f"Run `{self.path}` has no {MODEL_FILE}: it diverged before its first validation. "
                f"{self.info.stopped_by}. {AFTER_DIVERGENCE}"
            )
        if not self.model_path.is_file():
            raise CheckpointError(
                f"Run `{self.path}` has no {MODEL_FILE}: training has not finished. "
                f"Continue it with `edgeformer train --out {self.path} --resume`."
            )
        return load_weights(self.build_model(), self.model_path).eval()

    def update(self, **changes: Any) -> None:
        """Replace fields of :attr:`info` and write ``run.json``."""
        self.info = msgspec.structs.replace(self.info, **changes)
        write_atomically(self.path / INFO_FILE, _json(self.info))

    def write_recipe(self) -> None:
        """Write :attr:`recipe` again, which resuming may have changed."""
        write_atomically(self.path / RECIPE_FILE, _json(self.recipe))

    def write_sample(self, sample: Sequence[tuple[str, str]]) -> None:
        """Replace :attr:`sample`."""
        write_atomically(self.path / SAMPLE_FILE, _lines(sample))


def refuse_used(path: Path) -> None:
    """Make sure that a run can be created at a path.

    Raises:
        CheckpointError: there is a file, or a folder that is not empty.
        ConfigError: it is the current folder or a mount point.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        resume = ", or continue its run with --resume" if (path / INFO_FILE).is_file() else ""
        raise CheckpointError(f"`{path}` is not an empty folder; choose another --out{resume}.")
    if path.exists() and not can_be_replaced(path):
        raise ConfigError(f"`{path}` is the current folder or a mount point; give a folder inside it with --out.")


def _require_family(path: Path, tree: Any) -> None:
    """Make sure that a recipe's family is installed; a recipe without a family is refused elsewhere."""
    model = tree.get("model") if isinstance(tree, dict) else None
    family = model.get("family") if isinstance(model, dict) else None
    if not isinstance(family, str):
        return
    needs = f"Run `{path}` needs the model family `{family}`"
    if family not in family_names():
        raise CheckpointError(
            f"{needs}, which is not installed; install the package that declares it in `edgeformer.families`."
        )
    try:
        get_family(family)
    except ConfigError as error:
        raise CheckpointError(f"{needs}. {error}") from error


def _remove_former_keys(tree: Any) -> tuple[str, ...]:
    """Remove :data:`FORMER_DATA_KEYS` from a parsed recipe, and return those that were set."""
    data = tree.get("data") if isinstance(tree, dict) else None
    if not isinstance(data, dict):
        return ()
    removed = {key: data.pop(key, None) for key in FORMER_DATA_KEYS}
    return tuple(key for key, value in removed.items() if (any(value.values()) if isinstance(value, dict) else value))


def differing_keys(left: Mapping[str, Any], right: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted keys whose values differ between two trees."""
    keys = []
    for key in sorted({*left, *right}):
        before, after = left.get(key), right.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            keys += differing_keys(before, after, f"{prefix}{key}.")
        elif before != after:
            keys.append(f"{prefix}{key}")
    return keys


def _lines(pairs: Sequence[tuple[str, str]]) -> bytes:
    """Return tab-separated text of at most :data:`SAMPLE_SIZE` pairs."""
    lines = ("\t".join(text.replace("\t", " ").replace("\n", " ") for text in pair) for pair in pairs[:SAMPLE_SIZE])
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def _json(value: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
