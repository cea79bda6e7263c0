"""Bundles whose files are damaged: refused in one line, or used, in little memory and time. Their output may differ
only if the hashes are those of the damaged files and no signature is required.

``CASES=10000`` tries as many for each file. The last case is in the file ``case`` of the test's temporary folder, also
if it ended the process.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeformer_runtime.attention import Attention
from edgeformer_runtime.bundle.manifest import decode_manifest
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.bundle.signature import sign_manifest
from edgeformer_runtime.check.golden import check_golden, read_golden
from edgeformer_runtime.contract import GOLDEN_FILE, MANIFEST_FILE, MANIFEST_HASH_FILE, SIGNATURE_FILE
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.limits import MIB
from edgeformer_runtime.precision import Precision
from edgeformer_runtime.translation import Translation
from edgeformer_runtime.translator import Translator
from tests.amounts import cases, examples
from tests.bundles import copy_of, rehash, write_manifest
from tests.robustness import mutations
from tests.robustness.outcomes import Outcome, Result, is_line, measured
from tests.store import COMMITTED, CPU_PRECISIONS

if not sys.platform.startswith("linux"):
    pytest.skip("limits memory as only Linux can", allow_module_level=True)

FILES = {
    "manifest": MANIFEST_FILE,
    "encoder": "encoder.onnx",
    "decoder": "decoder.onnx",
    "attention": "attention.onnx",
    "weights": "weights.bin",
    "tokenizer": "tokenizer.json",
    "golden": "golden.json",
    "signature": SIGNATURE_FILE,
    "signed": None,
}
"""Attacks by name, and the file that each damages; ``signed`` damages any file of a signed bundle. The bundles of
``signature`` and ``signed`` are opened with the signer's key."""
MUTATIONS = {".json": mutations.random_json, ".onnx": mutations.random_graph, ".bin": mutations.random_weights}
MEMORY, SECONDS = 256, 20.0
"""MiB that memory may rise by, and seconds of processor time that a case may take."""
VERIFIED_EVERY = 16
"""One case in so many is also verified, as ``edgeformer verify`` does; those of golden examples all are."""


@dataclass(frozen=True)
class Case:
    """One damaged bundle. The same attack and number make the same bundle."""

    attack: str
    """A key of :data:`FILES`."""
    number: int

    @property
    def precision(self) -> Precision:
        """Which of the committed bundles is damaged."""
        return CPU_PRECISIONS[self.number % len(CPU_PRECISIONS)]

    @property
    def rehashed(self) -> bool:
        """Whether the hashes are those of the damaged files: every other round through the bundles."""
        return self.number // len(CPU_PRECISIONS) % 2 == 0

    @property
    def file(self) -> str:
        """Name of the damaged file."""
        random = Random(f"{self.attack}:{self.number}:file")
        return FILES[self.attack] or random.choice([name for name in FILES.values() if name])

    def damaged(self, data: bytes) -> bytes:
        """Content of the file after the attack."""
        random = Random(f"{self.attack}:{self.number}")
        return random.choice((mutations.random_edits, MUTATIONS[Path(self.file).suffix]))(random, data)

    @contextmanager
    def bundle(self, bundles: Path) -> Iterator[Path]:
        """The bundle, damaged until the end of the block."""
        path = bundles / self.precision
        kept = {name: (path / name).read_bytes() for name in (self.file, MANIFEST_FILE, MANIFEST_HASH_FILE)}
        data = self.damaged(kept[self.file])
        try:
            (path / self.file).write_bytes(data)
            if self.rehashed and self.file == MANIFEST_FILE:
                write_manifest(path, data)
            elif self.rehashed and self.file in json.loads(kept[MANIFEST_FILE])["files"]:
                rehash(path)
            yield path
        finally:
            for name, content in kept.items():
                (path / name).write_bytes(content)


class Use(NamedTuple):
    """What a bundle computed."""

    translations: list[Translation]
    attention: list[Attention]
    problems: tuple[str, ...] = ()
    """What ``edgeformer verify`` reports, if it was asked."""

    def same(self, other: Use) -> bool:
        """Whether a user would see no difference."""
        return [_seen(translation) for translation in self.translations] == [
            _seen(translation) for translation in other.translations
        ] and all(
            mine.weights.shape == theirs.weights.shape and np.allclose(mine.weights, theirs.weights, atol=1e-5)
            for mine, theirs in zip(self.attention, other.attention, strict=True)
        )


def _seen(translation: Translation) -> tuple[object, ...]:
    best = translation.best
    return translation.source.ids, best.ids, best.text, best.tokens


def use(path: Path, keys: Sequence[bytes] | None, *, verify: bool = False) -> Use:
    """Open a bundle, translate a little, look at the attention, and verify: all that can reach a damaged file."""
    with Translator.open(path, threads=1, trusted_keys=keys) as translator:
        translations = translator.translate(("The old dog turns 2 times.", "a b"), max_length=4)
        attention = translator.attention(translations)
        return Use(translations, attention, check_golden(translator).problems if verify else ())


def judged(case: Case, found: Use, keys: Sequence[bytes] | None, expected: Use) -> Result:
    """Compare what a damaged bundle computed with what the undamaged one did."""
    if unclear := [problem for problem in found.problems if not is_line(problem)]:
        return Result(Outcome.ESCAPED, f"a problem that is not one short line of text: {unclear[0]!r}")
    if case.attack == "golden" and found.problems:
        return Result(Outcome.REFUSED, found.problems[0])
    if found.same(expected):
        return Result(Outcome.SAME)
    return Result(Outcome.OTHER if case.rehashed and keys is None and case.attack != "golden" else Outcome.FORGED)


