"""Options that several commands share, and groups of options that a command receives as one argument."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from edgeformer_runtime.errors import EdgeformerError

Command = Callable[..., Any]
Declaration = Callable[[Command], Command]
"""What ``click.option`` returns."""


def group(argument: str, **declarations: Declaration) -> Declaration:
    """Pass several options to a command as one argument: a dictionary of their values, without those that are ``None``.

    >>> @click.command()
    ... @group("search", beam_size=beam, length_penalty=length_penalty)
    ... def translate(search: DecodeChanges) -> None: ...

    Errors that the command raises name the options as the command line does: `--beam` instead of `beam_size`.

    Args:
        argument: the command's parameter.
        declarations: the options, each by its key in the dictionary.
    """

    def decorate(command: Command) -> Command:
        names: dict[str, str] = {}
        flags: dict[str, str] = {}

        @wraps(command)
        def grouped(**values: Any) -> Any:
            chosen = {key: values.pop(names[key]) for key in declarations}
            try:
                return command(
                    **values, **{argument: {key: value for key, value in chosen.items() if value is not None}}
                )
            except EdgeformerError as error:  # which names what Python calls the option
                error.args = (re.sub(r"`(\w+)`", lambda match: f"`{flags.get(match[1], match[1])}`", str(error)),)
                raise

        for key, declare in reversed(declarations.items()):
            declare(grouped)
            option = vars(grouped)["__click_params__"][-1]
            names[key], flags[key] = option.name, option.opts[0]
        return grouped

    return decorate


class BundlePath(click.Path):
    """A bundle's folder, also given as the name of a model; see ``edgeformer models``."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See :meth:`click.ParamType.convert`."""
        from edgeformer_runtime.workspace.names import find_bundle

        return find_bundle(os.fsdecode(super().convert(value, param, ctx)))


bundle = click.argument("bundle", type=BundlePath())
data_folder = click.option(
    "--data", "data_dir", type=click.Path(path_type=Path), help="Folder to look for the corpus files in."
)
beam = click.option(
    "--beam", type=click.IntRange(1), help="Hypotheses kept per sentence; 1 is greedy search. Default: the model's."
)
length_penalty = click.option(
    "--length-penalty", type=float, help="Exponent of the length by which scores are divided. Default: the model's."
)
batch_tokens = click.option(
    "--batch-tokens", type=click.IntRange(1), default=4096, show_default=True, help="Maximum batch size in tokens."
)
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
    help="Use only the tokens that the bundle's shortlist gives for each sentence, if it has a shortlist.",
)
device = click.option(
    "--device", default="cpu", show_default=True, help="cpu or cuda; CUDA requires an fp16 or fp32 bundle."
)
threads = click.option(
    "--threads",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="CPU threads per operator; 0 for as many as are useful for a model of this size.",
)
worker_threads = click.option(
    "--threads",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="CPU threads per operator; 0 for as many as are useful for a model of this size, within the CPUs available to "
    "each worker.",
)
workers = click.option(
    "--workers",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Batches translated at the same time, sharing one copy of the weights; 0 chooses by the number of CPUs, "
    "or 1 if --threads is given.",
)
