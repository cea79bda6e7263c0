"""Opens bundles and runs as translators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from edgeformer.errors import ConfigError
from edgeformer_runtime.contract import MANIFEST_FILE
from edgeformer_runtime.engines.base import BundleSession
from edgeformer_runtime.engines.cpus import divide_for_many
from edgeformer_runtime.errors import DeviceError
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.translator import AnyTranslator, Translator

if TYPE_CHECKING:
    from edgeformer.model.base import EncoderDecoder
    from edgeformer.model.session import TorchSession
    from edgeformer.run.folder import Run


def open_translator(
    path: Path,
    *,
    device: str = "cpu",
    threads: int = 0,
    truncate: bool = False,
    shortlist: bool = True,
    engine: str = "auto",
) -> AnyTranslator:
    """Open a bundle, or a run folder with torch.

    Args:
        path: the folder.
        device: ``cpu`` or ``cuda``.
        threads: CPU threads per operator; 0 for workers of one thread on every CPU, or torch's default.
        truncate: truncate texts with more tokens than the model accepts, rather than raise an error.
        shortlist: restrict the search of a bundle by its shortlist, if it has one.
        engine: what runs a bundle; see :meth:`edgeformer_runtime.Translator.open`.

    Raises:
        BundleError: the bundle is damaged, or not supported by this runtime.
        CheckpointError: the run cannot be read.
        ConfigError: the folder does not exist.
        DeviceError: the device is not available.
    """
    if not path.exists():
        raise ConfigError(
            f"`{path}` does not exist; give the folder of a run or of a bundle, or a name that "
            "`edgeformer models` lists."
        )
    if (path / MANIFEST_FILE).exists() or not path.is_dir():
        threads, workers = divide_for_many(device, threads, 0)
        return Translator.open(
            path,
            device=device,
            threads=threads,
            workers=workers,
            truncate=truncate,
            shortlist=shortlist,
            engine=engine,
        )

    import torch

    from edgeformer.run.folder import Run

    if device not in {"cpu", "cuda"} or (device == "cuda" and not torch.cuda.is_available()):
        raise DeviceError(
            f"torch cannot use device `{device}` on this machine; use cpu or, with a CUDA build of torch, cuda."
        )
    if threads:
        torch.set_num_threads(threads)
    run = Run.open(path)
    return run_translator(run, run.load_model().to(device), truncate=truncate)


def run_translator(run: Run, model: EncoderDecoder, *, truncate: bool = False) -> Translator[TorchSession]:
    """Wrap a run's torch model as a translator with the run's tokenizers and decoding defaults.

    Args:
        run: the run.
        model: its model, on the device to use.
        truncate: truncate texts with more tokens than the model accepts, rather than raise an error.
    """
    from edgeformer.model.session import TorchSession

    defaults = DecodeOptions(**asdict(run.info.generation))
    session = TorchSession(model, run.special)
    tokenizers = run.source_tokenizer, run.target_tokenizer
    return Translator(session, *tokenizers, defaults, truncate=truncate, languages=run.languages)


def kind_of(translator: AnyTranslator) -> str:
    """Name a translator in reports: ``bundle`` with its precisions, or ``torch``."""
    session = translator.session
    if not isinstance(session, BundleSession):
        return "torch"
    return f"bundle {session.bundle.manifest.precisions}"
