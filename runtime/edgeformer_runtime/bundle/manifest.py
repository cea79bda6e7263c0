"""The manifest of a bundle: everything the runtime needs to know before it opens a graph."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from edgeformer_runtime.bundle.generation import Generation
from edgeformer_runtime.bundle.provenance import Provenance
from edgeformer_runtime.bundle.report import Report
from edgeformer_runtime.contract import (
    ATTENTION_FILE,
    DECODER_FILE,
    ENCODER_FILE,
    SCHEMA_REVISION,
    WEIGHTS_FILE,
    StateTensor,
    state_problems,
)
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.precision import Precision as Precision  # public under this name too

Target = Literal["ort", "portable"]

MAX_LENGTH_PENALTY = 10
"""Maximum absolute length penalty: far beyond any practical value, and far from overflow."""


class SpecialTokens(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Ids of the special tokens."""

    pad: int = 0
    """Pads the shorter sources of a batch."""
    unk: int | None = 1
    """Represents words that a word-level vocabulary lacks; ``None`` if there is no such token."""
    bos: int = 2
    """Starts every target; the first token fed to the decoder."""
    eos: int = 3
    """Ends every source and target."""


class TokenizerFiles(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Names of the tokenizer files; identical if both sides share one file."""

    source: str
    """File name of the source tokenizer."""
    target: str
    """File name of the target tokenizer."""


class FileEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Size and hash of one file of the bundle."""

    size: int
    """Size in bytes."""
    sha256: str
    """Lower-case hexadecimal SHA-256 of the content."""


class Manifest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Content of ``manifest.json``."""

    schema_revision: int
    """:data:`~edgeformer_runtime.contract.SCHEMA_REVISION` of the writer."""
    producer: str
    """Program and version that wrote the bundle."""
    family: str
    """Model family; informational only, not used by the runtime."""
    source_language: str
    """BCP 47 tag, or empty."""
    target_language: str
    """BCP 47 tag, or empty."""
    target: Target
    """``ort``: graphs use ONNX Runtime's fused operators; ``portable``: graphs use standard ONNX operators only."""
    precision: dict[str, Precision]
    """Precision of the weights in each graph file."""
    parameters: int
    """Number of trained parameters; tied parameters are counted once."""
    source_vocab_size: int
    """Size of the source vocabulary; source token ids are below this."""
    target_vocab_size: int
    """Size of the target vocabulary (V)."""
    max_source_length: int
    """Maximum number of source tokens, end token included."""
    max_target_length: int
    """Maximum number of decoding steps."""
    special: SpecialTokens
    """Ids of the special tokens."""
    tokenizers: TokenizerFiles
    """Names of the tokenizer files."""
    state: tuple[StateTensor, ...]
    """State tensors of the decoder, in the order of the graphs."""
    generation: Generation
    """Decoding defaults."""
    opsets: dict[str, int]
    """Operator-set versions by domain; the empty domain is the ONNX standard."""
    min_onnxruntime: str
    """Oldest onnxruntime version that supports the operators, ``major.minor``."""
    files: dict[str, FileEntry]
    """Size and hash of every other file in the bundle."""
    provenance: Provenance = Provenance()
    """Where the weights come from: recipe, training, versions."""
    report: Report = Report()
    """What the exporter did and measured."""


def decode_manifest(data: bytes) -> Manifest:
    """Parse and check a manifest.

    Raises:
        BundleError: the data is not a manifest, has another schema revision, or contains contradictory values. The
            message lists every contradiction.
    """
    try:
        revision = msgspec.json.decode(data, type=dict[str, Any]).get("schema_revision")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(
            f"The bundle's manifest is not valid JSON ({error}); copy or export the bundle again."
        ) from None
    if revision != SCHEMA_REVISION:
        raise BundleError(
            f"The bundle has schema revision {revision}, but this runtime reads revision {SCHEMA_REVISION}; "
            "export the model again with this version of edgeformer."
        )
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise BundleError(
            f"The bundle's manifest does not follow its schema: {error}; export the bundle again."
        ) from None
    if problems := manifest_problems(manifest):
        raise BundleError(
            "The bundle's manifest is inconsistent: " + "; ".join(problems) + ". Export the bundle again."
        )
    return manifest


def manifest_problems(manifest: Manifest) -> list[str]:
    """List every manifest value that contradicts the contract or another value; empty if the manifest is valid."""
    problems = state_problems(manifest.state)
    for name in ("source_vocab_size", "target_vocab_size", "max_source_length", "max_target_length"):
        if getattr(manifest, name) < 1:
            problems.append(f"`{name}` must be at least 1, but is {getattr(manifest, name)}")
    for name in ("bos", "eos", "pad"):
        if not 0 <= getattr(manifest.special, name) < min(manifest.source_vocab_size, manifest.target_vocab_size):
            problems.append(f"special token `{name}` is outside the vocabulary")
    if manifest.generation.beam_size < 1:
        problems.append(f"default beam size must be at least 1, but is {manifest.generation.beam_size}")
    if not abs(manifest.generation.length_penalty) <= MAX_LENGTH_PENALTY:
        problems.append(
            f"default length penalty must be from -{MAX_LENGTH_PENALTY} to {MAX_LENGTH_PENALTY}, "
            f"but is {manifest.generation.length_penalty}"
        )
    if not re.fullmatch(r"[0-9]+\.[0-9]+", manifest.min_onnxruntime):
        problems.append(f"`min_onnxruntime` must have the form major.minor, but is `{manifest.min_onnxruntime}`")
    for name in manifest.files:
        if name in {"", ".", ".."} or set(name) & set("/\\:\0"):
            problems.append(f"file `{name}` must be a plain name inside the bundle")
    graphs = {ENCODER_FILE, DECODER_FILE}
    if ATTENTION_FILE in manifest.files:
        graphs.add(ATTENTION_FILE)
    problems += [f"`precision` lacks `{name}`" for name in sorted(graphs - manifest.precision.keys())]
    used = {*graphs, *manifest.precision, WEIGHTS_FILE, manifest.tokenizers.source, manifest.tokenizers.target}
    problems += [f"file `{name}` is used but not listed with a hash" for name in sorted(used - manifest.files.keys())]
    return problems