def attempt(case: Case, path: Path, keys: Sequence[bytes] | None, expected: Use) -> Result:
    """Use a damaged bundle."""
    found = use(path, keys, verify=case.attack == "golden" or case.number % VERIFIED_EVERY == 0)
    return judged(case, found, keys, expected)


def signed(bundles: Path) -> list[bytes]:
    """Sign bundles; returns the keys to open them with."""
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    private = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for path in bundles.iterdir():
        sign_manifest(path, pem)
    return [
        private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    ]


@pytest.mark.parametrize("attack", FILES)
def test_damaged_bundles_are_refused_or_used(
    attack: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    bundles, count, outcomes = tmp_path / "bundles", cases(16, 300), Counter[str]()
    for precision in CPU_PRECISIONS:
        shutil.copytree(COMMITTED / precision, bundles / precision)
    keys = signed(bundles) if attack in {"signature", "signed"} else None
    expected = {precision: use(bundles / precision, keys) for precision in CPU_PRECISIONS}
    for number in range(count):
        case, begin = Case(attack, number), time.process_time()
        (tmp_path / "case").write_text(str(case), encoding="utf-8")
        with case.bundle(bundles) as path:
            result = measured(partial(attempt, case, path, keys, expected[case.precision]), MEMORY)
        assert not result.outcome.is_defect, f"{case}: {result.outcome.value}; {result.detail}"
        assert time.process_time() - begin < SECONDS, case
        outcomes[result.outcome.value] += 1
    record_property("outcomes", dict(outcomes))
    assert outcomes[Outcome.REFUSED.value] > 0.4 * count  # half have wrong hashes, but for changes that change nothing
    if count >= 100 and attack != "golden":  # of which hardly a change changes nothing
        assert outcomes[Outcome.SAME.value] > count / 200


@examples(25, 200)
@given(data=st.binary(max_size=200))
def test_any_bytes_as_manifest_and_golden_file(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(BundleError):
        decode_manifest(data)
    bundle = copy_of(COMMITTED / "int8", tmp_path_factory.mktemp("bytes"))
    (bundle / GOLDEN_FILE).write_bytes(data)
    opened = open_bundle(rehash(bundle))
    with pytest.raises(BundleError):
        read_golden(opened)


def test_nested_json_is_refused(tmp_path: Path) -> None:
    """Deeper than a parser that recurses can go, in a field that may hold anything and in one that may not."""
    bundle, deep = copy_of(COMMITTED / "int8", tmp_path), b"[" * 1_000_000 + b"]" * 1_000_000
    for field in (b'"recipe": {', b'"special": {'):
        data = (bundle / MANIFEST_FILE).read_bytes().replace(field, field + b'"x": ' + deep + b", ", 1)
        assert deep in data
        with pytest.raises(BundleError, match="manifest is not valid JSON"):
            decode_manifest(data)
    (bundle / GOLDEN_FILE).write_bytes(deep)
    opened = open_bundle(rehash(bundle))
    with pytest.raises(BundleError, match=r"`golden\.json` cannot be parsed"):
        read_golden(opened)


def test_every_kind_of_defect_is_recognized() -> None:
    def fail(error: Exception) -> Result:
        raise error

    def ended(run: Callable[[], Result]) -> Outcome:
        return measured(run, 50).outcome

    assert ended(lambda: Result(Outcome.SAME, str(len(b"x" * (60 * MIB))))) is Outcome.MEMORY
    assert ended(lambda: Result(Outcome.SAME, str(len(bytes(600 * MIB))))) is Outcome.MEMORY
    assert ended(partial(fail, ZeroDivisionError("planted"))) is Outcome.ESCAPED
    assert ended(partial(fail, BundleError("Damaged: \x1b[2J."))) is Outcome.ESCAPED
    assert ended(partial(fail, BundleError("Damaged."))) is Outcome.REFUSED
    rehashed, other = Case("decoder", 0), Case("decoder", len(CPU_PRECISIONS))
    found = use(COMMITTED / "fp32", None)
    assert judged(rehashed, found, None, found).outcome is Outcome.SAME
    assert judged(rehashed, found, None, Use([], [])).outcome is Outcome.OTHER
    assert judged(rehashed, found, [b"key"], Use([], [])).outcome is Outcome.FORGED
    assert judged(other, found, None, Use([], [])).outcome is Outcome.FORGED


def test_messages_are_taken_apart_and_joined() -> None:
    fields = [(1, 2, b"name"), (2, 0, mutations.varint(300)), (3, 5, b"abcd"), (4, 1, b"abcdefgh")]
    assert mutations.fields_of(mutations.message_of(fields)) == fields
    assert mutations.fields_of(b"\x0a\xff") is None
    assert mutations.varint(300, surplus=2) == b"\xac\x82\x80\x00"
    for name in ("encoder", "decoder"):
        data = (COMMITTED / "int4" / f"{name}.onnx").read_bytes()
        split = mutations.fields_of(data)
        assert split is not None
        assert mutations.message_of(split) == data
        assert len({mutations.random_graph(Random(seed), data) for seed in range(20)}) > 15
