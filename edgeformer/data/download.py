"""Files of corpora and models: on the disk, in the cache, or downloaded."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import edgeformer
from edgeformer.data.catalog import PinnedFile
from edgeformer.data.text import content_sha256
from edgeformer.errors import DataError
from edgeformer_runtime.files import write_atomically

MAX_BYTES = 1 << 28
"""Maximum size of a download; the largest model of Firefox has 60 megabytes."""
_ATTEMPTS = 3
_CHUNK = 1 << 16
_TIMEOUT_SECONDS = 30.0


def cache_folder() -> Path:
    """``$EDGEFORMER_CACHE``, or ``~/.cache/edgeformer`` if it is not set."""
    return Path(os.environ.get("EDGEFORMER_CACHE") or Path.home() / ".cache" / "edgeformer")


def obtain(file: PinnedFile, data_dir: Path | None) -> Path:
    """Return the path of a file that lies in the data folder or the cache, or else is downloaded into the cache.

    Raises:
        DataError: its content does not have the pinned hash, or the download failed.
    """
    cache = cache_folder() / file.folder
    folders = [cache] if data_dir is None else [data_dir, data_dir / file.folder, cache]
    content, path, advice = None, cache / file.url.rpartition("/")[2], "Remove the file to have it downloaded again"
    names = (folder / f"{file.name}{suffix}" for folder in folders for suffix in ("", ".gz"))
    found = next((name for name in names if name.is_file()), None)
    if found is None:
        content = download(file.url)
        advice = "The site has changed the file: put the pinned version into a folder and pass the folder with --data"
    origin = found or file.url
    if (sha256 := content_sha256(origin, content)) != file.sha256:
        own = f'data.train = ["{file.name}:{file.member}"]' if file.member else "data.train"
        raise DataError(
            f"`{origin}` has SHA-256 {sha256}, but the corpus is pinned to {file.sha256}. "
            f"{advice}, or train on this version as your own file with {own}."
        )
    if content is not None:
        write_atomically(path, content)
    return found or path


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
    from requests import HTTPError, RequestException
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    name = url.rstrip("/").rpartition("/")[2]
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bars = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    with bars:
        task = bars.add_task(name, total=None)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return _received(url, lambda done, total: bars.update(task, completed=done, total=total))
            except RequestException as error:
                is_final = (
                    isinstance(error, HTTPError) and error.response is not None and error.response.status_code < 500
                )
                if is_final or attempt == _ATTEMPTS:
                    reason = f"`{name}` cannot be downloaded from {url}: {_reason(error)}"
                    raise DataError(f"{reason}. Check the network, or {advice}.") from None
            time.sleep(attempt)
    raise AssertionError("the last attempt returns or raises")


def _reason(error: BaseException) -> str:
    """Name the first cause of an error, without the layers of libraries around it."""
    from http.client import IncompleteRead

    while inner := error.__cause__ or error.__context__:
        error = inner
    return "the connection broke off" if isinstance(error, IncompleteRead) else str(error)


def _received(url: str, progress: Callable[[int, int | None], None]) -> bytes:
    """Fetch an address once."""
    import requests

    # Without the compression of HTTP, bytes of the file are those of its download.
    headers = {"User-Agent": f"edgeformer/{edgeformer.__version__}", "Accept-Encoding": "identity"}
    content = bytearray()
    with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT_SECONDS) as response:
        response.raise_for_status()
        total = int(response.headers.get("Content-Length", 0)) or None
        for chunk in response.iter_content(_CHUNK):
            content += chunk
            if len(content) > MAX_BYTES:
                name = url.rpartition("/")[2]
                raise DataError(
                    f"The download of `{name}` was stopped after {MAX_BYTES:,} bytes; it should be smaller."
                )
            progress(len(content), total)
    return bytes(content)
