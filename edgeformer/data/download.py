"""Download of a corpus file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import edgeformer
from edgeformer.errors import DataError

if TYPE_CHECKING:
    from pooch import Pooch

Progress = Callable[[str, int, int | None], None]
"""Called with the file name, the number of bytes received, and the total number of bytes if the server states it."""

MAX_BYTES = 1 << 28
"""Maximum size of a download; the largest corpus file has four megabytes."""
_ATTEMPTS = 3
_CHUNK = 1 << 16
_TIMEOUT_SECONDS = 30.0


def cache_folder() -> Path:
    """``$EDGEFORMER_CACHE``, or ``~/.cache/edgeformer`` if it is not set."""
    return Path(os.environ.get("EDGEFORMER_CACHE") or Path.home() / ".cache" / "edgeformer")


def download(url: str, *, progress: Progress | None = None) -> bytes:
    """Fetch a file of a few megabytes, in at most three attempts; a response of 4xx is final.

    Args:
        url: http or https address.
        progress: called for every chunk; by default a bar is drawn if standard error is a terminal.

    Raises:
        DataError: the download failed, or is larger than :data:`MAX_BYTES`.
    """
    # The network is rarely needed: keep it out of start-up.
    import pooch
    from requests import HTTPError, RequestException

    pooch.get_logger().setLevel("WARNING")
    name = url.rpartition("/")[2]

    def fetch(url: str, path: str, registry: Pooch) -> None:
        headers = {"User-Agent": f"edgeformer/{edgeformer.__version__}"}
        with _reporting(progress) as report:
            get = pooch.HTTPDownloader(_Bar(name, report), _CHUNK, timeout=_TIMEOUT_SECONDS, headers=headers)
            try:
                get(url, path, registry)
            except HTTPError as error:
                if error.response is not None and error.response.status_code < 500:
                    raise _failure(url, error) from None
                raise

    with TemporaryDirectory() as folder:
        registry = pooch.create(folder, "", registry={name: None}, urls={name: url}, retry_if_failed=_ATTEMPTS - 1)
        try:
            return Path(registry.fetch(name, downloader=fetch)).read_bytes()
        except (RequestException, OSError) as error:
            raise _failure(url, error) from None


def _failure(url: str, reason: Exception) -> DataError:
    return DataError(
        f"`{url.rpartition('/')[2]}` cannot be downloaded from {url}: {reason}. "
        "Check the network, or put the file into a folder and give that with --data."
    )


@dataclass
class _Bar:
    """Passes the progress of one attempt on, in the form in which pooch reports it."""

    name: str
    report: Progress
    total: int = 0
    """Bytes of the file, or 0 if the server does not state them."""
    done: int = 0
    received: int = 0
    """Bytes of this attempt, whatever the server states."""

    def update(self, size: int) -> None:
        """Count a chunk; the last one may be shorter than its nominal size.

        Raises:
            DataError: more than :data:`MAX_BYTES` have arrived.
        """
        self.received += size
        if self.received > MAX_BYTES:
            raise DataError(
                f"The download of `{self.name}` was stopped after {MAX_BYTES:,} bytes; no corpus is larger."
            )
        self.done = min(self.done + size, self.total or sys.maxsize)
        self.report(self.name, self.done, self.total or None)

    def reset(self) -> None:
        """Start again, before the full size is reported at the end."""
        self.done = self.received = 0

    def close(self) -> None:
        """Do nothing; the caller closes the bar."""


@contextmanager
def _reporting(progress: Progress | None) -> Iterator[Progress]:
    """The caller's progress, a bar on a terminal, or nothing."""
    if progress is not None:
        yield progress
    elif not sys.stderr.isatty():
        yield lambda _name, _done, _total: None
    else:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("")
            yield lambda name, done, total: bar.update(task, description=name, completed=done, total=total)
