"""The kernels of edgeformer: small Transformers in 8-bit integers, without ONNX Runtime.

A thin layer over the C interface, ``edgeformer_kernels.h``. Arrays are numpy's; the library is without state of its
own, and releases the interpreter's lock while it computes.
"""

from __future__ import annotations

import ctypes
import os
import sys
from array import array
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__version__ = "0.1.0"
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]

_NAME = {"win32": "edgeformer_kernels.dll", "darwin": "libedgeformer_kernels.dylib"}
_PATH = Path(__file__).with_name(_NAME.get(sys.platform, "libedgeformer_kernels.so"))
_Stopped = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)
_Ended = ctypes.CFUNCTYPE(None, ctypes.c_int64)


class KernelError(Exception):
    """The kernels refuse a model or an argument; the message says why."""


class _Options(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("beams", "hypotheses", "places")),
        *((name, ctypes.c_int64) for name in ("shrinks", "stops_early", "counts_end")),
        *((name, ctypes.c_int64) for name in ("follows_prefix", "wants_scores")),
        ("length_penalty", ctypes.c_double),
        *((name, ctypes.c_int64) for name in ("given_length", "end")),
        ("suppressed", ctypes.c_void_p),
        ("suppressed_count", ctypes.c_int64),
        ("forbidden", ctypes.c_void_p),
        ("forbidden_count", ctypes.c_int64),
        ("loop_repeats", ctypes.c_int64),
        ("loop_given", ctypes.c_int64),
    ]


class _Results(ctypes.Structure):
    _fields_ = [
        ("room", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("token", "token_log_probability", "count", "score", "finished")),
    ]


class SearchOptions(NamedTuple):
    """How to search; see ``edgeformer_options`` of the C interface."""

    beams: int
    hypotheses: int
    places: int
    shrinks: bool
    stops_early: bool
    counts_end: bool
    follows_prefix: bool
    wants_scores: bool
    length_penalty: float
    given_length: int
    end: int
    suppressed: Sequence[int] = ()
    forbidden: Sequence[int] = ()
    loop_repeats: int = 0
    loop_given: int = 0


class Found(NamedTuple):
    """A hypothesis."""

    ids: list[int]
    """Its tokens, without the end token."""
    score: float
    finished: bool
    """Whether it ended with the end token."""
    token_scores: list[float]
    """Log-probability of each token, that of the end token included."""


def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(_PATH))
    except OSError as error:
        raise ImportError(f"The compiled library of edgeformer-kernels cannot be loaded: {error}") from error
    pointer, whole, text = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p
    signatures: dict[str, tuple[type | None, list[type]]] = {
        "levels": (text, []),
        "open": (pointer, [pointer, whole, pointer, whole, text, text, whole]),
        "close": (None, [pointer]),
        "start": (pointer, [pointer, pointer, pointer, whole]),
        "end": (None, [pointer]),
        "size": (whole, [pointer]),
        "step": (ctypes.c_int, [pointer, pointer, pointer, whole]),
        "attend": (ctypes.c_int, [pointer, pointer, pointer, whole]),
        "select": (ctypes.c_int, [pointer, pointer, whole]),
        "restrict": (ctypes.c_int, [pointer, pointer, whole, pointer]),
        "search": (ctypes.c_int, [pointer, pointer, whole, pointer, pointer, pointer, pointer, pointer]),
    }
    for name, (result, arguments) in signatures.items():
        try:
            function = getattr(library, f"edgeformer_{name}")
        except AttributeError:
            problem = f"`{_PATH}` was compiled from another version"
            raise ImportError(f"The compiled library of edgeformer-kernels cannot be loaded: {problem}") from None
        function.restype, function.argtypes = result, arguments
    return library


_LIBRARY = _library()
LEVELS: tuple[str, ...] = tuple(_LIBRARY.edgeformer_levels().decode().split())
"""Instruction sets that this processor has, best first."""


