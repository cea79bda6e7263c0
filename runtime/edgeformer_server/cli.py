"""The command ``serve``: an HTTP server for bundles."""

from __future__ import annotations

import re
from dataclasses import Field, fields
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_type_hints

import click

from edgeformer_runtime.cli import options
from edgeformer_runtime.cli.terminal import echo
from edgeformer_runtime.errors import ConfigError, missing_package
from edgeformer_server.settings import BatchLimits, ServeSettings

if TYPE_CHECKING:
    from edgeformer_server.workspace import Workspace

_SIZE = re.compile(r"(\d{1,12})\s*([kKMG]?)i?[bB]?")
_UNITS = {"": 1, "k": 2**10, "K": 2**10, "M": 2**20, "G": 2**30}


class Size(click.ParamType[int]):
    """A number of bytes, such as ``512M`` or ``2G``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """See :meth:`click.ParamType.convert`."""
        if isinstance(value, int):
            return value
        if not (match := _SIZE.fullmatch(str(value))) or not int(match[1]):
            self.fail(f"`{value}` is not a size; write bytes, or a number with k, M or G, such as 512M.", param, ctx)
        return int(match[1]) * _UNITS[match[2]]


def _declarations(settings: type) -> dict[str, options.Declaration]:
    """Options of the command line for the settings that declare one."""
    kinds = get_type_hints(settings)
    return {each.name: _declaration(each, kinds[each.name]) for each in fields(settings) if "flag" in each.metadata}


def _declaration(setting: Field[Any], kind: Any) -> options.Declaration:
    """The option of a setting, whose type follows from that of the setting."""
    details, default = setting.metadata, cast(Any, setting.default)
    flag, help = details["flag"], details["help"]
    shown: dict[str, Any] = {name: details[name] for name in ("metavar", "envvar") if name in details}
    if details.get("is_size"):
        shown["type"] = Size()
    elif kind in (int, float, int | None):
        shown["type"] = (click.FloatRange if kind is float else click.IntRange)(details.get("low"), details.get("high"))
    elif kind == Path | None:
        shown["type"] = click.Path(path_type=Path)
    elif kind == tuple[str, ...]:
        shown["multiple"] = True
    elif kind is bool:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    if default not in (None, "", ()):
        shown |= {"default": f"{default // 2**20}M" if details.get("is_size") else default, "show_default": True}
    return click.option(flag, help=help, **shown)


@click.command()
@click.argument("bundles", nargs=-1, metavar="[BUNDLE]...")
@options.group(
    "server",
    **_declarations(ServeSettings),
    threads=options.threads,
    device=options.device,
    trusted_keys=options.trusted_keys,
)
@options.group("batch", **_declarations(BatchLimits))
def serve(bundles: tuple[str, ...], server: dict[str, Any], batch: dict[str, Any]) -> None:
    """Serve bundles over HTTP.

    BUNDLE is a bundle, NAME=PATH, the name of a model, or a folder of bundles; by default, all models that
    `edgeformer models` lists. Clients of LibreTranslate work unchanged; /v1 has scores,
    alignments, streaming and all decoding options; / is a page.

    \b
    Examples:
      edgeformer serve
      edgeformer serve bundle
      edgeformer serve bundles/ --memory 1G --req-limit 60
      edgeformer serve en-fr=exports/7 de-en=exports/9 --host 0.0.0.0
    """
    try:
        from edgeformer_server.app import make_workspace
        from edgeformer_server.server import bind, serve
    except ModuleNotFoundError as error:
        raise click.ClickException(missing_package("This command", error.name, "serve")) from None
    from edgeformer_runtime.models.names import named_models
    from edgeformer_server.access import Access

    bundles = bundles or tuple(f"{model.name}={model.path}" for model in named_models())
    if not bundles:
        raise ConfigError("There is no model to serve: give a bundle, or fetch a model with `edgeformer get`.")
    settings = ServeSettings(bundles=bundles, batch=BatchLimits(**batch), **server)
    Access.of(settings.api_keys, settings.rate_limit)  # wrong keys are an error before the port is opened
    workspace = make_workspace(settings)
    _check(settings, workspace)
    with bind(settings) as listener:
        host, port = listener.getsockname()[:2]
        _announce(workspace, f"http://{f'[{host}]' if ':' in host else host}:{port}", settings.page)
        serve(settings, listener)


def _check(settings: ServeSettings, workspace: Workspace) -> None:
    """Find mistakes that would otherwise be errors of requests.

    Raises:
        EdgeformerError: a device or a key cannot be used, or a bundle is not trusted.
    """
    from edgeformer_runtime.bundle.open import check_trust
    from edgeformer_runtime.engines.onnx import check_device

    check_device(settings.device)
    for model in workspace.catalog().models if settings.trusted_keys else ():
        check_trust(model.path, settings.trusted_keys)


def _announce(workspace: Workspace, address: str, page: bool) -> None:
    """Print where the server is, what it translates, and what to try."""
    echo(f"Serving at {address}")
    pairs: list[tuple[str, str]] = []
    for model in workspace.catalog().models:
        pair = f"{', '.join(sorted(model.sources)) or '?'} -> {', '.join(sorted(model.targets)) or '?'}"
        own = list(product(sorted(model.sources), sorted(model.targets)))
        note = "; used only if a request names it" if set(own) <= set(pairs) else ""
        note += "; failed the validation of its training" if model.manifest.traits.failed_validation else ""
        echo(f"  {model.name}: {pair}, {model.precision}{note}")
        pairs += own
    echo(f"Try {'the page, ' + address + '/, or ' if page else ''}this:")
    source, target = pairs[0] if pairs else ("en", "fr")
    echo(f"  curl {address}/translate -d q='A dog runs.' -d source={source} -d target={target}")
