"""Limits on what a call may ask for: they are checked before anything is started or allocated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest

from edgeformer_runtime.attention import attention_weights
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.engines.onnx import OnnxSession
from edgeformer_runtime.errors import InputError, OptionError
from edgeformer_runtime.limits import MAX_DECODING_BYTES, MAX_TEXT_CHARACTERS
from edgeformer_runtime.search.forced_steps import score_batches
from edgeformer_runtime.search.loop import decode
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.search.session import IntArray
from edgeformer_runtime.translator import Translator
from tests.bundles import copy_of, edit_manifest
from tests.toy import ToySession, ToyState


def test_a_session_limits_threads_itself(small_bundle: Path) -> None:
    with pytest.raises(OptionError, match="`threads` must be at most 256"):
        OnnxSession(open_bundle(small_bundle), threads=10_000)


@dataclass
class LargeSession(ToySession):
    """A session whose rows have a size, and which knows the threads that use it."""

    row_bytes: int = 1
    threads: set[int] = field(default_factory=set)

    def start(self, source: IntArray, source_length: IntArray) -> ToyState:
        self.threads.add(get_ident())
        return super().start(source, source_length)

    def batch_bytes(self, sentences: int, rows: int, source_length: int, length: int) -> int:
        assert rows % sentences == 0
        return rows * length * source_length * self.row_bytes


@pytest.mark.parametrize("workers", [1, 2])
def test_a_sentence_that_does_not_fit_is_refused_before_any_work(workers: int) -> None:
    session, options = LargeSession(), DecodeOptions(beam_size=4, max_batch_tokens=1)
    sources = [(4,), (5, 6), (7,)]
    largest = 4 * session.max_target_length * 2
    session.row_bytes = MAX_DECODING_BYTES // largest
    assert len(decode(session, sources, options, workers=workers)) == 3
    session.rows.clear()
    session.row_bytes += 2**20
    with pytest.raises(OptionError, match=r"`beam_size` 4 may need 8\.\d GiB .* more than the limit of 8 GiB; reduce"):
        decode(session, sources, options, workers=workers)
    assert session.rows == []
    assert decode(session, sources, DecodeOptions(beam_size=4, max_batch_tokens=1, max_length=1), workers=workers)


def test_batches_that_do_not_fit_together_take_turns() -> None:
    session, options = LargeSession(), DecodeOptions(beam_size=4, max_batch_tokens=1)
    sources = [(4,), (5, 6), (7,)]
    together = decode(session, sources, options, workers=3)
    assert get_ident() not in session.threads
    session.threads.clear()
    session.row_bytes = MAX_DECODING_BYTES // (4 * session.max_target_length * 2)
    assert decode(session, sources, options, workers=3) == together
    assert session.threads == {get_ident()}


@pytest.mark.parametrize("beam_size", [1, 4])
def test_batches_that_do_not_fit_are_divided(beam_size: int) -> None:
    session, options = LargeSession(), DecodeOptions(beam_size=beam_size)
    sources = [(4,), (5, 6), (7,), (8, 9), (4, 6)]
    whole = decode(session, sources, options)
    assert max(session.rows) == 5 * beam_size
    session.rows.clear()
    session.row_bytes = MAX_DECODING_BYTES // (2 * beam_size * session.max_target_length * 2)
    assert decode(session, sources, options) == whole
    assert max(session.rows) == 2 * beam_size


def test_an_odd_beam_size_counts_with_its_surplus_row() -> None:
    session = LargeSession(row_multiple=2)
    session.row_bytes = MAX_DECODING_BYTES // (4 * session.max_target_length)
    assert decode(session, [(4,)], DecodeOptions(beam_size=4))
    session.row_bytes += 2**20
    with pytest.raises(OptionError, match="`beam_size` 3"):
        decode(session, [(4,)], DecodeOptions(beam_size=3))


@pytest.mark.parametrize(
    "ask",
    [
        lambda session, source, target: list(score_batches(session, [(source, target)])),
        lambda session, source, target: attention_weights(session, [source], [target]),
    ],
)
def test_given_targets_that_do_not_fit_are_refused_before_any_work(ask: Callable[..., object]) -> None:
    session = LargeSession()
    source, target = [4, 5, 2], [4, 4, 2]
    session.row_bytes = MAX_DECODING_BYTES // 8
    with pytest.raises(OptionError, match=r"of 3 source and 3 target tokens may need more .* the limit of 8 GiB"):
        ask(session, source, target)
    assert session.rows == []
    assert not session.threads
    session.row_bytes = MAX_DECODING_BYTES // 9
    assert next(score_batches(session, [(source, target)]))


def test_a_state_table_that_would_not_fit_is_refused(small_bundle: Path, tmp_path: Path) -> None:
    """The manifest's default is within its limit, but not together with the model's state."""

    def change(tree: dict[str, Any]) -> None:
        tree["generation"]["beam_size"] = 1024
        tree["max_target_length"] = 2**16

    translator = Translator.open(edit_manifest(copy_of(small_bundle, tmp_path), change), threads=1)
    with pytest.raises(OptionError, match=r"`beam_size` 1024 may need [\d.]+ GiB"):
        translator.translate(["The dog runs."])


def test_a_long_text_is_refused(translator: Translator) -> None:
    with pytest.raises(InputError, match="Text 2 has 1,048,577 characters, but may have at most 1,048,576; split it"):
        translator.translate(["a", "a" * (MAX_TEXT_CHARACTERS + 1)])
