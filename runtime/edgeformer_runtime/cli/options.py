"""Options that several commands share, and groups of options that a command receives as one argument."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeformer_runtime.bundle.generation import Generation
from edgeformer_runtime.engines import ENGINES
from edgeformer_runtime.errors import EdgeformerError
from edgeformer_runtime.search.option_values import Booleans, Integers, TokenIds
from edgeformer_runtime.search.options import declarations

if TYPE_CHECKING:
    from edgeformer_runtime.bundle.open import Bundle

Command = Callable[..., Any]
Declaration = Callable[[Command], Command]
"""What ``click.option`` returns."""


def group(argument: str, **declarations: Declaration) -> Declaration:
    """Pass several options to a command as one argument: a dictionary of their values, without those that are ``None``.

    >>> @click.command()
    ... @group("search", beam_size=beam, length_penalty=length_penalty)
    ... def translate(search: DecodeChanges) -> None: ...

    Errors that the command raises name the options as the command line does: `--beam` instead of `beam_size`.
    """

    def decorate(command: Command) -> Command:
        grouped = command if _GROUPS in vars(command) else _grouped(command)
        groups, flags = vars(grouped)[_GROUPS]
        groups[argument] = names = dict[str, str]()
        for key, declare in reversed(declarations.items()):
            declare(grouped)
            option = vars(grouped)["__click_params__"][-1]
            names[key], flags[key] = option.name, option.opts[0]
        return grouped

    return decorate


_GROUPS = "__option_groups__"
"""Attribute of a command with groups: the names of its options by argument and key, and their flags by key."""


def _grouped(command: Command) -> Command:
    """A command whose groups of options become one argument each."""
    groups: dict[str, dict[str, str]] = {}
    flags: dict[str, str] = {}

    @wraps(command)
    def grouped(**values: Any) -> Any:
        given = {
            argument: {key: value for key in reversed(names) if (value := values.pop(names[key])) is not None}
            for argument, names in groups.items()
        }
        try:
            return command(**values, **given)
        except EdgeformerError as error:  # which names what Python calls the option
            words = _words_given()
            named = {name: flag for name, flag in flags.items() if name not in words}
            error.args = (re.sub(r"`(\w+)`", lambda match: f"`{named.get(match[1], match[1])}`", str(error)),)
            raise

    vars(grouped)[_GROUPS] = groups, flags
    return grouped


def _words_given() -> set[str]:
    """Values of the current command's parameters, and the parts of those that are paths."""
    values = click.get_current_context().params.values()
    given = [item for value in values for item in (value if isinstance(value, tuple) else (value,))]
    return {part for item in given for part in Path(str(item)).parts}


def decode_option(name: str) -> Declaration:
    """An option of the command line as it is declared in :class:`DecodeOptions`. What is not given is ``None``, or
    without effect; the model's defaults count then."""
    default, option = declarations()[name]
    match option.values:
        case Booleans():
            # One that can be turned off may be neither, so that the model's default counts.
            settings: dict[str, Any] = {"default": None} if "/" in option.flag else {"is_flag": True}
        case TokenIds():
            settings = {"multiple": True, "metavar": option.flag.rpartition("-")[2].upper()}
        case Integers(least):
            settings = {"type": click.IntRange(least)}
        case _:
            settings = {"type": float}
    told = option.help
    if name in Generation.__struct_fields__:
        told += " Default: the model's."
    elif default is None:
        told += " Default: the model's limit."
    elif "type" in settings:
        told += f" Default: {default:g}."
    return click.option(option.flag, help=told, **settings)


class BundlePath(click.Path):
    """A bundle's folder, also given as the name of a model; see ``edgeformer models``."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See :meth:`click.ParamType.convert`."""
        from edgeformer_runtime.models.names import find_bundle

        return find_bundle(os.fsdecode(super().convert(value, param, ctx)))


bundle = click.argument("bundle", type=BundlePath())
beam = decode_option("beam_size")
length_penalty = decode_option("length_penalty")
batch_tokens = decode_option("max_batch_tokens")
search = group("search", **{name: decode_option(name) for name, (_, option) in declarations().items() if option.flag})
"""Passes the argument ``search``, a dictionary of ``DecodeChanges``."""
trusted_keys = click.option(
    "--trusted-key",
    "trusted_keys",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Public key, in PEM format, that the bundle must be signed by; may be repeated. Default: any bundle.",
)
truncate = click.option(
    "--truncate", is_flag=True, help="Truncate lines with more tokens than the model accepts, instead of failing."
)
shortlist = click.option(
    "--shortlist",
    type=click.Choice(["on", "off"]),
    default="on",
    show_default=True,
    callback=lambda context, parameter, value: value == "on",
    help="On the kernels, use only the tokens that the bundle's shortlist, if it has one, gives for each sentence.",
)
device = click.option(
    "--device", default="cpu", show_default=True, help="cpu or cuda; CUDA requires an fp16 or fp32 bundle."
)


def engine_option(name: str, *others: str, more: str = "") -> Declaration:
    """The option ``--engine``, whose parameter has a name, perhaps with other choices and more help."""
    auto = "What runs the model; auto takes the kernels if they are installed and the bundle has a plan for them."
    choice = click.Choice(["auto", *ENGINES, *others])
    return click.option("--engine", name, type=choice, default="auto", show_default=True, help=auto + more)


engine = engine_option("engine")


def advise_kernels(bundle: Bundle, engine: str, device: str) -> None:
    """Say on standard error what to do so that a bundle, for which no engine was chosen, runs on the kernels."""
    from edgeformer_runtime.cli.output import console
    from edgeformer_runtime.engines.base import kernels_advice

    if engine == "auto" and device == "cpu" and (advice := kernels_advice(bundle)):
        console(stderr=True).print(f"Note: {advice}")


threads = click.option(
    "--threads",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="CPU threads per operator; 0 for as many as are useful for a model of this size, within the CPUs available to "
    "each worker. The kernels use one thread for a batch, and several batches at a time.",
)
workers = click.option(
    "--workers",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Batches translated at the same time, sharing one copy of the weights; 0 chooses by the number of CPUs, "
    "or 1 if --threads is given.",
)
