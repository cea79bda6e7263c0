"""Download of pinned files into a cache folder."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import edgeformer
from edgeformer.errors import DataError

Progress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes so far, and the bytes in all where the server says so."""

_CHUNK = 1 << 16
_TIMEOUT_SECONDS = 30.0


def cache_folder() -> Path:
    """``$EDGEFORMER_CACHE``, else ``~/.cache/edgeformer``."""
    return Path(os.environ.get("EDGEFORMER_CACHE") or Path.home() / ".cache" / "edgeformer")


def download(url: str, *, attempts: int = 3, pause_seconds: float = 1.0, progress: Progress | None = None) -> bytes:
    """Fetch a file of a few megabytes.

    Args:
        url: an http or https address.
        attempts: tries before giving up; an answer of 4xx is final.
        pause_seconds: wait before the second try, doubled before each further one.
        progress: told about every chunk; left out, a bar is drawn if standard error is a terminal.

    Raises:
        DataError: the file cannot be had.
    """
    from http.client import HTTPException  # the network is rarely needed: keep it out of start-up
    from urllib.error import HTTPError

    reason: Exception | None = None
    for attempt in range(attempts):
        if attempt:
            time.sleep(pause_seconds * 2 ** (attempt - 1))
        try:
            with _reporting(progress) as report:
                return _fetch(url, report)
        except HTTPError as error:
            error.close()
            reason = error
            if 400 <= error.code < 500:
                break
        except (OSError, HTTPException) as error:  # URLError, timeouts and broken connections are OSErrors
            reason = error
    name = url.rpartition("/")[2]
    raise DataError(
        f"`{name}` cannot be downloaded from {url}: {reason}. "
        "Check the network, or put the file into a folder and give that with --data."
    )


def _fetch(url: str, report: Progress) -> bytes:
    from urllib.request import Request, urlopen

    name = url.rpartition("/")[2]
    request = Request(url, headers={"User-Agent": f"edgeformer/{edgeformer.__version__}"})
    with urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
        length = response.headers.get("Content-Length")
        total = int(length) if length and length.isdecimal() else None
        content = bytearray()
        while chunk := response.read(_CHUNK):
            content += chunk
            report(name, len(content), total)
    if total is not None and len(content) != total:
        raise ConnectionError(f"the connection broke off after {len(content):,} of {total:,} bytes")
    return bytes(content)


@contextmanager
def _reporting(progress: Progress | None) -> Iterator[Progress]:
    """The caller's progress, or a bar on a terminal, or nothing."""
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
