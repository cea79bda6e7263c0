"""What people and programs read: the page at ``/``, the list of endpoints at ``/docs``, and ``/openapi.json``.

Everything comes from this server; nothing asks another.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

from starlette.responses import Response
from starlette.routing import Route

_FOLDER = files("edgeformer_server") / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: scripts and styles of this server, and requests to it."""
HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}


DESCRIPTION = dict.fromkeys(("/openapi.json", "/spec"), ("openapi.json", "application/json"))
"""The description of the APIs; the second path is LibreTranslate's. ``python -m tests.describe_api`` writes it."""
FILES = {
    "/": ("index.html", "text/html"),
    "/docs": ("docs.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/logo.svg": ("logo.svg", "image/svg+xml"),
}


def routes(*, has_page: bool) -> Iterator[Route]:
    """What answers requests for the description and, if there is one, the page."""
    for path, (name, kind) in (DESCRIPTION | FILES if has_page else DESCRIPTION).items():
        content = (_FOLDER / name).read_bytes()
        headers = HEADERS if path in FILES else {}
        yield Route(path, Response(content, headers=headers, media_type=kind), methods=["GET"])
