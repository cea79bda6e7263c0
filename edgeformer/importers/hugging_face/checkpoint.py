"""The tensors of a checkpoint: safetensors, or pickles of nothing but tensors, in one file or several."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeformer.errors import ImporterError
from edgeformer.importers.advice import advice
from edgeformer.importers.archive import MAX_ARRAYS
from edgeformer.importers.hugging_face.folder import Folder, read_json
from edgeformer.importers.model import FloatArray
from edgeformer.traceback_summary import describe

if TYPE_CHECKING:
    import torch

SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"
DTYPES = ("float32", "float16", "bfloat16", "float64")
"""Types of numbers that are converted to float32."""


class Checkpoint:
    """Tensors by name, read when they are taken, as float32.

    Args:
        files: the files they are in.
        tensors: for each name, a function that reads the tensor.
        prefix: start of a name that some checkpoints have and others have not; it is dropped.
    """

    def __init__(self, files: Collection[Path], tensors: Mapping[str, Callable[[], torch.Tensor]], prefix: str) -> None:
        self.files = tuple(files)
        self._tensors = {name.removeprefix(prefix): read for name, read in tensors.items()}
        if len(self._tensors) < len(tensors):
            raise ImporterError(f"The weights have the same names with and without `{prefix}`.")
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str, shape: tuple[int, ...] | None = None) -> FloatArray:
        """Return a tensor.

        Args:
            name: its name, without the prefix.
            shape: shape that it must have; -1 stands for any size, ``None`` for any shape.

        Raises:
            ImporterError: it is missing, has another shape, or no floating-point numbers.
        """
        if name not in self._tensors:
            raise ImporterError(f"The weights lack `{name}`.")
        tensor = self._tensors[name]()
        self._taken.add(name)
        if shape is not None and not (
            tensor.ndim == len(shape)
            and all(want in (-1, size) for want, size in zip(shape, tensor.shape, strict=True))
        ):
            wanted = tuple("any" if size == -1 else size for size in shape)
            raise ImporterError(
                f"Weight `{name}` has the shape {tuple(tensor.shape)}, but config.json needs {wanted}.".replace("'", "")
            )
        if str(tensor.dtype).removeprefix("torch.") not in DTYPES:
            raise ImporterError(f"Weight `{name}` has the type {tensor.dtype}; only {', '.join(DTYPES)} are supported.")
        array: FloatArray = tensor.float().numpy()
        return array

    def surplus(self) -> list[str]:
        """Names of the tensors that were not taken."""
        return sorted(self._tensors.keys() - self._taken)


def open_checkpoint(folder: Folder, prefix: str = "") -> Checkpoint:
    """Find the weights of a folder; safetensors are preferred. See :class:`Checkpoint` for ``prefix``.

    Raises:
        ImporterError: they are missing or damaged.
    """
    for name, load in ((SAFE, _safe_tensors), (PICKLED, _pickled_tensors)):
        files = _files(folder, name)
        if not files:
            continue
        tensors: dict[str, Callable[[], torch.Tensor]] = {}
        for file in files:
            for key, read in load(file).items():
                if key in tensors or len(tensors) >= MAX_ARRAYS:
                    raise ImporterError(
                        f"`{file}` has the weight `{key[:80]}` again, or more weights than a model has."
                    )
                tensors[key] = read
        return Checkpoint(files, tensors, prefix)
    words = advice(folder.path) or f"has no weights: neither {SAFE} nor {PICKLED}, nor their parts with an index"
    raise ImporterError(f"`{folder.path}` {words}.")


def _files(folder: Folder, name: str) -> list[Path]:
    """The file, or the parts that an index lists; empty if there is neither."""
    if (folder.path / name).is_file():
        return [folder.path / name]
    index = folder.path / f"{name}.index.json"
    if not index.is_file():
        return []
    parts = read_json(index).get("weight_map")
    if not isinstance(parts, dict) or not parts or not all(isinstance(part, str) for part in parts.values()):
        raise ImporterError(f"`{index}` is damaged: it has no `weight_map` with a file for each weight.")
    files = []
    for part in sorted(set(parts.values())):
        file = folder.path / part
        if Path(part).name != part or Path(part).suffix != Path(name).suffix:
            raise ImporterError(f"`{index}` names `{part[:80]}`, which is not a weight file of the folder.")
        if not file.is_file():
            raise ImporterError(f"`{index}` names `{part[:80]}`, which the folder lacks; download it.")
        files.append(file)
    return files


def _safe_tensors(file: Path) -> dict[str, Callable[[], torch.Tensor]]:
    from safetensors import SafetensorError, safe_open

    try:
        opened: Any = safe_open(file, framework="pt")
        keys = list(opened.keys())
    except (SafetensorError, OSError, ValueError) as error:
        raise ImporterError(f"`{file}` is damaged: {describe(error)}. Download it again.") from None

    def reader(key: str) -> Callable[[], torch.Tensor]:
        def read() -> torch.Tensor:
            try:
                tensor: torch.Tensor = opened.get_tensor(key)
            except Exception as error:  # types that torch does not have, among others
                raise ImporterError(f"Weight `{key}` of `{file}` cannot be read: {describe(error)}.") from None
            return tensor

        return read

    return {key: reader(key) for key in keys}


def _pickled_tensors(file: Path) -> dict[str, Callable[[], torch.Tensor]]:
    from edgeformer.importers.hugging_face.pickled import read_pickled  # imports torch

    def reader(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        return lambda: tensor.clone() if tensor.data_ptr() % tensor.itemsize else tensor  # libraries expect alignment

    return {key: reader(tensor) for key, tensor in read_pickled(file).items()}
