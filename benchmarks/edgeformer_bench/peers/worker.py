"""The process of one peer: reads one request per line from standard input, and responds to each with one line.

Usage: ``python -m edgeformer_bench.peers.worker``, as :mod:`edgeformer_bench.peers.process` does.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from edgeformer_bench.peers.base import ENGINES, Peer, PeerSpec
from edgeformer_runtime.check.memory import peak_memory_mb
from edgeformer_runtime.errors import EdgeformerError

PACKAGES = {
    "ctranslate2": "edgeformer[bench]",
    "torch": "edgeformer[train]",
    "fxtranslate": "fxtranslate",
    "yaml": "edgeformer[import]",
}
"""Extra or distribution that installs each package."""


class Worker:
    """Each public method is a request."""

    def __init__(self) -> None:
        self._peer: Peer

    def open(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Open a peer; return its version."""
        parsed = msgspec.convert(spec, PeerSpec)
        self._peer = ENGINES[parsed.kind].load().open_peer(parsed)
        return {"version": self._peer.version}

    def translate(
        self, sources: list[list[int]], beam_size: int, length: int | None, seconds: float = 0.0
    ) -> dict[str, Any]:
        """Translate a batch at least once and repeatedly for ``seconds``; return the call times and the output. The
        times do not include the conversion of inputs and outputs."""
        call = self._peer.prepare(sources, beam_size=beam_size, length=length)
        timed = _timed(call.run, seconds)
        return {**timed, "output": call.ids(timed["output"])}

    def translate_texts(self, texts: list[str], beam_size: int, seconds: float = 0.0) -> dict[str, Any]:
        """Translate texts repeatedly; see :meth:`translate`."""
        return _timed(lambda: self._peer.translate_texts(texts, beam_size=beam_size), seconds)

    def memory(self) -> dict[str, Any]:
        """Return the peak resident memory of this process so far, in 10^6 bytes."""
        return {"peak_mb": peak_memory_mb()}


def _timed(call: Callable[[], Any], seconds: float) -> dict[str, Any]:
    clock, times, output = time.perf_counter, [], None
    end = clock() + seconds
    while output is None or clock() < end:
        begin = clock()
        output = call()
        times.append(clock() - begin)
    return {"seconds": times, "output": output}


def answer(worker: Worker, line: str) -> dict[str, Any]:
    """Return the response to a request."""
    try:
        name, arguments = msgspec.json.decode(line, type=tuple[str, dict[str, Any]])
        response: dict[str, Any] = getattr(worker, name)(**arguments)
    except EdgeformerError as error:
        return {"error": str(error)}
    except ModuleNotFoundError as error:
        package = PACKAGES.get((error.name or "").partition(".")[0], "edgeformer[bench]")
        return {"error": f"`{error.name}` is not installed: pip install '{package}'."}
    except Exception as error:  # engines may raise anything
        return {"error": f"{type(error).__name__}: {error}"}
    return response


def main() -> None:
    """Serve requests until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keep libraries' output out of the responses
    worker = Worker()
    for line in sys.stdin:
        answers.write(msgspec.json.encode(answer(worker, line)) + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
