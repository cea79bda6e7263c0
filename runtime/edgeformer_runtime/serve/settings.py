"""Settings of a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from edgeformer_runtime.serve.batching import BatchLimits


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """What a server serves, and how much of it. It can be pickled, so that worker processes get the same."""

    bundles: tuple[str, ...]
    """Bundles, as ``PATH`` or ``NAME=PATH``, or a folder of bundles."""
    host: str = "127.0.0.1"
    port: int = 5000
    """0 chooses a free port."""
    workers: int = 1
    """Processes that share the port."""
    threads: int = 0
    """CPU threads per operator; 0 for as many as a model of its size has use for, at most the available CPUs divided by
    the processes and the batches of each."""
    device: str = "cpu"
    memory: int | None = None
    """Bytes of bundle files that each process keeps open."""
    trusted_keys: tuple[Path, ...] = ()
    batch: BatchLimits = field(default_factory=BatchLimits)
    request_seconds: float = 60.0
    """Time after which a request fails."""
    shutdown_seconds: float = 30.0
    """Time that accepted requests have to finish after SIGTERM."""
    max_body: int = 2**20
    """Bytes of a request."""
    max_characters: int | None = None
    """Characters of each text of a request."""
    max_texts: int = 512
    """Texts of a request."""
    max_alternatives: int = 8
    """Alternatives per text."""
    max_streams: int = 4
    """Translations that are streamed at a time."""
    rate_limit: int | None = None
    """Texts per minute and client, or API key."""
    api_keys: Path | None = None
    """A file of API keys."""
    trusted_proxies: str = ""
    """Addresses of proxies whose ``X-Forwarded-For`` is believed, as uvicorn's ``forwarded_allow_ips``."""
    metrics_token: str = ""
    """Bearer token that ``/metrics`` requires."""
    suggestions: Path | None = None
    """File that suggested translations are appended to; ``None`` refuses them."""
    files: bool = True
    """Whether files are translated."""
    files_folder: Path | None = None
    """Where translated files wait to be downloaded; ``None`` makes a temporary folder."""
    page: bool = True
    """Whether the page is served."""
    access_log: bool = True
    """Whether a line of JSON is written for each request, to standard error."""
