"""The manifest of a bundle: everything the runtime needs to know before it opens a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from edgeformer_runtime.bundle.generation import Generation
from edgeformer_runtime.bundle.plain_files import shortened
from edgeformer_runtime.bundle.plan import Plan
from edgeformer_runtime.bundle.provenance import Provenance
from edgeformer_runtime.bundle.report import Report
from edgeformer_runtime.bundle.text_format import TextFormat
from edgeformer_runtime.contract import (
    DECODER_FILE,
    ENCODER_FILE,
    GOLDEN_FILE,
    GRAPH_FILES,
    SCHEMA_REVISION,
    SHORTLIST_FILE,
    WEIGHTS_FILE,
    StateTensor,
    state_problems,
)
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.limits import (
    MAX_COUNT,
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_GOLDEN_BYTES,
    MAX_GRAPH_BYTES,
    MAX_LENGTH,
    MAX_OPERATOR_SETS,
    MAX_OPSET,
    MAX_SHORTLIST_BYTES,
    MAX_TEXT,
    MAX_TOKENIZER_BYTES,
    MAX_VOCAB_SIZE,
    Number,
    Text,
)
from edgeformer_runtime.precision import PRECISIONS
from edgeformer_runtime.precision import Precision as Precision  # public under this name too

Target = Literal["ort", "portable"]
VocabSize = Annotated[int, msgspec.Meta(ge=1, le=MAX_VOCAB_SIZE)]
Length = Annotated[int, msgspec.Meta(ge=1, le=MAX_LENGTH)]
Opset = Annotated[int, msgspec.Meta(ge=1, le=MAX_OPSET)]


class SpecialTokens(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Ids of the special tokens: those of the target vocabulary, but for ``pad``."""

    pad: Number = 0
    """Pads the shorter sources of a batch; an id of the source vocabulary."""
    unk: Number | None = 1
    """Represents words that a word-level vocabulary lacks; ``None`` if there is no such token."""
    bos: Number = 2
    """Starts every target; the first token fed to the decoder."""
    eos: Number = 3
    """Ends every target."""
    suppress: tuple[Number, ...] = (0, 2)
    """Never generated, and not part of the distribution: the probabilities of all others add up to 1."""
    forbid: tuple[Number, ...] = ()
    """Never generated, although part of the distribution."""
    prefix: tuple[Number, ...] = ()
    """Tokens that every target begins with after the start token, such as that of its language; in a manifest, between
    the bundle's own languages."""

    @property
    def start(self) -> tuple[int, ...]:
        """Tokens that every target begins with. They are fed, not chosen: no target, output or score contains them, and
        they count in a translation's length only where scores are divided by it."""
        return self.bos, *self.prefix


