"""The process of one peer: reads a request a line from standard input, answers with a line. Run with ``python -m``."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from edgeformer_bench.memory import peak_memory_mb
from edgeformer_bench.peers.base import MODULES, Peer, PeerError, Spec, TextPeer
from edgeformer_runtime.errors import EdgeformerError

PACKAGES = {"ctranslate2": "bench", "optimum": "optimum", "transformers": "optimum", "torch": "train"}
"""Extras that bring a package."""


class Worker:
    """Methods are requests."""

    def __init__(self) -> None:
        self._peer: Peer

    def open(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Open a peer; answers with its version and the seconds that opening took, imports included."""
        begin = time.perf_counter()
        wanted = msgspec.convert(spec, Spec)
        self._peer = importlib.import_module(MODULES[wanted.kind]).open_peer(wanted)
        return {"version": self._peer.version, "seconds": time.perf_counter() - begin}

    def translate(
        self, sources: list[list[int]], beam_size: int, length: int | None, seconds: float = 0.0
    ) -> dict[str, Any]:
        """Translate a batch again and again for so many seconds, at least once; times of the calls, and the output."""
        return _timed(lambda: self._peer.translate(sources, beam_size=beam_size, length=length), seconds)

    def translate_texts(self, texts: list[str], beam_size: int, seconds: float = 0.0) -> dict[str, Any]:
        """The same from text to text."""
        peer = self._peer
        if not isinstance(peer, TextPeer):
            raise PeerError(f"{peer.version} makes no batches by itself.")
        return _timed(lambda: peer.translate_texts(texts, beam_size=beam_size), seconds)

    def memory(self) -> dict[str, Any]:
        """Largest resident size of this process so far, in 10^6 bytes."""
        return {"peak_mb": peak_memory_mb()}

    def convert(self, kind: str, run: str, out: str, precision: str) -> dict[str, Any]:
        """Convert a run to a peer's own format."""
        importlib.import_module(MODULES[kind]).convert(Path(run), Path(out), precision)
        return {}


def _timed(call: Callable[[], Any], seconds: float) -> dict[str, Any]:
    clock, times, output = time.perf_counter, [], None
    end = clock() + seconds
    while output is None or clock() < end:
        begin = clock()
        output = call()
        times.append(clock() - begin)
    return {"seconds": times, "output": output}


def _answer(worker: Worker, line: str) -> dict[str, Any]:
    try:
        name, arguments = msgspec.json.decode(line, type=tuple[str, dict[str, Any]])
        answer: dict[str, Any] = getattr(worker, name)(**arguments)
    except EdgeformerError as error:
        return {"error": str(error)}
    except ModuleNotFoundError as error:
        extra = PACKAGES.get((error.name or "").partition(".")[0], "bench")
        return {"error": f"`{error.name}` is not installed: pip install 'edgeformer[{extra}]'."}
    except Exception as error:  # engines raise anything
        return {"error": f"{type(error).__name__}: {error}"}
    return answer


def main() -> None:
    """Serve until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    worker = Worker()
    for line in sys.stdin:
        answers.write(msgspec.json.encode(_answer(worker, line)) + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
