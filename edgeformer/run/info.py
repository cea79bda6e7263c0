"""State and results of a run."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import msgspec

from edgeformer.data.filters import FilterReport
from edgeformer.quantization import LinearScales
from edgeformer_runtime.bundle.generation import Generation
from edgeformer_runtime.bundle.text_format import TextFormat

_LIBRARIES = ("edgeformer", "torch", "lightning-fabric", "tokenizers", "safetensors", "sacrebleu", "numpy")


class Validation(msgspec.Struct, kw_only=True, frozen=True):
    """Figures of one validation."""

    step: int
    """Updates before it; for an averaged model, those before its last checkpoint."""
    loss: float
    """Label-smoothed cross-entropy per token, in nats."""
    perplexity: float
    """Exponential of the cross-entropy per token without smoothing."""
    bleu: float
    """BLEU of greedy output, from 0 to 100."""
    exact_match: float
    """Fraction of greedy outputs that equal the reference."""
    sentences: int
    """Number of decoded sentences."""
    minutes: float
    """Training time before it, over all sessions."""


class RunInfo(msgspec.Struct, kw_only=True, frozen=True):
    """State and results of a run. Written as ``run.json``."""

    status: Literal["running", "interrupted", "finished", "diverged", "imported"] = "running"
    """``finished`` once there is a final model. A run that diverged after its first validation has a model, too, and so
    has one that was imported."""
    stopped_by: str = ""
    """Why training stopped, as text for people."""
    steps: int = 0
    """Updates of the weights."""
    minutes: float = 0.0
    """Wall-clock time of training over all sessions, including validation."""
    tokens_per_second: float = 0.0
    """True target tokens per second of the updates, excluding validation."""
    parameters: int = 0
    """Number of trained parameters; shared ones count once."""
    source_vocab_size: int = 0
    """Size of the source vocabulary."""
    target_vocab_size: int = 0
    """Size of the target vocabulary."""
    train_pairs: int = 0
    """Number of training pairs."""
    valid_pairs: int = 0
    """Number of validation pairs, over which the loss is computed."""
    too_long: int = 0
    """Training pairs dropped because they have more tokens than the model accepts."""
    padding: float = 0.0
    """Fraction of padding among the tokens of the training batches."""
    validations: tuple[Validation, ...] = ()
    """All validations, oldest first."""
    averaged_steps: tuple[int, ...] = ()
    """Steps of the checkpoints that were averaged into the final model."""
    final: Validation | None = None
    """Validation of the final model."""
    filters: FilterReport | None = None
    """Numbers of pairs that the corpus filters dropped; ``None`` if an earlier version wrote the run."""
    provenance: dict[str, Any] = {}
    """Origin of the text."""
    versions: dict[str, str] = {}
    """Versions of Python and of the libraries that a result depends on."""
    text: TextFormat = TextFormat()
    """Names of special tokens, and what the model expects around the tokens of a text."""
    notes: tuple[str, ...] = ()
    """Facts that users of an imported model should know, as sentences."""
    quantization: dict[str, LinearScales] = {}
    """Scales of the layers that an imported model has in 8 bits, by the names of parameters without ``.weight``."""
    generation: Generation = Generation()
    """Decoding defaults, which `edgeformer export` copies into the bundle."""


def library_versions(*others: str) -> dict[str, str]:
    """Return the versions of Python and of the libraries that a result depends on, and of ``others`` if installed."""
    versions = {"python": platform.python_version()}
    for name in (*_LIBRARIES, *others):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
