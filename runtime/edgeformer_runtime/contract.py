"""The contract between exporter and runtime: tensor names, axes, state kinds, file names.

Nothing else in the project spells one of these strings. A bundle has two graphs, and a third one if its model attends
to source positions, which is opened only when somebody asks for the weights::

    encoder:    source (N, S), source_length (N,)                    -> every constant and recurrent state tensor
    decoder:    token (R,), position (), constants, past.* tensors   -> logits (R, V), present.* tensors
    attention:  the decoder's inputs                                 -> attention (R, S), present.* tensors

If a cache is written in place, decoder and attention graph have two more inputs, cache_indirection (N, K, T) and
beam_width (1,).

Letters: N sentences, K beams, R = N * K decoder rows, S source length, P past length (tokens decoded before this one),
T capacity of caches that are written in place, V vocabulary. Row ``r`` belongs to sentence ``r // K``. Other axes are
plain integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

SCHEMA_REVISION = 2
"""Raised whenever a bundle written before cannot be read any more."""

MANIFEST_FILE = "manifest.json"
MANIFEST_HASH_FILE = "manifest.json.sha256"
ENCODER_FILE = "encoder.onnx"
DECODER_FILE = "decoder.onnx"
ATTENTION_FILE = "attention.onnx"
WEIGHTS_FILE = "weights.bin"
GOLDEN_FILE = "golden.json"
CARD_FILE = "README.md"

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
entry, ``(N, K, T)``, int32. So beams change places and no cache is moved."""
BEAM_WIDTH = "beam_width"
"""Decoder input: K, ``(1,)``, int32."""
LOGITS = "logits"
"""Decoder output: unnormalized log-probabilities of the next token, ``(R, V)``, float32."""
ATTENTION = "attention"
"""Attention output: weight of each source position in this step, ``(R, S)``, float32, zero on padding."""

CUDA_HEAD_WIDTHS = (32, 64, 128)
"""Widths of the heads for which ONNX Runtime's CUDA provider can write a cache in place; the CPU has no such bound."""

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
    kind      comes from                     from step to step
    ========= ============================== ==========================================================
    constant  the encoder graph              stays as it is; first axis N (never replicated) or R
    cache (P) nothing: the P axis is empty   grows by one along P; rows reordered and dropped
    cache (T) nothing                        past and present are one buffer, in which the step writes the entry of its
                                             position along T; only sentences are dropped
    recurrent the encoder graph, N rows      replaced; rows reordered and dropped
    ========= ============================== ==========================================================
    """

    name: str
    """Unique name without prefix, for example ``self_key.0``."""
    kind: StateKind
    """What the decode loop does with the tensor."""
    dtype: DType
    """Element type."""
    axes: tuple[str | int, ...]
    """One of the letters N, R, S, P, T, or a fixed size, per axis."""

    @property
    def input_name(self) -> str:
        """Name of the decoder's input."""
        return self.name if self.kind == "constant" else f"past.{self.name}"

    @property
    def output_name(self) -> str:
        """Name of the decoder's output; a constant has none and this is its name in the encoder's outputs."""
        return self.name if self.kind == "constant" else f"present.{self.name}"

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Shape of the tensor, given the size of each letter in its axes."""
        return shape_of(self.axes, sizes)

    @property
    def in_place(self) -> bool:
        """Whether past and present are one buffer."""
        return CAPACITY_AXIS in self.axes

    @property
    def from_encoder(self) -> bool:
        """Whether the encoder graph emits the first value, under the plain name."""
        return self.kind != "cache"


def shape_of(axes: Sequence[str | int], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Replace the letters among axes by their sizes."""
    return tuple(sizes[axis] if isinstance(axis, str) else axis for axis in axes)


def decoder_inputs(state: tuple[StateTensor, ...]) -> tuple[str, ...]:
    """Names of the inputs of the decoder and of the attention graph, in their order."""
    indirect = (CACHE_INDIRECTION, BEAM_WIDTH) if any(tensor.in_place for tensor in state) else ()
    return (TOKEN, POSITION, *indirect, *(tensor.input_name for tensor in state))


def state_problems(state: tuple[StateTensor, ...]) -> list[str]:
    """Every way in which a state table breaks the contract; empty if none."""
    problems = []
    names = [tensor.name for tensor in state]
    problems += [
        f"state `{name}` is listed {names.count(name)} times"
        for name in sorted({n for n in names if names.count(n) > 1})
    ]
    for tensor in state:
        label = f"state `{tensor.name}` ({tensor.kind})"
        if not tensor.axes:
            problems.append(f"state `{tensor.name}` has no axes")
            continue
        first = {"constant": (SENTENCES, ROWS)}.get(tensor.kind, (ROWS,))
        if tensor.axes[0] not in first:
            wanted = " or ".join(first)
            problems.append(f"{label} must have first axis {wanted}, but has {tensor.axes[0]}")
        rest = tensor.axes[1:]
        letters = [axis for axis in rest if isinstance(axis, str)]
        allowed = {"constant": {SOURCE_AXIS}, "cache": {PAST_AXIS, CAPACITY_AXIS}, "recurrent": set[str]()}[tensor.kind]
        if surplus := sorted(set(letters) - allowed):
            problems.append(f"{label} may not have axis {', '.join(surplus)} behind its first")
        if tensor.kind == "cache" and letters.count(PAST_AXIS) + letters.count(CAPACITY_AXIS) != 1:
            problems.append(f"state `{tensor.name}` (cache) must have axis {PAST_AXIS} or {CAPACITY_AXIS} once")
        if any(isinstance(axis, int) and axis < 1 for axis in rest):
            problems.append(f"state `{tensor.name}` has a fixed axis below 1")
    return problems
