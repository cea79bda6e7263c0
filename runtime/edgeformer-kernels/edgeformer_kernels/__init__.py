"""The kernels of edgeformer: small Transformers in 8-bit integers, without ONNX Runtime.

A thin layer over the C interface, ``edgeformer_kernels.h``. Arrays are numpy's; the library is without state of its
own, and releases the interpreter's lock while it computes.
"""

from __future__ import annotations

import ctypes
import os
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

__version__ = "0.1.0"
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]

_VERSION = 2
"""``EDGEFORMER_VERSION`` of the C interface that this file calls."""
_NAME = {"win32": "edgeformer_kernels.dll", "darwin": "libedgeformer_kernels.dylib"}
_PATH = Path(__file__).with_name(_NAME.get(sys.platform, "libedgeformer_kernels.so"))
_Begun = ctypes.CFUNCTYPE(None)
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


class KernelHypothesis(NamedTuple):
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
        "version": (whole, []),
        "levels": (text, []),
        "open": (pointer, [pointer, whole, pointer, whole, text, text, whole]),
        "close": (None, [pointer]),
        "batch_bytes": (ctypes.c_double, [pointer, whole, whole, whole, whole]),
        "start": (pointer, [pointer, pointer, pointer, whole, text, whole]),
        "end": (None, [pointer]),
        "problem": (text, [pointer]),
        "size": (whole, [pointer]),
        "step": (ctypes.c_int, [pointer, pointer, pointer, whole]),
        "attend": (ctypes.c_int, [pointer, pointer, pointer, whole]),
        "select": (ctypes.c_int, [pointer, pointer, whole]),
        "restrict": (ctypes.c_int, [pointer, pointer, whole, pointer]),
        "search": (ctypes.c_int, [pointer, pointer, whole, *[pointer] * 7]),
    }
    try:
        for name, (result, arguments) in signatures.items():
            function = getattr(library, f"edgeformer_{name}")
            function.restype, function.argtypes = result, arguments
        version = library.edgeformer_version()
    except AttributeError:
        version = None
    if version != _VERSION:
        problem = f"`{_PATH}` was compiled from another version; compile or install edgeformer-kernels again"
        raise ImportError(f"The compiled library of edgeformer-kernels cannot be loaded: {problem}")
    return library


_LIBRARY = _library()
LEVELS: tuple[str, ...] = tuple(_LIBRARY.edgeformer_levels().decode().split())
"""Instruction sets that this processor has, best first."""


class _Handle:
    """Something of the library that one object owns, which frees it."""

    _handle: int | None = None

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"A {type(self).__name__} of the kernels cannot be copied or pickled; open the model again.")


class Model(_Handle):
    """An opened model; thread-safe.

    Args:
        weights: the bundle's weights, ``(bytes,)``, uint8, aligned to 64 bytes, such as a memory map.
        plan: the numbers of the bundle's plan.
        level: one of :data:`LEVELS`; by default that of the environment variable ``EDGEFORMER_KERNELS_LEVEL``, else the
            first.

    Raises:
        KernelError: the plan is damaged, or memory does not suffice.
        ValueError: the processor lacks the instructions, or the library was compiled without them.
    """

    def __init__(self, weights: NDArray[np.uint8], plan: Sequence[float], level: str = "") -> None:
        self._weights = weights
        self.level = level or os.environ.get("EDGEFORMER_KERNELS_LEVEL") or LEVELS[0]
        """The instruction set."""
        if self.level not in LEVELS:
            raise ValueError(f"The kernels have no instruction set `{self.level}` here, but {', '.join(LEVELS)}.")
        numbers, content = _numbers("d", plan), _pointer("weights", weights, np.uint8, weights.shape[:1])
        level_name = self.level.encode()
        self._handle = _opened(
            _LIBRARY.edgeformer_open, content, weights.nbytes, _address(numbers), len(numbers), level_name
        )

    def batch_bytes(self, sentences: int, rows: int, source_length: int, steps: int) -> float:
        """Return the most bytes that a batch of N sentences and R rows takes until it ends, a result of a search for
        each row included; infinity if the model cannot have such a batch."""
        sizes = _numbers("q", (sentences, rows, source_length, steps))
        return float(_LIBRARY.edgeformer_batch_bytes(self._handle, *sizes))

    def start(self, sources: Sequence[Sequence[int]]) -> Batch:
        """Encode sentences.

        Raises:
            KernelError: a token or a length is out of range, or memory does not suffice.
        """
        return Batch(self, sources)

    def __del__(self) -> None:
        if self._handle:
            _LIBRARY.edgeformer_close(self._handle)


