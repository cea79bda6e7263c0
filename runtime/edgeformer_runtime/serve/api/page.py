"""What people look at: the page at ``/``, the models' cards, and ``/docs``, where requests are tried out.

Everything comes from this server; nothing asks another.
"""

from __future__ import annotations

import re
from html import escape
from importlib.resources import files
from string import Template

from markdown_it import MarkdownIt
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgeformer_runtime.bundle.plain_files import read_plain
from edgeformer_runtime.contract import CARD_FILE
from edgeformer_runtime.limits import MAX_MANIFEST_BYTES
from edgeformer_runtime.serve.context import context_of
from edgeformer_runtime.serve.errors import ApiError

PAGE = files("edgeformer_runtime.serve") / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: scripts and styles of this server, and requests to it."""
_EMPTY_HEAD = re.compile(r"<thead>\s*<tr>\s*(?:<th></th>\s*)+</tr>\s*</thead>\s*")
"""The head of a table without one, which Markdown does not have."""
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


def page_file(request: Request) -> Response:
    """``GET /`` and ``GET /docs``, and the files that they need."""
    name, kind = FILES[request.url.path]
    packed = {"Content-Encoding": "gzip"} if name.endswith(".gz") else {}  # as every browser accepts it
    return Response((PAGE / name).read_bytes(), media_type=kind, headers=HEADERS | packed)


def model_card(request: Request) -> Response:
    """``GET /models/NAME``: a bundle's card."""
    name = request.path_params["name"]
    models = {model.name: model for model in context_of(request).service.workspace.models()}
    if name not in models:
        raise ApiError(404, f"There is no model `{name}`.")
    text = read_plain(models[name].path / CARD_FILE, MAX_MANIFEST_BYTES).decode("utf-8", "replace")
    card = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    card = card.replace('style="text-align:', 'class="')  # the policy takes no styles; quotes in text are `&quot;`
    card = _EMPTY_HEAD.sub("", card)
    template = Template((PAGE / "card.html").read_text(encoding="utf-8"))
    return Response(template.substitute(name=escape(name), card=card), media_type="text/html", headers=HEADERS)


ROUTES = [
    *(Route(path, page_file, methods=["GET"]) for path in FILES),
    Route("/models/{name}", model_card, methods=["GET"]),
]
