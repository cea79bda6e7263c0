"""Where a bundle's weights come from: text, training, and versions; for people and for tools that need the same text.

The trainer writes these records and may record more in a later version, so unknown fields are ignored.
"""

from __future__ import annotations

from typing import Any

import msgspec

from edgeformer_runtime.bundle.generation import Generation


class Distillation(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """How training targets were made by a teacher."""

    teacher: str = ""
    """Name of the teacher's folder."""
    teacher_sha256: str = ""
    """SHA-256 of its manifest."""
    beam_size: int = 0
    """Hypotheses kept in its search."""
    length_penalty: float = 0.0
    """Exponent of the length by which its scores were divided."""
    n_best: int = 1
    """Translations kept per source."""
    closest: str = ""
    """If set, the translation closest to the original target was kept, by sentence BLEU with this tokenizer."""
    sentences: int = 0
    """Pairs read."""
    pairs: int = 0
    """Pairs written."""
    too_long: int = 0
    """Pairs that kept their target because the teacher does not take that many tokens."""
    unfinished: int = 0
    """Pairs that kept their target because every translation was empty or cut off."""
    corpus_sha256: dict[str, str] = {}
    """Hash of each file of the original corpus."""


class TextOrigin(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The text that a model was trained on; two of them are equal if the text is."""

    name: str = ""
    """Name of the corpus, or ``files``."""
    licence: str = ""
    """Licence as the corpus states it; empty if unknown."""
    origin: str = ""
    """Address for people; empty if unknown."""
    sha256: dict[str, str] = {}
    """Hash of each file's content by file name."""
    distilled: Distillation | None = None
    """The teacher whose translations are the targets; ``None`` if they are the corpus's own."""


class ValidationRecord(msgspec.Struct, kw_only=True, frozen=True):
    """Figures of one validation."""

    step: int
    """Updates before it."""
    loss: float
    """Label-smoothed cross-entropy per token, in nats."""
    perplexity: float
    """Exponential of the cross-entropy per token without smoothing."""
    bleu: float
    """BLEU of greedy output, 0 … 100."""
    exact_match: float
    """Fraction of greedy outputs equal to the reference."""
    sentences: int
    """Sentences that were decoded."""
    minutes: float
    """Training time before it."""


class TrainingRecord(msgspec.Struct, kw_only=True, frozen=True):
    """What happened in the run that trained the weights."""

    status: str = ""
    """``finished``, ``interrupted`` or ``diverged``."""
    stopped_by: str = ""
    """Why training stopped, for people."""
    steps: int = 0
    """Updates made."""
    minutes: float = 0.0
    """Wall-clock time of training, validation included."""
    tokens_per_second: float = 0.0
    """Target tokens, padding excluded, over the time of the updates."""
    parameters: int = 0
    """Trained parameters, shared ones counted once."""
    source_vocab_size: int = 0
    """Entries of the source vocabulary."""
    target_vocab_size: int = 0
    """Entries of the target vocabulary."""
    train_pairs: int = 0
    """Pairs trained on."""
    valid_pairs: int = 0
    """Pairs of the validation loss."""
    too_long: int = 0
    """Training pairs dropped because the model does not take that many tokens."""
    padding: float = 0.0
    """Fraction of padding in training batches."""
    validations: tuple[ValidationRecord, ...] = ()
    """All validations, the oldest first."""
    averaged_steps: tuple[int, ...] = ()
    """Steps of the checkpoints whose mean is the model."""
    final: ValidationRecord | None = None
    """Validation of the model; ``None`` if there was none."""
    filters: dict[str, int] | None = None
    """Pairs that the corpus filters kept, and those that each of them dropped; ``None`` if not recorded."""
    provenance: TextOrigin = TextOrigin()
    """The text."""
    versions: dict[str, str] = {}
    """Versions of Python and of the libraries that trained it."""
    generation: Generation = Generation()
    """Decoding defaults of the run."""


class Provenance(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where the weights come from; a part that is unknown is left out of the JSON."""

    recipe: dict[str, Any] = {}
    """The recipe of the run; a mapping, since each model family has fields of its own."""
    training: TrainingRecord = TrainingRecord()
    """What happened in the run."""
    exported_with: dict[str, str] = {}
    """Versions of Python and of the libraries that exported it."""