class Batch(_Handle):
    """Sentences that are translated together; for one thread at a time.

    Methods raise :class:`KernelError` for an argument that is out of range or of another type or shape, and where
    memory does not suffice.
    """

    def __init__(self, model: Model, sources: Sequence[Sequence[int]]) -> None:
        self._model = model
        tokens, lengths = _numbers("q", chain.from_iterable(sources)), _numbers("q", map(len, sources))
        self.rows = self._sentences = len(lengths)
        """R, the number of rows."""
        self.longest = max(lengths, default=0)
        """S, the number of tokens of the longest source."""
        arguments = model._handle, _address(tokens), _address(lengths), self.rows
        self._handle = _opened(_LIBRARY.edgeformer_start, *arguments)

    @property
    def nbytes(self) -> int:
        """Bytes that it holds now, those that an earlier batch left to it included."""
        return int(_LIBRARY.edgeformer_size(self._handle))

    def step(self, token: IntArray, logits: FloatArray) -> None:
        """Advance every row by one token, ``(R,)``, and write logits ``(R, V)``, or ``(R, C)`` if restricted."""
        tokens = _pointer("token", token, np.int64, (self.rows,))
        target = _pointer("logits", logits, np.float32, (self.rows, *logits.shape[1:]), is_result=True)
        self._check(_LIBRARY.edgeformer_step(self._handle, tokens, target, logits.size))

    def attend(self, token: IntArray, weights: FloatArray) -> None:
        """Advance every row by one token, ``(R,)``, and write what it attends to: the weights of the last layer's
        cross-attention, averaged over its heads, ``(R, S)``; zeros after the source of a row."""
        tokens = _pointer("token", token, np.int64, (self.rows,))
        target = _pointer("weights", weights, np.float32, (self.rows, self.longest), is_result=True)
        self._check(_LIBRARY.edgeformer_attend(self._handle, tokens, target, weights.size))

    def select(self, rows: IntArray) -> None:
        """Continue with other rows: for each, the row that it continues, ``(R',)``."""
        chosen = _pointer("rows", rows, np.int64, rows.shape[:1])
        self._check(_LIBRARY.edgeformer_select(self._handle, chosen, len(rows)))
        self.rows = len(rows)

    def restrict(self, listed: IntArray, usable: NDArray[np.bool_]) -> None:
        """Restrict logits to some tokens, in ascending order, ``(C,)``, of which each sentence may use some,
        ``(N, C)``; the others have logits of negative infinity."""
        usable = np.ascontiguousarray(usable)
        tokens = _pointer("listed", listed, np.int64, listed.shape[:1])
        flags = _pointer("usable", usable, np.bool_, (self._sentences, len(listed)))
        self._check(_LIBRARY.edgeformer_restrict(self._handle, tokens, len(listed), flags))

    def search(
        self,
        begin: Sequence[Sequence[int]],
        most: Sequence[int],
        initial: Sequence[float],
        options: SearchOptions,
        stopped: Callable[[int], bool] | None = None,
        ended: Callable[[int, list[KernelHypothesis]], object] | None = None,
        begun: Callable[[], object] | None = None,
    ) -> list[list[KernelHypothesis]]:
        """Search to the end of every sentence.

        Args:
            begin: tokens that the target of each sentence begins with, the start token first; equally many for all.
            most: tokens that each sentence may have after them, the end token included.
            initial: log-probability of each sentence before the search.
            options: how to search.
            stopped: called for each sentence after every step; says whether to give it up.
            ended: called with each sentence and its hypotheses as soon as they are complete. What it or ``stopped``
                raises is raised again after the search, which ends at the next step if there is ``stopped``.
            begun: called after the first step.

        Returns:
            For each sentence, its hypotheses, best first; an empty list if it was given up.

        Raises:
            KernelError: an argument is out of range, or memory does not suffice.
            FloatingPointError: no token has a finite log-probability.
        """
        if {len(begin), len(most), len(initial)} != {self.rows} or len(set(map(len, begin))) != 1:
            raise KernelError(
                f"`begin`, `most` and `initial` must have {self.rows} entries, those of `begin` equally long"
            )
        suppressed, forbidden = (_numbers("q", sorted(ids)) for ids in (options.suppressed, options.forbidden))
        lists = _address(suppressed), len(suppressed), _address(forbidden), len(forbidden)
        _numbers("q", (*options[:8], *options[9:11], *options[13:]))  # the structure would cut off larger ones
        _numbers("d", options[8:9])
        given = _Options(*options[:11], *lists, options.loop_repeats, options.loop_given)
        tokens, lengths = _numbers("q", chain.from_iterable(begin)), _numbers("q", most)
        probabilities = _numbers("d", initial)
        results = _Hypotheses(len(begin), options.hypotheses, max(lengths))
        raised: list[BaseException] = []
        outcome = _LIBRARY.edgeformer_search(
            self._handle,
            _address(tokens),
            len(begin[0]),
            _address(lengths),
            _address(probabilities),
            ctypes.byref(given),
            _Begun(_safe(begun, raised)) if begun else None,
            _Stopped(_safe(stopped, raised)) if stopped else None,
            _Ended(_safe(lambda sentence: ended(sentence, results.of(sentence)), raised)) if ended else None,
            ctypes.byref(results.pointers),
        )
        if raised:
            raise raised[0]
        if outcome == 2:
            raise FloatingPointError("no token has a finite log-probability")
        self._check(outcome)
        return [results.of(sentence) for sentence in range(len(begin))]

    def _check(self, result: int) -> None:
        if not result:
            raise KernelError(_LIBRARY.edgeformer_problem(self._handle).decode())

    def __del__(self) -> None:
        if self._handle:
            _LIBRARY.edgeformer_end(self._handle)


