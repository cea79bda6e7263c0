"""Translated files that wait to be downloaded: for a while, and no more of them than there is room for."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
import uuid
from contextlib import AbstractContextManager, suppress
from pathlib import Path, PurePath
from tempfile import gettempdir

from edgeformer_runtime.files import temporary
from edgeformer_server.errors import ApiError

KEPT_SECONDS = 30 * 60
"""How long a translated file can be downloaded."""
REMOVAL_SECONDS = 60
"""Time between two removals of files that can no longer be downloaded."""
MAX_NAME = 120
"""Bytes of the name of a stored file that come from that of the original."""
_NAME = re.compile(r"[0-9a-f-]{36}\.[\w.-]{1,150}")


def own_folder() -> AbstractContextManager[Path]:
    """A temporary folder of this server. Those of servers that were killed are removed."""
    return temporary(Path(gettempdir()) / "edgeformer-serve", lambda path: path.mkdir(mode=0o700))


class FileStore:
    """Files in a folder. For a new one, the oldest are removed if necessary.

    Args:
        folder: where the files are, in a folder for each client.
        quota: bytes of all files.
        client_quota: bytes of the files of one client.
    """

    def __init__(self, folder: Path, quota: int, client_quota: int) -> None:
        self._folder, self._quota, self._client_quota = folder, quota, min(quota, client_quota)

    def store(self, client: str, name: str, target: str, content: bytes) -> str:
        """Store a file.

        Args:
            client: address or API key of the client.
            name: name of the original.
            target: code of the language that it was translated to.
            content: the translated file.

        Returns:
            The name to find it by.

        Raises:
            ApiError: 413, it is larger than the files of a client may be.
        """
        if len(content) > self._client_quota:
            raise ApiError(413, f"The translated file has more than {self._client_quota} bytes; send a smaller one.")
        own = self._folder / hashlib.sha256(client.encode()).hexdigest()[:32]
        own.mkdir(mode=0o700, exist_ok=True)
        path = PurePath(re.sub(r"[^\w.-]", "_", name).encode()[-MAX_NAME:].decode(errors="ignore"))
        stored = f"{uuid.uuid4()}.{path.stem.lstrip('.') or 'file'}_{target}{path.suffix}"
        self._make_room(own, self._client_quota - len(content))
        self._make_room(self._folder, self._quota - len(content))
        (own / stored).write_bytes(content)
        return stored

    def path(self, name: str) -> Path:
        """Return where a stored file is.

        Raises:
            ApiError: 400, this is not the name of one; 404, there is none of this name any more.
        """
        if not _NAME.fullmatch(name):
            raise ApiError(400, "Invalid filename")
        for path in self._folder.glob(f"*/{name}"):
            with suppress(FileNotFoundError):  # it was removed at this moment
                if time.time() - path.stat().st_mtime < KEPT_SECONDS:
                    return path
        raise ApiError(404, "There is no such file; translated files are kept for half an hour at most.")

    async def remove_old(self) -> None:
        """Remove files that can no longer be downloaded, again and again."""
        while True:
            await asyncio.sleep(REMOVAL_SECONDS)
            with suppress(OSError, RuntimeError):  # if no thread can start, they are removed the next time
                await asyncio.to_thread(self._make_room, self._folder, self._quota)

    @staticmethod
    def _make_room(folder: Path, room: int) -> None:
        """Remove files that are too old, and then the oldest ones until the others take no more than ``room`` bytes."""
        status = {}
        for path in folder.rglob("*.*"):
            with suppress(FileNotFoundError):  # it was removed at this moment
                status[path] = path.stat()
        total = sum(each.st_size for each in status.values())
        for path in sorted(status, key=lambda path: status[path].st_mtime):
            if total <= room and time.time() - status[path].st_mtime < KEPT_SECONDS:
                break
            path.unlink(missing_ok=True)
            total -= status[path].st_size
