"""The tensors of a checkpoint, in one file or several, and their conversion to this project's names.

Files are safetensors, or pickles of nothing but tensors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import MAX_ARRAYS, read_json
from edgeformer.importers.hugging_face.model_folder import ModelFolder
from edgeformer.importers.layout import OUTPUT_BIAS, MappedModule, WeightConverter, tied_tables
from edgeformer.importers.model import FloatArray
from edgeformer.importers.registry import advice
from edgeformer.traceback_summary import describe

if TYPE_CHECKING:
    import torch

SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"
Rows = tuple[int, int]
"""Entries of the source and of the target embedding."""
DTYPES = ("float32", "float16", "bfloat16", "float64")
"""Types of numbers that are converted to float32."""
MAX_LENGTH = 1024
"""Tokens of a source or target, where positions have no limit."""
MAX_POSITIONS = 4096
"""Rows of a table of positions that is computed."""
SOURCE, TARGET, SHARED, OUTPUT = (
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "shared.weight",
    "lm_head.weight",
)
BIAS = "final_logits_bias"
WRAPPERS = re.compile(r"((module|_forward_module|_orig_mod|model)\.)+")
"""Starts of names that say nothing of the network: most checkpoints with an output layer have ``model.``, and training
in parallel or with ``torch.compile`` adds others."""


class _Index(msgspec.Struct):
    """What names the files of weights that are in several."""

    weight_map: dict[str, str]
    """File of each weight."""


class Checkpoint(WeightConverter):
    """Tensors by name, which are read when they are taken.

    Args:
        files: the files they are in.
        tensors: for each name, a function that reads the tensor.
    """

    def __init__(self, files: Collection[Path], tensors: Mapping[str, Callable[[], torch.Tensor]]) -> None:
        self.files = tuple(files)
        self._tensors = {WRAPPERS.sub("", name): read for name, read in tensors.items()}
        if len(self._tensors) < len(tensors):
            raise ImporterError("The weights have the same names with and without a prefix, such as `model.`.")
        super().__init__(self._tensors)

    def _read(self, name: str) -> FloatArray:
        try:
            tensor = self._tensors[name]()
        except Exception as error:  # types that torch does not have, among others
            raise ImporterError(f"Weight `{name}` cannot be read: {describe(error)}.") from None
        if str(tensor.dtype).removeprefix("torch.") not in DTYPES:
            raise ImporterError(f"Weight `{name}` has the type {tensor.dtype}; only {', '.join(DTYPES)} are supported.")
        if tensor.data_ptr() % tensor.itemsize:
            tensor = tensor.clone()  # libraries expect alignment
        array: FloatArray = tensor.float().numpy()
        return array

    def _weight(self, module: MappedModule, shape: tuple[int, ...]) -> FloatArray:
        return self.take(f"{module.theirs}.weight", *shape)

    def _bias(self, module: MappedModule, size: int) -> FloatArray:
        return self.take(f"{module.theirs}.bias", size)

    def tables(self, source: tuple[int, int], target: tuple[int, int], *, tied: bool, shared: bool = True) -> str:
        """Convert the embeddings and the output projection, and return ``tied_embeddings`` of the configuration.

        As in ``transformers``, tables that the configuration ties, but of which the checkpoint has different values,
        are not tied.

        Args:
            source: shape of the source embedding, ``(V, D)``.
            target: shape of the target embedding and of the projection.
            tied: whether the output projection is tied to an embedding.
            shared: whether both embeddings are tied.
        """
        # Where each is, by preference: checkpoints have tied tables under one of their names, or under several.
        output_names = (OUTPUT,) if tied else ()
        embeddings = (SHARED, TARGET, SOURCE) if shared else (TARGET,)
        sources = self._table(source, SOURCE, *((*embeddings, *output_names) if shared else ()))
        targets = self._table(target, TARGET, *embeddings, *output_names)
        outputs = self._table(target, OUTPUT, *(embeddings if tied else ()))
        if SHARED in self and shared:
            self.take(SHARED)
        tying, tables = tied_tables(sources, targets, outputs)
        self.weights |= tables
        return tying

    def output_bias(self, rows: int) -> bool:
        """Convert the bias of the output projection; return whether there is one, other than zero."""
        if BIAS not in self:
            return False
        bias = self.take(BIAS, 1, rows).reshape(-1)
        if not bias.any():
            return False
        self.weights[OUTPUT_BIAS] = bias
        return True

    def _table(self, shape: tuple[int, int], *names: str) -> FloatArray:
        """The first of these tables that the checkpoint has."""
        name = next((name for name in names if name in self), names[0])
        return self.take(name, *shape)


def open_checkpoint(folder: ModelFolder) -> Checkpoint:
    """Find the weights of a folder; safetensors are preferred."""
    for name, load in ((SAFE, _safe_tensors), (PICKLED, _pickled_tensors)):
        files = _files(folder, name)
        if not files:
            continue
        tensors: dict[str, Callable[[], torch.Tensor]] = {}
        for file, read_each in zip(files, load(files), strict=True):
            for key, read in read_each.items():
                if key in tensors or len(tensors) >= MAX_ARRAYS:
                    raise ImporterError(
                        f"`{file}` has the weight `{key[:80]}` again, or more weights than a model has."
                    )
                tensors[key] = read
        return Checkpoint(files, tensors)
    words = advice(folder.path) or f"has no weights: neither {SAFE} nor {PICKLED}, nor their parts with an index"
    raise ImporterError(f"`{folder.path}` {words}.")


def has_weights(path: Path) -> bool:
    """Return whether a folder has files of weights, or the index of their parts."""
    return any((path / f"{name}{end}").is_file() for name in (SAFE, PICKLED) for end in ("", ".index.json"))


def _files(folder: ModelFolder, name: str) -> list[Path]:
    """The file, or the parts that an index lists; empty if there is neither."""
    if (folder.path / name).is_file():
        return [folder.path / name]
    index = folder.path / f"{name}.index.json"
    if not index.is_file():
        return []
    files = []
    for part in sorted(set(read_json(index, _Index).weight_map.values())):
        file = folder.path / part
        if Path(part).name != part or Path(part).suffix != Path(name).suffix:
            raise ImporterError(f"`{index}` names `{part[:80]}`, which is not a weight file of the folder.")
        if not file.is_file():
            raise ImporterError(f"`{index}` names `{part[:80]}`, which the folder lacks; download it.")
        files.append(file)
    return files


def _safe_tensors(files: Sequence[Path]) -> Iterator[dict[str, Callable[[], torch.Tensor]]]:
    from safetensors import SafetensorError, safe_open

    for file in files:
        try:
            opened: Any = safe_open(file, framework="pt")
            yield {name: partial(opened.get_tensor, name) for name in opened.keys()}  # noqa: SIM118  # not a mapping
        except (SafetensorError, OSError, ValueError) as error:
            raise ImporterError(f"`{file}` is damaged: {describe(error)}. Download it again.") from None


def _pickled_tensors(files: Sequence[Path]) -> Iterator[dict[str, Callable[[], torch.Tensor]]]:
    from edgeformer.importers.pickled import read_pickled  # imports torch

    for tensors in read_pickled(files):
        yield {name: tensor.detach for name, tensor in tensors.items()}
