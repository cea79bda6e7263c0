"""What people look at: the page at ``/``, the models' cards, and ``/docs``, where requests are tried out.

Everything comes from this server; nothing asks another.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files

from markdown_it import MarkdownIt
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgeformer_runtime.bundle.plain_files import read_plain
from edgeformer_runtime.contract import CARD_FILE
from edgeformer_runtime.limits import MAX_MANIFEST_BYTES
from edgeformer_runtime.serve.context import context_of, endpoint
from edgeformer_runtime.serve.errors import ApiError

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: scripts and styles of this server, and requests to it."""
HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/logo.svg": ("logo.svg", "image/svg+xml"),
    "/docs": ("docs.html", "text/html"),
    "/docs.js": ("docs.js", "text/javascript"),
    "/swagger-ui.js": ("swagger-ui/swagger-ui-bundle.js.gz", "text/javascript"),
    "/swagger-ui.css": ("swagger-ui/swagger-ui.css.gz", "text/css"),
}
CARD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name}</title>
<link rel="icon" href="../logo.svg">
<link rel="stylesheet" href="../page.css">
</head>
<body>
<header><a href="..">← Translate</a></header>
<main class="card">{card}</main>
</body>
</html>
"""


@endpoint
async def page_file(request: Request) -> Response:
    """``GET /`` and ``GET /docs``, and the files that they need."""
    name, kind = FILES[request.url.path]
    content = files("edgeformer_runtime.serve").joinpath("page", name).read_bytes()
    packed = {"Content-Encoding": "gzip"} if name.endswith(".gz") else {}  # as every browser accepts it
    return Response(content, media_type=kind, headers=HEADERS | packed)


@endpoint
async def model_card(request: Request) -> Response:
    """``GET /models/NAME``: a bundle's card."""
    name = request.path_params["name"]
    models = {model.name: model for model in context_of(request).service.workspace.models()}
    if name not in models:
        raise ApiError(404, f"There is no model `{name}`.")
    text = read_plain(models[name].path / CARD_FILE, MAX_MANIFEST_BYTES).decode("utf-8", "replace")
    card = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    return Response(CARD.format(name=escape(name), card=card), media_type="text/html", headers=HEADERS)


ROUTES = [
    *(Route(path, page_file, methods=["GET"]) for path in FILES),
    Route("/models/{name}", model_card, methods=["GET"]),
]
