"""The server that people write first: CTranslate2 behind starlette, a request at a time per thread.

Usage: ``python -m edgeformer_bench.load.plain_server MODEL``
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from edgeformer_bench.peers.ctranslate2 import CTranslate2Peer


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--threads", type=int, default=1)
@click.option("--beam", type=int, default=4)
def main(model: Path, threads: int, beam: int) -> None:
    """Serve a model that was converted to CTranslate2's format, on a free port."""
    peer, pool = CTranslate2Peer(model, "int8", threads), ThreadPoolExecutor(threads)

    async def translate(request: Request) -> JSONResponse:
        text = (await request.json())["q"]
        work = asyncio.get_running_loop().run_in_executor(pool, lambda: peer.translate_texts([text], beam_size=beam))
        return JSONResponse({"translatedText": (await work)[0]})

    async def ready(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ready"})

    app = Starlette(routes=[Route("/translate", translate, methods=["POST"]), Route("/ready", ready)])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"Serving at http://127.0.0.1:{listener.getsockname()[1]}")
        server = uvicorn.Server(uvicorn.Config(app, access_log=False, log_level="warning"))
        server.run(sockets=[listener])


if __name__ == "__main__":
    main()
