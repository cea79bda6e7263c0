"""The contract between exporter and runtime: tensor names, axes, state kinds, file names.

These strings are spelled out nowhere else in the project. A bundle has two graphs. If its model attends to source
positions, it has a third graph, which is opened only when attention weights are requested::

    encoder:    source (N, S), source_length (N,)                    -> every constant and recurrent state tensor
    decoder:    token (R,), position (), constants, past.* tensors   -> logits (R, V), present.* tensors
    attention:  the decoder's inputs                                 -> attention (R, S), present.* tensors

If caches are written in place, the step graphs have two more inputs: cache_indirection (N, K, T) and beam_width (1,).

Letters: N sentences, K beams, R = N * K decoder rows, S source length, P past length (tokens decoded before this one),
T capacity of in-place caches, V vocabulary size. Row ``r`` belongs to sentence ``r // K``. All other axes are plain
integers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from edgeformer_runtime.limits import MAX_AXES, MAX_AXIS, MAX_STATE_TENSORS, Number, Text

SCHEMA_REVISION = 4
"""Incremented whenever bundles written by earlier versions can no longer be read."""

MANIFEST_FILE = "manifest.json"
MANIFEST_HASH_FILE = "manifest.json.sha256"
ENCODER_FILE = "encoder.onnx"
DECODER_FILE = "decoder.onnx"
ATTENTION_FILE = "attention.onnx"
GRAPH_FILES = (ENCODER_FILE, DECODER_FILE, ATTENTION_FILE)
WEIGHTS_FILE = "weights.bin"
SHORTLIST_FILE = "shortlist.bin"
"""Lists of target tokens; see :mod:`~edgeformer_runtime.search.shortlist`."""
GOLDEN_FILE = "golden.json"
CARD_FILE = "README.md"
SIGNATURE_FILE = "signature.json"

SOURCE = "source"
"""Encoder input: source token ids, ``(N, S)``, int64, padded at the end."""
SOURCE_LENGTH = "source_length"
"""Encoder input: true length of each source, ``(N,)``, int64."""
TOKEN = "token"
"""Decoder input: last token of each row, ``(R,)``, int64."""
POSITION = "position"
"""Decoder input: index of the token in the target, ``()``, int64; 0 for the start token."""
CACHE_INDIRECTION = "cache_indirection"
"""Decoder input: for each beam and each past position, the beam of its sentence whose cache row holds that position's
entry, ``(N, K, T)``, int32. Beams can therefore be reordered without moving any cache."""
BEAM_WIDTH = "beam_width"
"""Decoder input: K, ``(1,)``, int32."""
LOGITS = "logits"
"""Decoder output: unnormalized log-probabilities of the next token, ``(R, V)``, float32."""
ATTENTION = "attention"
"""Attention-graph output: weight of each source position in this step, ``(R, S)``, float32, zero on padding."""
CUDA_HEAD_WIDTHS = (32, 64, 128)
"""Head widths for which ONNX Runtime's CUDA provider can write caches in place; the CPU provider has no such limit."""

SENTENCES = "N"
BEAMS = "K"
ROWS = "R"
SOURCE_AXIS = "S"
PAST_AXIS = "P"
CAPACITY_AXIS = "T"

StateKind = Literal["constant", "cache", "recurrent"]
DType = Literal["float32", "float16", "int32", "int64", "bool"]


class StateTensor(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One tensor of the decoder's state.

    ========= ============================== ==========================================================
    kind      initial value                  from step to step
    ========= ============================== ==========================================================
    constant  the encoder graph              unchanged; first axis N (never replicated) or R
    cache (P) empty: P is 0                  grows by one along P; rows are reordered and dropped
    cache (T) empty                          past and present share one buffer, in which each step writes the entry at
                                             its position along T; sentences are dropped, but beams are not reordered
    recurrent the encoder graph, N rows      replaced; rows are reordered and dropped
    ========= ============================== ==========================================================
    """

    name: Text
    """Unique name without prefix, such as ``self_key.0``."""
    kind: StateKind
    """What the decode loop does with the tensor."""
    dtype: DType
    """Element type."""
    axes: tuple[Text | Number, ...]
    """For each axis, one of the letters N, R, S, P, T, or a fixed size."""

    @property
    def input_name(self) -> str:
        """Name of the decoder input."""
        return self.name if self.kind == "constant" else f"past.{self.name}"

    @property
    def output_name(self) -> str:
        """Name of the decoder output. A constant has none; for constants, this is the name of the encoder output."""
        return self.name if self.kind == "constant" else f"present.{self.name}"

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Shape of the tensor, given the size of each letter in its axes."""
        return shape_of(self.axes, sizes)

    @property
    def in_place(self) -> bool:
        """Whether past and present share one buffer."""
        return CAPACITY_AXIS in self.axes

    @property
    def from_encoder(self) -> bool:
        """Whether the encoder graph outputs the initial value, under the name without prefix."""
        return self.kind != "cache"


def shape_of(axes: Sequence[str | int], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Replace the letters in ``axes`` with their sizes."""
    return tuple(sizes[axis] if isinstance(axis, str) else axis for axis in axes)


def decoder_inputs(state: tuple[StateTensor, ...]) -> tuple[str, ...]:
    """Input names of the decoder and attention graphs, in order."""
    indirect = (CACHE_INDIRECTION, BEAM_WIDTH) if any(tensor.in_place for tensor in state) else ()
    return (TOKEN, POSITION, *indirect, *(tensor.input_name for tensor in state))


def state_problems(state: tuple[StateTensor, ...]) -> list[str]:
    """List every way in which a state table violates the contract; empty if it is valid."""
    if len(state) > MAX_STATE_TENSORS:
        return [f"there are {len(state)} state tensors, more than {MAX_STATE_TENSORS}"]
    listed = Counter(tensor.name for tensor in state)
    problems = [f"state `{name}` is listed {count} times" for name, count in sorted(listed.items()) if count > 1]
    for tensor in state:
        label = f"state `{tensor.name}` ({tensor.kind})"
        if not tensor.axes:
            problems.append(f"state `{tensor.name}` has no axes")
            continue
        first = {"constant": (SENTENCES, ROWS)}.get(tensor.kind, (ROWS,))
        if tensor.axes[0] not in first:
            allowed_first = " or ".join(first)
            problems.append(f"{label} must have first axis {allowed_first}, but has {tensor.axes[0]}")
        rest = tensor.axes[1:]
        letters = [axis for axis in rest if isinstance(axis, str)]
        allowed = {PAST_AXIS, CAPACITY_AXIS} if tensor.kind == "cache" else {SOURCE_AXIS}
        if surplus := sorted(set(letters) - allowed):
            problems.append(f"{label} may not have axis {', '.join(surplus)} after its first")
        if tensor.kind == "cache" and letters.count(PAST_AXIS) + letters.count(CAPACITY_AXIS) != 1:
            problems.append(f"state `{tensor.name}` (cache) must have axis {PAST_AXIS} or {CAPACITY_AXIS} once")
        if any(isinstance(axis, int) and axis < 1 for axis in rest):
            problems.append(f"state `{tensor.name}` has a fixed axis below 1")
        if len(tensor.axes) > MAX_AXES or any(isinstance(axis, int) and axis > MAX_AXIS for axis in rest):
            problems.append(f"state `{tensor.name}` has more than {MAX_AXES} axes or an axis above {MAX_AXIS}")
    return problems
