"""The options of a server are on the page, and have a range."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any

import click
import pytest

from edgeformer.cli import main
from edgeformer_runtime.serve.settings import BatchLimits, ServeSettings
from tests.conftest import ROOT

OPTIONS = [each for kind in (ServeSettings, BatchLimits) for each in fields(kind) if "flag" in each.metadata]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: str(option.metadata["flag"]))
def test_the_page_names_every_option_and_its_default(option: Field[Any]) -> None:
    page = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    flag = option.metadata["flag"]
    names = (f"`{flag}`", f"`--no-{flag.removeprefix('--')}`")
    (row,) = (line for line in page.splitlines() if line.startswith("| `--") and any(name in line for name in names))
    default: Any = option.default
    if isinstance(default, bool) or default in (None, "", ()):
        return
    size = (
        f"{default // 2**20}M"
        if option.metadata.get("is_size")
        else f"{default:g}"
        if default != "127.0.0.1"
        else default
    )
    assert size in row.rsplit("|", 2)[1]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: str(option.metadata["flag"]))
def test_numbers_out_of_range_are_refused(option: Field[Any]) -> None:
    command = main.get_command(click.Context(main), "serve")
    assert command is not None
    limits = (option.metadata.get("low"), option.metadata.get("high"))
    for limit, step in zip(limits, (-1, 1), strict=True):
        if limit is not None:
            with pytest.raises(click.BadParameter, match="is not in the range"):
                command.make_context("serve", [option.metadata["flag"], str(limit + step)])
            command.make_context("serve", [option.metadata["flag"], str(limit)])
