"""Command-line options that commands of this package share."""

from __future__ import annotations

import click

from edgeformer_bench.peers.base import ENGINES
from edgeformer_runtime.cli import options

peer_pythons = options.group(
    "pythons",
    **{
        peer: click.option(
            f"--{peer}-python",
            default="",
            envvar=f"EDGEFORMER_{peer.upper()}_PYTHON",
            help=f"Python interpreter of an environment with {engine.own_environment}. Default: this one.",
        )
        for peer, engine in ENGINES.items()
        if engine.own_environment
    },
)
"""Passes the argument ``pythons``, a dictionary of interpreters by peer."""