class Model:
    """An opened model; thread-safe.

    Args:
        weights: the bundle's weights, ``(bytes,)``, uint8, aligned to 64 bytes, such as a memory map.
        plan: the numbers of the bundle's plan.
        level: one of :data:`LEVELS`; by default that of the environment variable ``EDGEFORMER_KERNELS_LEVEL``, else the
            first.

    Raises:
        KernelError: the plan is damaged.
        ValueError: the processor lacks the instructions, or the library was compiled without them.
    """

    def __init__(self, weights: NDArray[np.uint8], plan: Sequence[float], level: str = "") -> None:
        self._weights, self._handle = weights, None
        self.level = level or os.environ.get("EDGEFORMER_KERNELS_LEVEL") or LEVELS[0]
        """The instruction set."""
        if self.level not in LEVELS:
            raise ValueError(f"The kernels have no instruction set `{self.level}` here, but {', '.join(LEVELS)}.")
        numbers, problem = np.array(plan, np.float64), ctypes.create_string_buffer(256)
        self._handle = _LIBRARY.edgeformer_open(
            weights.ctypes.data, weights.nbytes, numbers.ctypes.data, len(numbers), self.level.encode(), problem, 256
        )
        if not self._handle:
            raise KernelError(problem.value.decode())

    def start(self, sources: Sequence[Sequence[int]]) -> Batch:
        """Encode sentences.

        Raises:
            KernelError: a token or a length is out of range, or memory does not suffice.
        """
        return Batch(self, sources)

    def __del__(self) -> None:
        if self._handle:
            _LIBRARY.edgeformer_close(self._handle)


class Batch:
    """Sentences that are translated together; for one thread at a time."""

    def __init__(self, model: Model, sources: Sequence[Sequence[int]]) -> None:
        self._model, self._handle = model, None
        self.rows = len(sources)
        """R, the number of rows."""
        self.longest = max(map(len, sources), default=0)
        """S, the number of tokens of the longest source."""
        tokens, lengths = array("q", chain.from_iterable(sources)), array("q", map(len, sources))
        self._handle = _checked(
            _LIBRARY.edgeformer_start(model._handle, _address(tokens), _address(lengths), len(sources))
        )

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(_LIBRARY.edgeformer_size(self._handle))

    def step(self, token: IntArray, logits: FloatArray) -> None:
        """Advance every row by one token, ``(R,)``, and write logits ``(R, V)``, or ``(R, C)`` if restricted."""
        _checked(_LIBRARY.edgeformer_step(self._handle, token.ctypes.data, logits.ctypes.data, logits.size))

    def attend(self, token: IntArray, weights: FloatArray) -> None:
        """Advance every row by one token, ``(R,)``, and write what it attends to: the weights of the last layer's
        cross-attention, averaged over its heads, ``(R, S)``; zeros after the source of a row."""
        _checked(_LIBRARY.edgeformer_attend(self._handle, token.ctypes.data, weights.ctypes.data, weights.size))

    def select(self, rows: IntArray) -> None:
        """Continue with other rows: for each, the row that it continues, ``(R',)``."""
        _checked(_LIBRARY.edgeformer_select(self._handle, rows.ctypes.data, len(rows)))
        self.rows = len(rows)

    def restrict(self, listed: IntArray, usable: NDArray[np.bool_]) -> None:
        """Restrict logits to some tokens, in ascending order, ``(C,)``, of which each sentence may use some,
        ``(N, C)``; the others have logits of -1e30."""
        usable = np.ascontiguousarray(usable)
        _checked(_LIBRARY.edgeformer_restrict(self._handle, listed.ctypes.data, len(listed), usable.ctypes.data))

    def search(
        self,
        begin: Sequence[Sequence[int]],
        most: Sequence[int],
        initial: Sequence[float],
        options: SearchOptions,
        stopped: Callable[[int], bool] | None = None,
        ended: Callable[[int, list[Found]], object] | None = None,
    ) -> list[list[Found]]:
        """Search to the end of every sentence.

        Args:
            begin: tokens that the target of each sentence begins with, the start token first; equally many for all.
            most: tokens that each sentence may have after them, the end token included.
            initial: log-probability of each sentence before the search.
            options: how to search.
            stopped: called for each sentence after every step; says whether to give it up.
            ended: called with each sentence and its hypotheses as soon as they are complete. What it or ``stopped``
                raises is raised again after the search, which ends at the next step if there is ``stopped``.

        Returns:
            For each sentence, its hypotheses, best first; an empty list if it was given up.

        Raises:
            KernelError: an argument is out of range, or memory does not suffice.
            FloatingPointError: no token has a finite log-probability.
        """
        suppressed, forbidden = array("q", sorted(options.suppressed)), array("q", sorted(options.forbidden))
        lists = _address(suppressed), len(suppressed), _address(forbidden), len(forbidden)
        given = _Options(*options[:11], *lists, options.loop_repeats, options.loop_given)
        results = _Hypotheses(len(begin), options.hypotheses, max(most))
        tokens, most, initial = array("q", chain.from_iterable(begin)), array("q", most), array("d", initial)
        raised: list[BaseException] = []
        outcome = _LIBRARY.edgeformer_search(
            self._handle,
            _address(tokens),
            len(begin[0]),
            _address(most),
            _address(initial),
            ctypes.byref(given),
            _Stopped(_safe(stopped, raised)) if stopped else None,
            _Ended(_safe(lambda sentence: ended(sentence, results.of(sentence)), raised)) if ended else None,
            ctypes.byref(results.pointers),
        )
        if raised:
            raise raised[0]
        if outcome == 2:
            raise FloatingPointError("no token has a finite log-probability")
        _checked(outcome)
        return [results.of(sentence) for sentence in range(len(begin))]

    def __del__(self) -> None:
        if self._handle:
            _LIBRARY.edgeformer_end(self._handle)


