"""Command-line options that commands of this package share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from edgeformer_bench.peers.base import ENGINES

NEEDS = {kind: engine.own_environment for kind, engine in ENGINES.items() if engine.own_environment}


def peer_pythons(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for the Python interpreter of each of these peers; the command gets ``pythons``, by peer."""

    @wraps(command)
    def collected(**values: Any) -> Any:
        pythons = {peer: values.pop(f"{peer}_python") for peer in NEEDS}
        return command(**values, pythons=pythons)

    for peer, package in reversed(NEEDS.items()):
        collected = click.option(
            f"--{peer}-python",
            default="",
            envvar=f"EDGEFORMER_{peer.upper()}_PYTHON",
            help=f"Python interpreter of an environment with {package}. Default: this one.",
        )(collected)
    return collected
