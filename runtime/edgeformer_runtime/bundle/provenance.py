"""Where a bundle's weights come from: text, training and versions. For people, and for tools that need the same text.

The trainer writes these records, and later versions may record more, so unknown fields are ignored.
"""

from __future__ import annotations

from typing import Any

import msgspec

from edgeformer_runtime.bundle.generation import Generation
from edgeformer_runtime.bundle.text_format import TextFormat
from edgeformer_runtime.limits import Number


class Distillation(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """How a teacher model generated the training targets."""

    teacher: str = ""
    """Name of the teacher's folder."""
    teacher_sha256: str = ""
    """SHA-256 of the teacher's manifest."""
    beam_size: Number = 0
    """Hypotheses kept per sentence in the teacher's search."""
    length_penalty: float = 0.0
    """Exponent of the length by which the teacher's scores were divided."""
    n_best: Number = 1
    """Translations kept per source."""
    closest: str = ""
    """If set, only the translation closest to the original target was kept, by sentence BLEU with this tokenizer."""
    sentences: Number = 0
    """Number of sentence pairs read."""
    pairs: Number = 0
    """Number of sentence pairs written."""
    too_long: Number = 0
    """Number of pairs that kept their target because the teacher does not accept that many tokens."""
    unfinished: Number = 0
    """Number of pairs that kept their target because every translation was empty or truncated."""
    corpus_sha256: dict[str, str] = {}
    """SHA-256 of each file of the original corpus, by file name."""


class TextOrigin(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The text that a model was trained on, or the model that was imported; records are equal if their text is."""

    name: str = ""
    """Name of the corpus, or ``files``."""
    licence: str = ""
    """License as stated by the corpus; empty if unknown."""
    origin: str = ""
    """Web address of the corpus; empty if unknown."""
    revision: str = ""
    """Version or commit of an imported model."""
    sha256: dict[str, str] = {}
    """SHA-256 of each file, by file name."""
    distilled: Distillation | None = None
    """How a teacher generated the targets; ``None`` if the targets are the corpus's own."""
    augment: dict[str, float] = {}
    """Share of pairs that have an altered copy, by the kind of change."""
    initial: TextOrigin | None = None
    """The same of the model that training started from; ``None`` if it started from random weights."""


class ValidationRecord(msgspec.Struct, kw_only=True, frozen=True):
    """Results of one validation."""

    step: Number
    """Number of updates before the validation."""
    loss: float
    """Label-smoothed cross-entropy per token, in nats."""
    perplexity: float
    """Exponential of the cross-entropy per token without smoothing."""
    bleu: float
    """BLEU of greedy output, 0 … 100."""
    exact_match: float
    """Fraction of greedy outputs equal to the reference."""
    sentences: Number
    """Number of sentences decoded."""
    minutes: float
    """Training time before the validation, in minutes."""


class TrainingRecord(msgspec.Struct, kw_only=True, frozen=True):
    """Record of the run that trained the weights."""

    status: str = ""
    """``finished``, ``interrupted``, ``diverged`` or ``imported``."""
    stopped_by: str = ""
    """Why training stopped, in words."""
    steps: Number = 0
    """Number of updates."""
    minutes: float = 0.0
    """Wall-clock training time in minutes, validation included."""
    tokens_per_second: float = 0.0
    """Training throughput: target tokens, padding excluded, divided by the time spent on updates."""
    parameters: Number = 0
    """Number of trained parameters; shared parameters are counted once."""
    source_vocab_size: Number = 0
    """Size of the source vocabulary."""
    target_vocab_size: Number = 0
    """Size of the target vocabulary."""
    train_pairs: Number = 0
    """Number of training pairs."""
    valid_pairs: Number = 0
    """Number of pairs used for the validation loss."""
    too_long: Number = 0
    """Number of training pairs dropped because they have more tokens than the model accepts."""
    padding: float = 0.0
    """Fraction of padding tokens in training batches."""
    validations: tuple[ValidationRecord, ...] = ()
    """All validations, oldest first."""
    averaged_steps: tuple[Number, ...] = ()
    """Steps of the checkpoints that were averaged into the model."""
    final: ValidationRecord | None = None
    """Validation of the final model; ``None`` if it was not validated."""
    filters: dict[str, Number] | None = None
    """Number of pairs that the corpus filters kept, and that each filter dropped; ``None`` if not recorded."""
    provenance: TextOrigin = TextOrigin()
    """The training text."""
    versions: dict[str, str] = {}
    """Versions of Python and of the libraries used for training."""
    text: TextFormat = TextFormat()
    """Names of special tokens, and what is around the tokens of a text."""
    notes: tuple[str, ...] = ()
    """What users of an imported model should know."""
    generation: Generation = Generation()
    """Decoding defaults of the run."""


class Provenance(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where the weights come from; unknown parts are omitted from the JSON."""

    recipe: dict[str, Any] = {}
    """Recipe of the run; a mapping, since each model family has its own fields."""
    training: TrainingRecord = TrainingRecord()
    """Record of the run."""
    exported_with: dict[str, str] = {}
    """Versions of Python and of the libraries used for export."""
