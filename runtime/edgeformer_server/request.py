"""A request and its response: what all share, who asks and what for, and how long the answer may take."""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import msgspec
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import Response

from edgeformer_server.access import Access, network
from edgeformer_server.errors import LOG, ApiError, as_api_error
from edgeformer_server.files.file_store import FileStore
from edgeformer_server.metrics import Metrics
from edgeformer_server.service import Service
from edgeformer_server.settings import ServeSettings
from edgeformer_text.options import Format

Result = TypeVar("Result")
LARGE_BODY = 16384
"""Bytes from which on it takes longer to read a body than to let a thread do it."""
SLICE = 16384
"""Bytes of a form that are read without letting other requests go on."""
MAX_FIELDS = 64
"""Fields of a form."""
MAX_TAGS = 50_000
"""Tags of the texts of a request, each of which takes the time of a hundred characters. Files are read elsewhere."""
_ESCAPE = re.compile(b"%([0-9A-Fa-f]{2})")


@dataclass
class ServerContext:
    """Settings, service and state that all endpoints share."""

    settings: ServeSettings
    service: Service
    access: Access
    metrics: Metrics
    files: FileStore | None = None
    """Translated files; ``None`` if files are not translated."""
    is_draining: bool = False
    """Whether the server is shutting down."""


def context_of(request: Request) -> ServerContext:
    """The context of a request."""
    context: ServerContext = request.app.context
    return context


async def run_while_connected(request: Request, work: Coroutine[Any, Any, Result], seconds: float) -> Result:
    """Wait for work, but no longer than the client does; work that is not finished is canceled.

    Raises:
        ApiError: 499, the client went away.
        TimeoutError: the work took too long.
    """
    is_gone = False

    async def leave() -> None:
        nonlocal is_gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        if not deadline.expired():
            is_gone = True
            deadline.reschedule(0.0)

    try:
        async with asyncio.timeout(seconds) as deadline:
            watch = asyncio.ensure_future(leave())
            try:
                return await work
            finally:
                watch.cancel()
    except TimeoutError:
        if is_gone:
            raise ApiError(499, "The client closed the connection.") from None
        raise


async def decode_body(body: bytes, read: Callable[[bytes], Result]) -> Result:
    """Read something from a body, a large one in a thread, so that other requests do not wait for it."""
    return await asyncio.to_thread(read, body) if len(body) > LARGE_BODY else read(body)


def client_of(request: Request) -> str:
    """What tells the client from others: its address, or that of its network."""
    return network(request.client.host) if request.client else ""


