"""Settings of a server: each is declared once, and the command line is made from these declarations."""

# ruff: noqa: RUF009 - `option` returns a field

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgeformer_runtime.limits import MIB


def option(default: Any, flag: str, help: str, **details: Any) -> Any:
    """Declare a setting that the command line has too.

    Args:
        default: its default.
        flag: its option, such as ``--port``.
        help: what it does, for the command line; what a setting without a default does then is part of it.
        details: ``low`` and ``high``, the range of a number; ``is_size``, a number of bytes that may be written as
            ``512M``; ``metavar`` and ``envvar``, as in click.
    """
    return field(default=default, metadata={"flag": flag, "help": help, **details})


@dataclass(frozen=True)
class BatchLimits:
    """When a batch is full, and when a queue is."""

    max_sentences: int = option(64, "--batch-sentences", "Maximum number of sentences per batch.", low=1, high=4096)
    max_positions: int = 2**14
    """The most positions, in rows of the encoder and the decoder, of all batches in progress for one model; a sentence
    that may take more is a batch of its own."""
    delay: float = option(
        0.002,
        "--batch-delay",
        "Seconds that a sentence waits for others if nothing is being translated and the last batch was of several "
        "requests.",
        low=0,
        high=1,
    )
    parallel: int = option(
        1,
        "--batches",
        "Batches that are translated at the same time per model, sharing its weights.",
        low=1,
        high=256,
    )
    max_queue: int = option(
        2048, "--queue", "Maximum number of waiting sentences; a request counts for at most one batch.", low=1
    )
    """A request is refused if as many wait when it comes, or if it would have to wait for too long. As requests take
    turns, one counts as no more than a batch, so that a long text does not shut out others."""


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """What a server serves, and how much of it.

    A setting without an :func:`option` is one of programs only, or has an option that other commands have too.
    """

    bundles: tuple[str, ...]
    """Bundles, as ``PATH`` or ``NAME=PATH``, or a folder of bundles."""
    host: str = option("127.0.0.1", "--host", "Address to listen on; 0.0.0.0 is all.")
    port: int = option(5000, "--port", "Port to listen on; 0 for any free one.", low=0, high=65535)
    threads: int = 0
    """CPU threads per operator; 0 for as many as are useful for a model of its size, at most the available CPUs divided
    by the batches translated at the same time."""
    device: str = "cpu"
    memory: int | None = option(
        None,
        "--memory",
        "Total size of the bundles that are kept open, such as 512M. Default: no limit.",
        is_size=True,
    )
    trusted_keys: tuple[Path, ...] = ()
    batch: BatchLimits = field(default_factory=BatchLimits)
    request_seconds: float = option(60.0, "--timeout", "Maximum number of seconds for a request.", low=0.01, high=3600)
    shutdown_seconds: float = option(
        30.0, "--shutdown-timeout", "Seconds that accepted requests have to finish after SIGTERM.", low=1, high=3600
    )
    max_connections: int = option(
        4096,
        "--max-connections",
        "Maximum number of connections, fewer if the system permits too few open files. Beyond it, the "
        "connection that has been idle longest is closed.",
        low=1,
    )
    max_body: int = option(MIB, "--max-body", "Maximum size of a request without a file.", is_size=True)
    max_upload: int = option(10 * MIB, "--max-upload", "Maximum size of a request with a file.", is_size=True)
    max_characters: int | None = option(
        None, "--char-limit", "Maximum length of a text in characters. Default: no limit.", low=1
    )
    max_texts: int = option(512, "--batch-limit", "Maximum number of texts per request.", low=1)
    max_sentences: int = option(5000, "--max-sentences", "Maximum number of sentences per request.", low=1)
    max_beam: int = option(8, "--max-beam", "Largest beam that a request may ask for.", low=1, high=32)
    max_output_tokens: int = option(
        1024, "--max-output-tokens", "Maximum number of tokens per translated sentence.", low=1, high=65536
    )
    max_alternatives: int = option(
        8, "--alternatives-limit", "Maximum number of alternatives per text.", low=0, high=31
    )
    max_streams: int = option(4, "--max-streams", "Translations streamed at the same time; others wait.", low=1)
    rate_limit: int | None = option(
        None, "--req-limit", "Texts per minute and client, or API key. Default: no limit.", low=1
    )
    api_keys: Path | None = option(
        None,
        "--api-keys",
        "File of API keys, one per line, optionally followed by a limit of texts per minute. Default: the environment "
        "variable EDGEFORMER_API_KEYS, separated by commas; without either, everyone may translate.",
    )
    trusted_proxies: int = option(
        0,
        "--trusted-proxies",
        "Number of proxies in front of the server whose X-Forwarded-For is trusted. Clients must not reach the port "
        "past them.",
        low=0,
        high=16,
    )
    allowed_hosts: tuple[str, ...] = option(
        (),
        "--allowed-host",
        "Host name that links to translated files may use, besides the server's addresses; may be repeated.",
        metavar="NAME",
    )
    metrics_token: str = option(
        "",
        "--metrics-token",
        "Bearer token that /metrics requires. Default: none.",
        envvar="EDGEFORMER_METRICS_TOKEN",
    )
    files: bool = option(True, "--files", "Translate files.")
    files_quota: int = option(
        256 * MIB,
        "--files-quota",
        "Total size of translated files that wait for download; the oldest are removed first.",
        is_size=True,
    )
    client_files_quota: int = option(
        64 * MIB, "--client-files-quota", "Total size of the translated files of one client, or API key.", is_size=True
    )
    page: bool = option(True, "--page", "Serve the page.")
    access_log: bool = option(True, "--log", "Log requests, without their texts.")
