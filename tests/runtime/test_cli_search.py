"""Every option of ``translate`` that says how to search reaches the search, whatever is translated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

from edgeformer_runtime.cli.options import search
from edgeformer_runtime.errors import InputError
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.translator import Translator
from tests.commands import run


@search
def command(search: dict[str, Any]) -> None:
    """Has the options of the search alone."""


OPTIONS: list[click.Option] = list(reversed(vars(command)["__click_params__"]))
OTHER_VALUES = {"--patience": "2", "--suppress-token": "do", "--suppress-sequence": "dog"}
"""Values for which a number of 0.5, or 3, does not do."""
MODES = {"lines": ("--lines", "--json"), "texts": (), "html": ("--format", "html")}
NOT_OF_TEXTS = {"n_best", "return_token_scores"}
"""What whole texts do not have: they have one translation, and always its confidence."""
WITHOUT_OPTION = {"return_attention", "return_scores"}
"""What other options of the command imply."""


@pytest.fixture
def decoding_of(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The options with which a command line decodes."""
    found: list[DecodeOptions] = []

    def recorded(session: Any, sources: Any, options: DecodeOptions, *others: Any, **named: Any) -> Any:
        found.append(options)
        raise InputError(0, "need not be translated.")

    opened = Translator.open(small_bundle, threads=1)
    monkeypatch.setattr(Translator, "open", lambda *arguments, **settings: opened)
    monkeypatch.setattr(Translator, "close", lambda self: None)
    monkeypatch.setattr("edgeformer_runtime.translator.decode", recorded)

    def decoding_of(*arguments: str) -> dict[str, Any]:
        result = run("translate", small_bundle, *arguments, "dog")
        assert "need not be translated" in result.output
        options = {name: tuple(value) if isinstance(value, list) else value for name, value in asdict(found[0]).items()}
        found.clear()
        return options

    return decoding_of


def written(option: click.Option) -> list[str]:
    """The option with a value other than its default."""
    if option.is_flag:
        return [option.secondary_opts[0] if option.secondary_opts and option.default else option.opts[0]]
    value = "3" if isinstance(option.type, click.IntRange) else "0.5"
    return [option.opts[0], OTHER_VALUES.get(option.opts[0], value)]


@pytest.mark.parametrize("mode", MODES)
def test_every_option_of_the_search_reaches_it(decoding_of: Callable[..., dict[str, Any]], mode: str) -> None:
    reached: list[str] = []
    default_of = cache(decoding_of)
    for option in OPTIONS:
        is_sampling = option.opts[0].startswith(("--sampling", "--seed"))
        base = [*MODES[mode], "--beam", "1" if is_sampling else "5"]
        if option.opts[0] in ("--sampling-topp", "--sampling-temperature"):
            base += ["--sampling-topk", "9"]
        if option.name in ("nbest", "token_scores") and mode != "lines":
            continue
        default = default_of(*base)
        variants = [written(option)]
        if option.secondary_opts:
            variants = [[option.opts[0]], [option.secondary_opts[0]]]
        names = {
            name for words in variants for name, value in decoding_of(*base, *words).items() if value != default[name]
        }
        if option.name == "alternatives":
            names -= {"return_token_scores"}  # what they are chosen by
        assert len(names) == 1, (option.opts, names)
        reached += names
    missing = {*DecodeOptions.__dataclass_fields__} - {*reached}
    assert missing == WITHOUT_OPTION | (NOT_OF_TEXTS if mode != "lines" else set())
    assert len(reached) == len({*reached})
