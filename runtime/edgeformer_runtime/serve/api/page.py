"""The page at ``/``: three files without any request to other servers."""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgeformer_runtime.serve.context import endpoint

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of the page: its own script and style, and requests to this server."""
FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}


@endpoint
async def page_file(request: Request) -> Response:
    """``GET /`` and the files that it needs."""
    name, kind = FILES[request.url.path]
    content = files("edgeformer_runtime.serve").joinpath("page", name).read_bytes()
    return Response(content, media_type=kind, headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"})


ROUTES = [Route(path, page_file, methods=["GET"]) for path in FILES]