class _Hypotheses:
    """Room for the hypotheses of a search, which the library fills; see ``edgeformer_results`` of the C interface.

    Args:
        sentences: number of sentences.
        hypotheses: number of hypotheses of each.
        room: tokens of the longest one.
    """

    def __init__(self, sentences: int, hypotheses: int, room: int) -> None:
        self._ranks, self._room = hypotheses, room
        count = sentences * hypotheses
        self._token, self._each = array("q", bytes(8 * count * room)), array("d", bytes(8 * count * room))
        self._length, self._score = array("q", bytes(8 * count)), array("d", bytes(8 * count))
        self._finished = array("B", bytes(count))
        numbers = self._token, self._each, self._length, self._score, self._finished
        self.pointers = _Results(room, *(_address(each) for each in numbers))

    def of(self, sentence: int) -> list[Found]:
        """The hypotheses of a sentence, best first."""
        found, first = [], sentence * self._ranks
        for place in range(first, first + self._ranks):
            size, is_finished, start = self._length[place], self._finished[place], place * self._room
            if size < 0:
                break
            ids, each = self._token[start : start + size - is_finished], self._each[start : start + size]
            found.append(Found(ids.tolist(), self._score[place], bool(is_finished), each.tolist()))
        return found


def _address(numbers: array[int] | array[float]) -> int:
    return numbers.buffer_info()[0]


def _safe(called: Callable[[int], object], raised: list[BaseException]) -> Callable[[int], object]:
    """A function that C++ may call: it does not raise, but keeps what is raised; from then on, it returns true."""

    def call(sentence: int) -> object:
        if not raised:
            try:
                return called(sentence)
            except BaseException as error:
                raised.append(error)
        return True

    return call


def _checked(result: int | None) -> int:
    if not result:
        raise KernelError("an argument is out of range, or there is not enough memory")
    return result
