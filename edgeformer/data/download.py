"""Download of a corpus file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import edgeformer
from edgeformer.errors import DataError

if TYPE_CHECKING:
    from pooch import Pooch
    from rich.progress import Progress

MAX_BYTES = 1 << 28
"""Maximum size of a download; the largest corpus file has four megabytes."""
_ATTEMPTS = 3
_CHUNK = 1 << 16
_TIMEOUT_SECONDS = 30.0


def cache_folder() -> Path:
    """``$EDGEFORMER_CACHE``, or ``~/.cache/edgeformer`` if it is not set."""
    return Path(os.environ.get("EDGEFORMER_CACHE") or Path.home() / ".cache" / "edgeformer")


def download(url: str, advice: str = "put the file into a folder and give that with --data") -> bytes:
    """Fetch an http or https address of a few megabytes, in at most three attempts; a response of 4xx is final.

    If standard error is a terminal, a bar shows the progress.

    Args:
        url: the address.
        advice: for the message of an error, what to do without a network.

    Raises:
        DataError: the download failed, or is larger than :data:`MAX_BYTES`.
    """
    # The network is rarely needed: keep it out of start-up.
    import pooch
    from requests import HTTPError, RequestException
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bars = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    pooch.get_logger().setLevel("WARNING")
    name = url.rstrip("/").rpartition("/")[2]

    def fetch(url: str, path: str, registry: Pooch) -> None:
        headers = {"User-Agent": f"edgeformer/{edgeformer.__version__}"}
        get = pooch.HTTPDownloader(_Bar(bars, name), _CHUNK, timeout=_TIMEOUT_SECONDS, headers=headers)
        try:
            get(url, path, registry)
        except HTTPError as error:
            if error.response is not None and error.response.status_code < 500:
                raise _failure(url, error, advice) from None
            raise

    with TemporaryDirectory() as folder, bars:
        registry = pooch.create(folder, "", registry={name: None}, urls={name: url}, retry_if_failed=_ATTEMPTS - 1)
        try:
            return Path(registry.fetch(name, downloader=fetch)).read_bytes()
        except (RequestException, OSError) as error:
            raise _failure(url, error, advice) from None


def _failure(url: str, reason: Exception, advice: str) -> DataError:
    name = url.rstrip("/").rpartition("/")[2]
    return DataError(f"`{name}` cannot be downloaded from {url}: {reason}. Check the network, or {advice}.")


class _Bar:
    """The progress of one attempt, in the form in which pooch reports it."""

    def __init__(self, bars: Progress, name: str) -> None:
        self._bars, self._task, self._name = bars, bars.add_task(name, total=None), name
        self.total = 0
        """Bytes of the file, or 0 if the server does not state them."""
        self._received = 0

    def update(self, size: int) -> None:
        """Count a chunk.

        Raises:
            DataError: more than :data:`MAX_BYTES` have arrived.
        """
        self._received += size
        if self._received > MAX_BYTES:
            raise DataError(
                f"The download of `{self._name}` was stopped after {MAX_BYTES:,} bytes; it should be smaller."
            )
        self._bars.update(self._task, advance=size, total=self.total or None)

    def reset(self) -> None:
        """Start again, before the full size is reported at the end."""
        self._received = 0
        self._bars.reset(self._task)

    def close(self) -> None:
        """Remove the bar."""
        self._bars.remove_task(self._task)
