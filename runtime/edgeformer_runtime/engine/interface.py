"""The inputs and outputs that a graph must have according to the manifest, compared with those it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import Manifest
from edgeformer_runtime.contract import DType, StateTensor

TYPE_NAMES: dict[DType, str] = {
    "float32": "tensor(float)",
    "float16": "tensor(float16)",
    "int32": "tensor(int32)",
    "int64": "tensor(int64)",
    "bool": "tensor(bool)",
}
"""The engine's names of element types."""


class Argument(Protocol):
    """An input or output of a graph, as the engine describes it."""

    name: str
    type: str
    shape: Sequence[str | int | None]


class Form(NamedTuple):
    """What the manifest says of an input or output."""

    dtype: DType
    axes: tuple[str | int, ...]


Forms = dict[str, Form]


def host_output(file: str) -> str:
    """The output of a step graph that the host reads; all others are state."""
    return contract.ATTENTION if file == contract.ATTENTION_FILE else contract.LOGITS


def listed_state(manifest: Manifest) -> tuple[StateTensor, ...]:
    """The constants of the shortlist's decoder besides those of the state table; none without a shortlist."""
    return () if manifest.shortlist is None else contract.listed_state(manifest.shortlist.width)


def interface_problems(
    manifest: Manifest, file: str, inputs: Sequence[Argument], outputs: Sequence[Argument]
) -> list[str]:
    """List differences between a graph's inputs and outputs and the manifest: names, types, axes and their sizes."""
    if file == contract.ENCODER_FILE:
        forms = _encoder_forms(manifest)
    elif file == contract.SHORTLIST_WEIGHT_FILE:
        forms = _weight_forms(manifest)
    else:
        forms = _step_forms(manifest, file)
    return [
        problem
        for what, expected, found in (("inputs", forms[0], inputs), ("outputs", forms[1], outputs))
        for problem in _problems(f"{what} of `{file}`", expected, {argument.name: argument for argument in found})
    ]


def _encoder_forms(manifest: Manifest) -> tuple[Forms, Forms]:
    inputs = {
        contract.SOURCE: Form("int64", (contract.SENTENCES, contract.SOURCE_AXIS)),
        contract.SOURCE_LENGTH: Form("int64", (contract.SENTENCES,)),
    }
    outputs = {
        tensor.name: Form(tensor.dtype, (contract.SENTENCES, *tensor.axes[1:]))
        for tensor in manifest.state
        if tensor.from_encoder
    }
    return inputs, outputs


def _weight_forms(manifest: Manifest) -> tuple[Forms, Forms]:
    weight, bias = listed_state(manifest)
    listed = weight.axes[:1]
    inputs = {contract.LISTED: Form("int64", listed)}
    return inputs, {
        weight.name: Form(weight.dtype, weight.axes),
        contract.PROJECTION_BIAS: Form(bias.dtype, listed),
    }


def _step_forms(manifest: Manifest, file: str) -> tuple[Forms, Forms]:
    fixed = {
        contract.TOKEN: Form("int64", (contract.ROWS,)),
        contract.POSITION: Form("int64", ()),
        contract.CACHE_INDIRECTION: Form("int32", (contract.SENTENCES, contract.BEAMS, contract.CAPACITY_AXIS)),
        contract.BEAM_WIDTH: Form("int32", (1,)),
    }
    state = manifest.state + (listed_state(manifest) if file == contract.SHORTLIST_DECODER_FILE else ())
    fixed |= {tensor.input_name: Form(tensor.dtype, tensor.axes) for tensor in state}
    inputs = {name: fixed[name] for name in contract.decoder_inputs(state)}
    widths: dict[str, str | int] = {
        contract.DECODER_FILE: manifest.target_vocab_size,
        contract.SHORTLIST_DECODER_FILE: contract.LISTED_AXIS,
        contract.ATTENTION_FILE: contract.SOURCE_AXIS,
    }
    width = widths[file]
    outputs = {host_output(file): Form("float32", (contract.ROWS, width))}
    outputs |= {
        tensor.output_name: Form(tensor.dtype, tensor.axes) for tensor in manifest.state if tensor.kind != "constant"
    }
    return inputs, outputs


def _problems(what: str, expected: Forms, found: Mapping[str, Argument]) -> Iterator[str]:
    if missing := sorted(expected.keys() - found.keys()):
        yield f"{what} lack {', '.join(missing)}"
    if surplus := sorted(found.keys() - expected.keys()):
        yield f"{what} have unknown {', '.join(surplus)}"
    for name in sorted(expected.keys() & found.keys()):
        form, argument = expected[name], found[name]
        if argument.type != TYPE_NAMES[form.dtype]:
            yield f"{what}: `{name}` is {argument.type} instead of {TYPE_NAMES[form.dtype]}"
        if len(argument.shape) != len(form.axes) or any(
            size != axis if isinstance(axis, int) else isinstance(size, int)
            for size, axis in zip(argument.shape, form.axes, strict=True)
        ):
            yield f"{what}: `{name}` has shape {_shape(argument.shape)} instead of {_shape(form.axes)}"


def _shape(sizes: Sequence[str | int | None]) -> str:
    return "(" + ", ".join(map(str, sizes)) + ")"