class TokenizerFiles(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Names of the tokenizer files; identical if both sides share one file."""

    source: Text
    """File name of the source tokenizer."""
    target: Text
    """File name of the target tokenizer."""
    source_vocabulary: Text
    """SHA-256 of the source vocabulary (:attr:`~edgeformer_runtime.tokenizers.Tokenizer.vocabulary_sha256`)."""
    target_vocabulary: Text
    """SHA-256 of the target vocabulary."""


class FileEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Size and hash of one file of the bundle."""

    size: Number
    """Size in bytes."""
    sha256: Text
    """Lower-case hexadecimal SHA-256 of the content."""


class Traits(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Measurements of the exporter that decide how texts are translated."""

    min_confidence: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    """Confidence below which the translation of a sentence is doubtful; ``None`` if that could not be measured, 1 for a
    model that failed the validation of its own training."""
    needs_period: bool = False
    """Whether the model translates a sentence without final punctuation better with a period, which whole texts get for
    it."""

    @property
    def failed_validation(self) -> bool:
        """Whether the model failed the validation of its own training, so that every translation is doubtful."""
        return self.min_confidence == 1


class Manifest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Content of ``manifest.json``."""

    schema_revision: Number
    """:data:`~edgeformer_runtime.contract.SCHEMA_REVISION` of the writer."""
    producer: Text
    """Program and version that wrote the bundle."""
    family: Text
    """Model family; informational only, not used by the runtime."""
    source_language: Text
    """BCP 47 tag, or empty."""
    target_language: Text
    """BCP 47 tag, or empty."""
    target: Target
    """``ort``: graphs use ONNX Runtime's fused operators; ``portable``: graphs use standard ONNX operators only."""
    precision: dict[str, Precision]
    """Precision of the weights in each graph file."""
    parameters: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
    """Number of trained parameters; tied parameters are counted once."""
    source_vocab_size: VocabSize
    """Size of the source vocabulary; source token ids are below this."""
    target_vocab_size: VocabSize
    """Size of the target vocabulary (V)."""
    max_source_length: Length
    """Maximum number of source tokens, end token included."""
    max_target_length: Length
    """Maximum number of decoding steps."""
    special: SpecialTokens
    """Ids of the special tokens."""
    tokenizers: TokenizerFiles
    """Names of the tokenizer files."""
    state: tuple[StateTensor, ...]
    """State tensors of the decoder, in the order of the graphs."""
    generation: Generation
    """Decoding defaults."""
    text: TextFormat = TextFormat()
    """Names of special tokens, and what is around the tokens of a text."""
    plan: Plan | None = None
    """Plan for the kernels, if they can compute the model."""
    traits: Traits = Traits()
    """Measurements that decide how texts are translated."""
    opsets: Annotated[dict[Text, Opset], msgspec.Meta(max_length=MAX_OPERATOR_SETS)]
    """Operator-set versions by domain; the empty domain is the ONNX standard."""
    files: Annotated[dict[str, FileEntry], msgspec.Meta(max_length=MAX_FILES)]
    """Size and hash of every other file in the bundle."""
    provenance: Provenance = Provenance()
    """Provenance of the weights: recipe, training, versions."""
    report: Report = Report()
    """Record of the export."""

    @property
    def has_shortlist(self) -> bool:
        """Whether the bundle has a shortlist, which restricts searches on the kernels."""
        return SHORTLIST_FILE in self.files

    @property
    def precisions(self) -> str:
        """The precisions of all graphs, such as ``int4+int8``, for people."""
        return "+".join(sorted(set(self.precision.values())))


class _Revision(msgspec.Struct):
    """Fields that manifests of every revision have."""

    schema_revision: Any = None
    precision: Any = None


def decode_manifest(data: bytes) -> Manifest:
    """Parse and check a manifest.

    Raises:
        BundleError: the data is not a manifest, has another schema revision, or contains contradictory values. The
            message lists every contradiction.
    """
    try:
        data.decode("utf-8")  # msgspec does not look into fields that it skips
        head = msgspec.json.decode(data, type=_Revision)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BundleError(
            f"The bundle's manifest is not valid JSON ({shortened(error)}); copy or export the bundle again."
        ) from None
    precisions = head.precision.values() if isinstance(head.precision, dict) else ()
    if unknown := [name for name in map(str, precisions) if name not in PRECISIONS]:
        integers = " or ".join(name for name, traits in PRECISIONS.items() if traits.is_quantized)
        raise BundleError(
            f"The bundle is in {shortened(unknown[0])}, a precision that this runtime does not have; export the model "
            f"again in {integers}."
        )
    if (revision := head.schema_revision) != SCHEMA_REVISION:
        raise BundleError(
            f"The bundle has schema revision {shortened(revision)}, but this runtime reads revision {SCHEMA_REVISION}; "
            "run `edgeformer export` or `edgeformer get` again with this version."
        )
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BundleError(
            f"The bundle's manifest does not follow its schema: {shortened(error)}; export the bundle again."
        ) from None
    if problems := manifest_problems(manifest):
        raise BundleError(
            "The bundle's manifest is inconsistent: " + "; ".join(problems) + ". Export the bundle again."
        )
    return manifest


def manifest_problems(manifest: Manifest) -> list[str]:
    """List every manifest value that contradicts the contract, a limit or another value; empty if the manifest is
    valid."""
    problems = [*state_problems(manifest.state), *_file_problems(manifest)]
    for name in ("bos", "eos", "pad", "unk"):
        index = getattr(manifest.special, name)
        vocab_size = manifest.source_vocab_size if name == "pad" else manifest.target_vocab_size
        if index is not None and not 0 <= index < vocab_size:
            problems.append(f"special token `{name}` is outside the vocabulary")
    prefix, vocab_size = manifest.special.prefix, manifest.target_vocab_size
    if not all(0 <= index < vocab_size for index in prefix) or len(prefix) >= manifest.max_target_length:
        problems.append("`prefix` must have tokens of the vocabulary, and fewer than a target may have")
    suppressed = {*manifest.special.suppress, *manifest.special.forbid}
    if not all(0 <= index < manifest.target_vocab_size for index in suppressed) or manifest.special.eos in suppressed:
        problems.append("`suppress` and `forbid` must have tokens of the vocabulary, and not the end token")
    return problems


def _file_problems(manifest: Manifest) -> Iterator[str]:
    tokenizers = {manifest.tokenizers.source, manifest.tokenizers.target}
    most = dict.fromkeys(tokenizers, MAX_TOKENIZER_BYTES)
    most |= {**dict.fromkeys(GRAPH_FILES, MAX_GRAPH_BYTES), GOLDEN_FILE: MAX_GOLDEN_BYTES}
    most[SHORTLIST_FILE] = MAX_SHORTLIST_BYTES
    for name, entry in manifest.files.items():
        plain = name.isprintable() and name not in {"", ".", ".."} and not set(name) & set("/\\:")
        if not plain or len(name.encode()) > MAX_TEXT:
            yield f"file `{shortened(name)}` must be a plain name inside the bundle"
        elif not 0 <= entry.size <= most.get(name, MAX_FILE_BYTES):
            yield f"file `{name}` must have at most {most.get(name, MAX_FILE_BYTES):,} bytes, but has {entry.size}"
    graphs = {ENCODER_FILE, DECODER_FILE, *(set(GRAPH_FILES) & manifest.files.keys())}
    yield from (f"`precision` lacks `{name}`" for name in sorted(graphs - manifest.precision.keys()))
    yield from (
        f"`precision` has `{name[:MAX_TEXT]}`, which is not a graph" for name in manifest.precision.keys() - graphs
    )
    used = {*graphs, WEIGHTS_FILE, *tokenizers}
    yield from (f"file `{name}` is used but not listed with a hash" for name in sorted(used - manifest.files.keys()))
