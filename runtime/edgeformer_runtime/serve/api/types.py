"""Requests and answers. Their JSON schemas are part of ``/openapi.json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from edgeformer_runtime.text.block import Span
from edgeformer_runtime.text.options import Format

Count = Annotated[int, Meta(ge=0, le=65536)]
Places = Annotated[int, Meta(ge=1, le=32)]
Code = Annotated[str, Meta(max_length=64)]
Term = Annotated[str, Meta(min_length=1, max_length=200)]


class Options(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Decoding options; what is left out is as in the model's bundle. ``docs/translating.md`` explains them."""

    beam_size: Places | UnsetType = UNSET
    n_best: Places | UnsetType = UNSET
    patience: Annotated[float, Meta(gt=0, le=10)] | UnsetType = UNSET
    early_stopping: bool | UnsetType = UNSET
    length_penalty: Annotated[float, Meta(ge=-10, le=10)] | UnsetType = UNSET
    coverage_penalty: Annotated[float, Meta(ge=0, le=100)] | UnsetType = UNSET
    min_length: Count | UnsetType = UNSET
    max_length: Annotated[int, Meta(ge=1, le=65536)] | UnsetType = UNSET
    max_len_a: Annotated[float, Meta(ge=0, le=1000)] | UnsetType = UNSET
    max_len_b: Count | UnsetType = UNSET
    max_ngram_repeats: Count | UnsetType = UNSET
    no_repeat_ngram_size: Count | UnsetType = UNSET
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] | UnsetType = UNSET
    suppress_sequences: (
        Annotated[list[Annotated[str, Meta(min_length=1, max_length=200)]], Meta(max_length=100)] | UnsetType
    ) = UNSET
    disable_unk: bool | UnsetType = UNSET
    sampling_topk: Count | UnsetType = UNSET
    sampling_topp: Annotated[float, Meta(gt=0, le=1)] | UnsetType = UNSET
    sampling_temperature: Annotated[float, Meta(ge=0.01, le=100)] | UnsetType = UNSET
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] | UnsetType = UNSET
    return_alternatives: bool | UnsetType = UNSET
    min_alternative_expansion_prob: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    replace_unknowns: bool | UnsetType = UNSET


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
    """Whether it supports ``alignments``, ``coverage_penalty`` and ``replace_unknowns``."""
    is_open: bool
    """Whether it is in memory now."""


class Models(Struct):
    """Answer to ``GET /v1/models``."""

    models: list[ModelInfo]


class Pair(Struct, kw_only=True, omit_defaults=True):
    """Fields of LibreTranslate's requests that translate."""

    source: str
    """Language to translate from, or ``auto``."""
    target: str
    api_key: str = ""


class TranslateFields(Pair, kw_only=True):
    """Fields of ``POST /translate``."""

    q: str | list[str]
    """A text, or in JSON a list of texts."""
    format: Format = "text"
    alternatives: int = 0
    """Number of further translations."""


class FileFields(Pair, kw_only=True):
    """Fields of ``POST /translate_file``."""

    file: Annotated[str, Meta(extra_json_schema={"format": "binary"})]


class SuggestFields(Pair, kw_only=True):
    """Fields of ``POST /suggest``."""

    q: str
    s: str
    """The better translation."""


class DetectFields(Struct, omit_defaults=True):
    """Fields of ``POST /detect``."""

    q: str | list[str]
    api_key: str = ""


class Detection(Struct):
    """A language that a text may be in."""

    confidence: Annotated[float, Meta(ge=0, le=100)]
    language: str


class Translation(Struct, omit_defaults=True, rename="camel"):
    """Answer to ``POST /translate``, with lists for a list of texts."""

    translated_text: str | list[str]
    detected_language: Detection | list[Detection] | UnsetType = UNSET
    alternatives: list[str | list[str]] = []


class Language(Struct):
    """A language, and those that it can be translated to."""

    code: str
    name: str
    targets: list[str]


class TranslatedFile(Struct, rename="camel"):
    """Answer to ``POST /translate_file``."""

    translated_file_url: str


class Suggested(Struct):
    """Answer to ``POST /suggest``."""

    success: bool = True


class Error(Struct):
    """Body of every error."""

    error: str


class Status(Struct):
    """Answer to ``GET /health`` and ``GET /ready``."""

    status: Literal["ok", "ready", "draining"]
