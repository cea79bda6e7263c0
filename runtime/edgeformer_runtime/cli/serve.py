"""The command ``serve``: an HTTP server for bundles."""

from __future__ import annotations

import re
from ipaddress import ip_network
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeformer_runtime.cli import options
from edgeformer_runtime.cli.terminal import echo
from edgeformer_runtime.errors import ConfigError

if TYPE_CHECKING:
    from edgeformer_runtime.serve.settings import ServeSettings
    from edgeformer_runtime.workspace.workspace import Workspace

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


@click.command()
@click.argument("bundles", nargs=-1, metavar="[BUNDLE]...")
@options.group(
    "server",
    host=click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 is all."),
    port=click.option(
        "--port", type=click.IntRange(0, 65535), default=5000, show_default=True, help="0 is any free one."
    ),
    workers=click.option(
        "--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes that share the port."
    ),
    threads=options.worker_threads,
    device=options.device,
    memory=click.option(
        "--memory",
        type=Size(),
        help="Size of the bundles that each process keeps open, such as 512M. Default: no limit.",
    ),
    trusted_keys=options.trusted_keys,
    request_seconds=click.option(
        "--timeout", type=click.FloatRange(0.01, 3600), default=60.0, show_default=True, help="Seconds for a request."
    ),
    shutdown_seconds=click.option(
        "--shutdown-timeout",
        type=click.FloatRange(1, 3600),
        default=30.0,
        show_default=True,
        help="Seconds that accepted requests have to finish after SIGTERM.",
    ),
    max_body=click.option("--max-body", type=Size(), default="1M", show_default=True, help="Size of a request."),
    max_characters=click.option(
        "--char-limit", type=click.IntRange(1), help="Characters of a text. Default: no limit."
    ),
    max_texts=click.option(
        "--batch-limit", type=click.IntRange(1), default=512, show_default=True, help="Texts of a request."
    ),
    max_alternatives=click.option(
        "--alternatives-limit", type=click.IntRange(0, 31), default=8, show_default=True, help="Alternatives per text."
    ),
    rate_limit=click.option(
        "--req-limit", type=click.IntRange(1), help="Texts per minute and client, or API key. Default: no limit."
    ),
    api_keys=click.option(
        "--api-keys",
        type=click.Path(path_type=Path),
        help="File of API keys, one per line, each with its own texts per minute or without. Default: the environment "
        "variable EDGEFORMER_API_KEYS, separated by commas; without either, everyone may translate.",
    ),
    trusted_proxies=click.option(
        "--trusted-proxy",
        "trusted_proxies",
        metavar="ADDRESSES",
        help="Addresses of proxies whose X-Forwarded-For is believed, separated by commas.",
    ),
    metrics_token=click.option(
        "--metrics-token", envvar="EDGEFORMER_METRICS_TOKEN", help="Bearer token that /metrics requires."
    ),
    suggestions=click.option(
        "--suggestions", type=click.Path(path_type=Path), help="File to append suggested translations to. Default: off."
    ),
    files=click.option("--files/--no-files", default=True, show_default=True, help="Translate files."),
    page=click.option("--page/--no-page", default=True, show_default=True, help="Serve the page."),
    access_log=click.option(
        "--log/--no-log", default=True, show_default=True, help="Log requests, without their texts."
    ),
)
@options.group(
    "batch",
    max_sentences=click.option(
        "--batch-sentences", type=click.IntRange(1, 4096), default=64, show_default=True, help="Sentences of a batch."
    ),
    parallel=click.option(
        "--batches",
        "parallel",
        type=click.IntRange(1, 256),
        default=1,
        show_default=True,
        help="Batches that each process translates at a time per model, sharing its weights.",
    ),
    delay=click.option(
        "--batch-delay",
        type=click.FloatRange(0, 1),
        default=0.002,
        show_default=True,
        help="Seconds that a sentence waits for others if nothing is being translated.",
    ),
    max_queue=click.option(
        "--queue", "max_queue", type=click.IntRange(1), default=2048, show_default=True, help="Sentences that may wait."
    ),
)
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
      edgeformer serve en-fr=exports/7 de-en=exports/9 --host 0.0.0.0 --workers 2
    """
    try:
        from edgeformer_runtime.serve.app import make_workspace
        from edgeformer_runtime.serve.batching import BatchLimits
        from edgeformer_runtime.serve.server import bind, serve
        from edgeformer_runtime.serve.settings import ServeSettings
    except ModuleNotFoundError as error:
        raise click.ClickException(f"This command needs `{error.name}`: pip install 'edgeformer[serve]'.") from None
    from edgeformer_runtime.serve.access import Access
    from edgeformer_runtime.workspace.names import named_models

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
        EdgeformerError: a device, a key, an address or a file cannot be used, or a bundle is not trusted.
    """
    from edgeformer_runtime.bundle.open import check_trust
    from edgeformer_runtime.engine.cpus import available_cpus
    from edgeformer_runtime.engine.onnx_session import checked_device

    checked_device(settings.device)
    for model in workspace.models() if settings.trusted_keys else ():
        check_trust(model.path, settings.trusted_keys)
    for address in filter(None, map(str.strip, (settings.trusted_proxies or "").split(","))):
        try:
            _ = address == "*" or ip_network(address)
        except ValueError:
            raise ConfigError(f"A trusted proxy must be an IP address or a network, but is `{address}`.") from None
    if settings.suggestions is not None:
        try:
            settings.suggestions.open("ab").close()
        except OSError as error:
            raise ConfigError(
                f"Suggestions cannot be written to `{settings.suggestions}` ({error.strerror})."
            ) from None
    if settings.workers > (cpus := available_cpus()):
        echo(f"Note: there are more workers than CPUs ({settings.workers} and {cpus}).", err=True)


def _announce(workspace: Workspace, address: str, page: bool) -> None:
    """Print where the server is, what it translates, and what to try."""
    echo(f"Serving at {address}")
    pairs: list[tuple[str, str]] = []
    for model in workspace.models():
        pair = f"{', '.join(sorted(model.sources)) or '?'} -> {', '.join(sorted(model.targets)) or '?'}"
        own = list(product(sorted(model.sources), sorted(model.targets)))
        note = "; used only if a request names it" if set(own) <= set(pairs) else ""
        echo(f"  {model.name}: {pair}, {model.manifest.precision['decoder.onnx']}{note}")
        pairs += own
    echo(f"Try {'the page, ' + address + '/, or ' if page else ''}this:")
    source, target = pairs[0] if pairs else ("en", "fr")
    echo(f"  curl {address}/translate -d q='A dog runs.' -d source={source} -d target={target}")