class _Hypotheses:
    """Room for the hypotheses of a search, which the library fills; see ``edgeformer_results`` of the C interface.

    Args:
        sentences: number of sentences.
        hypotheses: number of hypotheses of each.
        room: tokens of the longest one.

    Raises:
        KernelError: there cannot be as many, or memory does not suffice.
    """

    def __init__(self, sentences: int, hypotheses: int, room: int) -> None:
        self._ranks, self._room = hypotheses, room
        count = sentences * hypotheses
        try:
            self._token, self._each = array("q", bytes(8 * count * room)), array("d", bytes(8 * count * room))
            self._length, self._score = array("q", bytes(8 * count)), array("d", bytes(8 * count))
            self._finished = array("B", bytes(count))
        except (MemoryError, OverflowError, ValueError):
            raise KernelError(f"there is no room for {hypotheses} hypotheses of {room} tokens") from None
        numbers = self._token, self._each, self._length, self._score, self._finished
        self.pointers = _Results(room, *(_address(each) for each in numbers))

    def of(self, sentence: int) -> list[KernelHypothesis]:
        """The hypotheses of a sentence, best first."""
        found, first = [], sentence * self._ranks
        for place in range(first, first + self._ranks):
            size, is_finished, start = self._length[place], self._finished[place], place * self._room
            if size < 0:
                break
            ids, each = self._token[start : start + size - is_finished], self._each[start : start + size]
            found.append(KernelHypothesis(ids.tolist(), self._score[place], bool(is_finished), each.tolist()))
        return found


def _opened(create: Callable[..., int | None], *arguments: object) -> int:
    """What a function of the library creates, or the error that it writes down."""
    problem = ctypes.create_string_buffer(256)
    if handle := create(*arguments, problem, len(problem)):
        return handle
    raise KernelError(problem.value.decode())


def _numbers(kind: Literal["q", "d"], values: Iterable[float]) -> array[Any]:
    """An array of whole numbers of 64 bits, or of doubles."""
    try:
        return array(kind, values)
    except (TypeError, OverflowError) as error:
        raise KernelError(f"a number is too large, or is not one ({error})") from None


def _address(numbers: array[Any]) -> int:
    return numbers.buffer_info()[0]


def _pointer(
    name: str, values: NDArray[Any], dtype: type[np.generic], shape: tuple[int, ...], *, is_result: bool = False
) -> int:
    """Where an array is, if it is as the library expects it."""
    flags = values.flags
    is_usable = flags.c_contiguous and flags.aligned and (flags.writeable or not is_result)
    if values.dtype != dtype or values.shape != shape or not is_usable:
        wanted = f"a contiguous array of {np.dtype(dtype)} with shape {shape}"
        raise KernelError(f"`{name}` must be {wanted}, but is one of {values.dtype} with shape {values.shape}")
    return values.ctypes.data


def _safe(called: Callable[..., object], raised: list[BaseException]) -> Callable[..., object]:
    """A function that C++ may call: it does not raise, but keeps what is raised; from then on, it returns true."""

    def call(*arguments: int) -> object:
        if not raised:
            try:
                return called(*arguments)
            except BaseException as error:
                raised.append(error)
        return True

    return call
