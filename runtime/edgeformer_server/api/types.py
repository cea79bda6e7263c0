"""Requests and answers. Those of LibreTranslate that no code reads are in ``tests/describe_api.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from edgeformer_runtime.search.option_values import SMALLEST, Integers, Numbers, TokenIds, Values
from edgeformer_runtime.search.options import declarations
from edgeformer_text.block import Span
from edgeformer_text.options import Format

Code = Annotated[str, Meta(max_length=64)]
Term = Annotated[str, Meta(min_length=1, max_length=200)]


def _field(values: Values) -> Any:
    """The type of a field with these values."""
    match values:
        case Integers(least, most):
            return Annotated[int, Meta(ge=least, le=most)]
        case Numbers(_, least, most) if least == SMALLEST:
            return Annotated[float, Meta(gt=0, le=most)]
        case Numbers(_, least, most):
            return Annotated[float, Meta(ge=least, le=most)]
        case TokenIds(nested=True):
            return Annotated[list[Term], Meta(max_length=100)]
    return bool


_served: Any = msgspec.defstruct(
    "_served",
    [(name, _field(option.served) | UnsetType, UNSET) for name, (_, option) in declarations().items() if option.served],
    forbid_unknown_fields=True,
    omit_defaults=True,
)


class Options(_served):  # type: ignore[misc]  # whose fields are known at run time
    """Decoding options; what is left out is as in the model's bundle. ``docs/translating.md`` explains them."""


class TranslateRequest(Struct, forbid_unknown_fields=True):
    """Body of ``POST /v1/translate``."""

    texts: Annotated[list[str], Meta(min_length=1)]
    """Texts to translate."""
    target: Code = ""
    """Language to translate to; may be left out if ``model`` has only one."""
    source: Code = ""
    """Language to translate from, or ``auto``; may be left out if ``model`` has only one."""
    model: Annotated[str, Meta(max_length=200)] = ""
    """Name of a model; empty chooses one, or two in a row, by language."""
    format: Format = "text"
    options: Options = msgspec.field(default_factory=Options)
    glossary: Annotated[dict[Term, Term], Meta(max_length=1000)] = {}
    """Terms of the source language and their translations."""
    scores: bool = False
    """Return the score and the confidence of each sentence, and whether it is doubtful."""
    alignments: bool = False
    """Return which words come from which; in plain text only."""
    stream: bool = False
    """Answer with server-sent events, a token at a time; ``scores`` and ``alignments`` have no effect."""
    timeout: Annotated[float, Meta(gt=0, le=3600)] | None = None
    """Seconds after which the request fails, if less than the server's."""


class WordLink(Struct):
    """A word of the translation and the word of the source that it comes from, in characters of the texts."""

    source: Span
    target: Span


class Sentence(Struct, omit_defaults=True):
    """A sentence of a text."""

    source: Span
    """Where it is in the source."""
    target: Span
    """Where its translation is."""
    score: float | None = None
    """Normalized log-probability."""
    confidence: float | None = None
    """Geometric mean of the probabilities of the tokens, from 0 to 1."""
    wrong_numbers: Sequence[str] = ()
    """Digits of numbers that the translation lacks, or has although the source does not."""
    is_doubtful: bool = False
    """Whether ``confidence`` is so low that the translation may well be wrong."""
    words: list[WordLink] | None = None


class TranslatedText(Struct, omit_defaults=True):
    """The translation of one text."""

    text: str
    sentences: list[Sentence]
    alternatives: list[str] = []
    """Further translations, best first, if ``n_best`` is above 1."""


class TranslateResponse(Struct):
    """Answer to ``POST /v1/translate``."""

    translations: list[TranslatedText]
    source: str
    """Language translated from."""
    target: str
    models: list[str]
    """Models used, in order."""


class ModelInfo(Struct):
    """A model."""

    name: str
    sources: list[str]
    targets: list[str]
    family: str
    precision: str
    parameters: int
    max_source_tokens: int
    has_attention: bool
    """Whether it supports ``alignments`` and ``replace_unknowns``."""
    is_open: bool
    """Whether it is in memory now."""


class Models(Struct):
    """Answer to ``GET /v1/models``."""

    models: list[ModelInfo]


class Language(Struct):
    """A language, and those that it can be translated to."""

    code: str
    name: str
    targets: list[str]


class TranslatedFile(Struct, rename="camel"):
    """Answer to ``POST /translate_file``."""

    translated_file_url: str


class Status(Struct):
    """Answer to ``GET /health`` and ``GET /ready``."""

    status: Literal["ok", "ready", "draining"]