def bearer_token(request: Request) -> str:
    """Token of the ``Authorization`` header, or empty."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def check_sizes(context: ServerContext, texts: Sequence[str], format: Format = "text") -> None:
    """Check the number of texts, their lengths, and the number of tags in HTML.

    Raises:
        ApiError: there are too many, or one is too long.
    """
    settings = context.settings
    for sizes, limit in (((len(texts),), settings.max_texts), (map(len, texts), settings.max_characters)):
        if limit is not None and (size := max(sizes, default=0)) > limit:
            raise ApiError(400, f"Invalid request: request ({size}) exceeds text limit ({limit})")
    if format == "html" and sum(text.count("<") for text in texts) > MAX_TAGS:
        raise ApiError(400, f"Invalid request: there are more than {MAX_TAGS:,} tags; send less at a time, or a file")


class Upload(NamedTuple):
    """An uploaded file."""

    name: str
    content: bytes


class Fields:
    """Fields of a request by name.

    Args:
        values: the fields.
        is_json: whether they came as JSON.
        token: bearer token of the request, used as the API key if there is no such field.
    """

    def __init__(self, values: dict[str, Any], *, is_json: bool, token: str = "") -> None:
        self.values, self.is_json, self._token = values, is_json, token

    @property
    def api_key(self) -> str:
        """The API key, or empty."""
        key = self.values.get("api_key")
        return key if isinstance(key, str) and key else self._token

    def texts(self, name: str) -> str | list[str]:
        """A text, or a list of texts in JSON.

        Raises:
            ApiError: it is missing, or something else.
        """
        value = self.values.get(name)
        if isinstance(value, list) and set(map(type, value)) == {str}:
            return value
        if value and not isinstance(value, str):
            raise ApiError(400, f"Invalid request: {name} parameter must be a string or a list of strings")
        text = self.text(name)
        # As LibreTranslate does, so that lengths do not depend on how a form is sent.
        return text if self.is_json else "\n".join(text.splitlines())

    def length(self, name: str) -> int:
        """Number of texts in a field, for their cost; 1 if it is not a list."""
        value = self.values.get(name)
        return max(1, len(value)) if isinstance(value, list) else 1

    def text(self, name: str) -> str:
        """A text.

        Raises:
            ApiError: it is missing, or something else.
        """
        value = self.values.get(name)
        if not value:
            raise ApiError(400, f"Invalid request: missing {name} parameter")
        if not isinstance(value, str):
            raise ApiError(400, f"Invalid request: {name} parameter must be a string")
        return value

    def count(self, name: str) -> int:
        """A whole number; 0 if it is missing or negative.

        Raises:
            ApiError: it is something else.
        """
        value = self.values.get(name) or 0
        try:
            return max(0, int(value))
        except (TypeError, ValueError, OverflowError):
            raise ApiError(400, f"Invalid request: {name} parameter is not a number") from None

    def upload(self, name: str) -> Upload:
        """An uploaded file.

        Raises:
            ApiError: it is missing.
        """
        value = self.values.get(name)
        if not isinstance(value, Upload):
            raise ApiError(400, f"Invalid request: missing {name} parameter")
        return value


async def read_fields(request: Request) -> Fields:
    """Read the fields of a request. Of several with the same name the first one counts, and those in the address count
    before those of a form, as in LibreTranslate.

    Raises:
        ApiError: the body is not valid.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    token = bearer_token(request)
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        try:
            values = await decode_body(await request.body(), msgspec.json.decode)
        except (msgspec.DecodeError, ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise ApiError(400, "Invalid JSON format")
        return Fields(values, is_json=True, token=token)
    items: list[tuple[str, Any]] = []
    try:
        if kind == "multipart/form-data":
            limits = {"max_files": 4, "max_fields": MAX_FIELDS, "max_part_size": 2**26}
            form = await MultiPartParser(request.headers, _slices(request.stream()), **limits).parse()
            try:
                items = [(name, await _received(value)) for name, value in form.multi_items()]
            finally:
                await form.close()
        elif kind == "application/x-www-form-urlencoded":  # Starlette takes bytes that are not escaped for Latin-1
            items = await decode_body(await request.body(), _form)
        address = _form(request.scope["query_string"])
    except UnicodeDecodeError:
        raise ApiError(400, "Invalid request: the form is not UTF-8") from None
    except (MultiPartException, ValueError) as error:
        what = error.message if isinstance(error, MultiPartException) else error
        raise ApiError(400, f"Invalid request: the form is not valid ({what})") from None
    values = dict(reversed([*address, *items]))
    return Fields(values, is_json=False, token=token)


def _form(body: bytes) -> list[tuple[str, str]]:
    """Fields of a form; unlike :func:`urllib.parse.parse_qsl`, other threads can go on after each escape."""
    pairs = body.split(b"&", MAX_FIELDS)
    if len(pairs) > MAX_FIELDS:
        raise ValueError("Max number of fields exceeded")
    names_and_values = (pair.replace(b"+", b" ").partition(b"=")[::2] for pair in pairs if pair)
    return [(_unescaped(name), _unescaped(value)) for name, value in names_and_values]


def _unescaped(text: bytes) -> str:
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), text).decode()


async def _slices(body: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """A body in parts, between which other requests go on."""
    async for part in body:
        for start in range(0, len(part), SLICE):
            yield part[start : start + SLICE]
            await asyncio.sleep(0)


async def _received(value: UploadFile | str) -> Upload | str:
    return Upload(value.filename or "", await value.read()) if isinstance(value, UploadFile) else value


def json_response(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Encode a response as JSON."""
    return Response(msgspec.json.encode(content), status, dict(headers or {}), "application/json")


def error_response(error: BaseException) -> Response:
    """The response to an error; one of the server is logged, without texts."""
    known = as_api_error(error)
    if known.status == 500:
        frame = traceback.extract_tb(error.__traceback__, limit=-1)[0]
        what = str(error) if type(error).__module__ == "edgeformer_runtime.errors" else ""
        fields = {"error": type(error).__name__, "what": what, "where": f"{frame.filename}:{frame.lineno}"}
        LOG.error("request failed", extra={"fields": fields})
    return json_response({"error": known.message}, known.status, known.headers)
