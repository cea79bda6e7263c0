"""The same bundle on ONNX Runtime and on the kernels."""

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replace_field

from edgeformer_runtime import Translator
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.contract import WEIGHTS_FILE
from edgeformer_runtime.engines.base import BundleSession, kernels_advice
from edgeformer_runtime.errors import (
    BundleError,
    ConfigError,
    DeviceError,
    EdgeformerError,
    ModelError,
    OptionError,
    SessionError,
)
from edgeformer_runtime.limits import MAX_DECODING_BYTES
from edgeformer_runtime.search.loop import Counters, decode
from edgeformer_runtime.search.options import DecodeChanges, DecodeOptions
from edgeformer_runtime.search.requests import pad
from edgeformer_runtime.search.search import Hypothesis
from edgeformer_runtime.search.shortlist import Shortlist
from edgeformer_text import TextTranslator
from tests.amounts import examples
from tests.bundles import copy_of, edit_manifest, rehash
from tests.commands import problems, python, run, succeeded
from tests.company import EVERY_PROCESSOR
from tests.store import COMMITTED

BUNDLE = COMMITTED / "int8"
TEXTS = [
    "The small dog runs 2 times near the sea.",
    "A cat!",
    "the the the the the the the the",
    "It sings. It sings 14 times, near the café.",
    "",
    "Dogs",
    "xyz qwrt 99",
]
SEARCHES: list[DecodeChanges] = [
    {},
    {"beam_size": 1},
    {"beam_size": 1, "max_length": 5},
    {"beam_size": 4, "n_best": 3},
    {"beam_size": 3, "length_penalty": 0.0, "early_stopping": True},
    {"beam_size": 2, "return_token_scores": True},
    {"beam_size": 1, "max_ngram_repeats": 2},
    {"beam_size": 4, "max_ngram_repeats": 2, "n_best": 4},
    {"beam_size": 5, "patience": 2.0, "n_best": 5},
    {"beam_size": 2, "repetition_penalty": 1.3},
    {"beam_size": 2, "no_repeat_ngram_size": 2, "min_length": 4},
    {"beam_size": 1, "sampling_topk": 4, "seed": 3},
    {"beam_size": 2, "return_alternatives": True, "n_best": 3},
    {"beam_size": 1, "disable_unk": True},
]


@pytest.fixture(scope="module")
def kernels() -> Iterator[Translator]:
    pytest.importorskip("edgeformer_kernels", reason="the kernels are not built")
    with Translator.open(BUNDLE, engine="kernels") as translator:
        yield translator


@pytest.fixture(scope="module")
def reference() -> Iterator[Translator]:
    with Translator.open(BUNDLE, engine="onnxruntime", threads=1) as translator:
        yield translator


@pytest.mark.parametrize(
    "damage",
    [
        "of another version",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("missing", "text", "of another interface")),
    ],
)
def test_kernels_without_their_library_leave_the_model_to_onnxruntime(damage: str, tmp_path: Path) -> None:
    package = Path(pytest.importorskip("edgeformer_kernels", reason="the kernels are not built").__file__)
    copy = tmp_path / "edgeformer_kernels"
    copy.mkdir()
    code = package.read_text(encoding="utf-8")
    other = code.replace("\n_VERSION = ", "\n_VERSION = 1 + ") if damage == "of another interface" else code
    assert (other != code) == (damage == "of another interface")
    (copy / "__init__.py").write_text(other, encoding="utf-8")
    for library in package.parent.glob("*edgeformer_kernels.*") if damage != "missing" else ():
        content = library.read_bytes()
        if damage == "of another version":
            content = content.replace(b"edgeformer_attend", b"edgeformer_absent")
        (copy / library.name).write_bytes(b"not a library" if damage == "text" else content)
    command = "import sys; from edgeformer.cli import main; main()", "translate", BUNDLE, "A cat!"
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    if damage == "text":
        assert python(*command, PYTHONPATH=paths).stdout.strip()
    refused = python(*command, "--engine", "kernels", check=False, PYTHONPATH=paths)
    assert refused.returncode == 1
    assert "library of edgeformer-kernels cannot be loaded" in refused.stderr
    assert ("was compiled from another version" in refused.stderr) == damage.startswith("of another")
    assert "Traceback" not in refused.stderr


def test_threads_become_workers_of_the_kernels(kernels: Translator) -> None:
    with Translator.open(BUNDLE, engine="kernels", threads=2) as translator:
        assert (translator.session.threads, translator.workers) == (1, 2)
        assert translator.translate(TEXTS) == kernels.translate(TEXTS)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_both_engines_give_the_same(kernels: Translator, reference: Translator, search: DecodeChanges) -> None:
    for ours, theirs in zip(kernels.translate(TEXTS, **search), reference.translate(TEXTS, **search), strict=True):
        assert [each.ids for each in ours.hypotheses] == [each.ids for each in theirs.hypotheses]
        for mine, other in zip(ours.hypotheses, theirs.hypotheses, strict=True):
            assert mine.score == pytest.approx(other.score, abs=1e-3)
            assert mine.token_scores == pytest.approx(other.token_scores, abs=1e-3)


# Samples depend on the place in a call.
@pytest.mark.parametrize("search", [search for search in SEARCHES if "sampling_topk" not in search], ids=str)
def test_a_sentence_has_the_same_bits_alone_and_in_a_batch(kernels: Translator, search: DecodeChanges) -> None:
    together = kernels.translate(TEXTS, **search)
    for text, translation in zip(TEXTS, together, strict=True):
        assert kernels.translate([text], **search) == [translation]


OPTIONS = st.fixed_dictionaries(
    {
        "beam_size": st.integers(1, 5),
        "max_length": st.integers(4, 40),
        "max_ngram_repeats": st.sampled_from([0, 2, 3]),
        "length_penalty": st.sampled_from([0.0, 1.0]),
        "return_scores": st.booleans(),
        "return_token_scores": st.booleans(),
    }
)
ENDINGS = st.sampled_from(
    [{"early_stopping": False}, {"early_stopping": True}, {"early_stopping": True, "beam_shrinks": True}]
)


@given(data=st.data(), options=OPTIONS)
@examples(50, 400)
def test_the_kernels_search_as_the_loop_does(kernels: Translator, data: st.DataObject, options: dict[str, Any]) -> None:
    from edgeformer_runtime.engines import kernels as kernel_engine

    size = kernels.target_tokenizer.vocab_size
    ids = st.lists(st.integers(4, size - 1), max_size=3)
    copies = st.integers(1, 3)
    sources = data.draw(st.lists(st.builds(lambda ids, count: [*ids * count, 2], ids, copies), min_size=1, max_size=3))
    prefixes = [data.draw(st.builds(lambda ids, count: (ids * count)[:3], ids, copies)) for _ in sources]
    options |= data.draw(ENDINGS) | {"n_best": data.draw(st.integers(1, options["beam_size"]))}
    chosen = DecodeOptions(**options)
    early: dict[int, list[Hypothesis]] = {}
    whole = decode(kernels.session, sources, chosen, prefixes=prefixes, done=early.__setitem__)
    with patch.object(kernel_engine, "_is_plain", return_value=False):
        steps = decode(kernels.session, sources, chosen, prefixes=prefixes)
    assert early == dict(enumerate(whole))
    for ours, theirs in zip(whole, steps, strict=True):
        assert [(each.ids, each.finished) for each in ours] == [(each.ids, each.finished) for each in theirs]
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.score == pytest.approx(other.score, abs=1e-4)
            assert mine.token_scores == pytest.approx(other.token_scores, abs=1e-4)


def random_lists(seed: int, sources: int, targets: int, eos: int) -> Shortlist:
    """Few tokens for every sentence, the end token among them, and few for each source token."""
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 4, sources)
    frequent = np.concatenate(([eos], random.permutation(np.setdiff1d(np.arange(targets), [eos]))))
    return Shortlist(int(random.integers(1, 6)), np.cumsum(sizes), frequent, random.integers(0, targets, sizes.sum()))


@given(data=st.data(), search=st.sampled_from(EVERY_PROCESSOR), seed=st.integers(0, 10**6))
@examples(40, 500)
def test_a_sentence_has_only_tokens_that_it_may_use_and_the_same_in_any_batch(
    kernels: Translator, data: st.DataObject, search: DecodeChanges, seed: int
) -> None:
    """With lists so short that searches may run out of tokens, which is an error then, alone and in a batch."""
    special = kernels.session.special
    session = kernels.session.with_prefix(special.prefix)
    sizes = kernels.source_tokenizer.vocab_size, kernels.target_tokenizer.vocab_size
    lists = vars(session)["_shortlist"] = random_lists(seed, *sizes, special.eos)
    ids = st.lists(st.integers(4, sizes[0] - 1), max_size=5)
    sources = data.draw(st.lists(ids.map(lambda ids: [*ids, special.eos]), min_size=2, max_size=4))
    usable = [lists.usable(source) for source in sources]
    anything = np.flatnonzero(np.logical_or.reduce(usable)).tolist()
    prefixes = [data.draw(st.lists(st.sampled_from(anything), max_size=2)) for _ in sources]
    changes: dict[str, Any] = {"max_length": 8, **search}
    options = DecodeOptions(**changes)

    def decoded(indices: Sequence[int]) -> list[list[Hypothesis]] | None:
        try:
            return decode(session, [sources[i] for i in indices], options, prefixes=[prefixes[i] for i in indices])
        except ModelError as error:
            if "no token has a finite logit" in str(error).lower():
                return None
            raise

    together, alone = decoded(range(len(sources))), [decoded([index]) for index in range(len(sources))]
    assert (together is None) == (None in alone)
    for index, one in enumerate(alone):
        forced = len(prefixes[index])
        for hypothesis in one[0] if one else ():
            assert usable[index][list(hypothesis.ids[forced:])].all()
        if together is not None and one is not None:
            assert [(each.ids, each.finished) for each in together[index]] == [(e.ids, e.finished) for e in one[0]]
            for mine, other in zip(together[index], one[0], strict=True):
                assert mine.score == pytest.approx(other.score, abs=1e-4)


def test_a_sentence_is_done_before_its_batch(kernels: Translator) -> None:
    done: list[int] = []
    results = kernels.translate(TEXTS[:2], beam_size=1, done=lambda index, result: done.append(index))
    assert [len(result.best.ids) for result in results] == sorted(
        (len(each.best.ids) for each in results), reverse=True
    )
    assert done == [1, 0]


@pytest.mark.parametrize("which", ["cancel", "done"])
def test_what_callers_raise_ends_the_search(kernels: Translator, which: str) -> None:
    asked: list[object] = []

    def fail(*arguments: object) -> bool:
        asked.append(arguments)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        kernels.translate(TEXTS, cancel=fail) if which == "cancel" else kernels.translate(TEXTS, done=fail)
    assert len(asked) == 1


def test_attention_and_scores_come_from_both(kernels: Translator, reference: Translator) -> None:
    translations = kernels.translate(TEXTS)
    ours, theirs = (each.attention(translations) for each in (kernels, reference))
    for translation, one, other in zip(translations, ours, theirs, strict=True):
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)
        (alone,) = kernels.attention([translation])
        np.testing.assert_array_equal(one.weights, alone.weights)
    scores = [each.score(TEXTS[:2], ["dog sings.", "a cat"]) for each in (kernels, reference)]
    for one, other in zip(*scores, strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-2)


def test_the_engine_is_chosen(kernels: Translator, reference: Translator) -> None:
    assert kernels.session.engine == "kernels"
    assert reference.session.engine == "onnxruntime"
    with Translator.open(BUNDLE) as default, Translator.open(COMMITTED / "fp32") as other:
        assert default.session.engine == "kernels"
        assert other.session.engine == "onnxruntime"


@pytest.mark.parametrize(
    ("bundle", "options", "error", "message"),
    [
        ("fp32", {"engine": "kernels"}, BundleError, "has no plan for the kernels"),
        ("int8", {"engine": "kernels", "device": "cuda"}, DeviceError, "The kernels run on the CPU, not on `cuda`"),
        ("int8", {"engine": "fastest"}, OptionError, "must be one of auto, onnxruntime, kernels, but is `fastest`"),
    ],
)
def test_an_engine_that_cannot_run_it_is_named(
    bundle: str, options: dict[str, Any], error: type[EdgeformerError], message: str
) -> None:
    with pytest.raises(error, match=message):
        Translator.open(COMMITTED / bundle, **options)


@pytest.mark.parametrize("problem", ["", "edgeformer-kernels is not installed here"])
@pytest.mark.parametrize("has_plan", [True, False])
@pytest.mark.parametrize(
    ("precision", "hindered"), [("int8", ""), ("int8", "the kernels know other families"), ("fp32", ""), ("int4", "")]
)
def test_advice_says_what_to_do_where_something_can_be_done(
    precision: str, hindered: str, has_plan: bool, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    can_run = precision == "int8" and not hindered
    if has_plan and not can_run:
        return  # there is no such bundle
    monkeypatch.setattr("edgeformer_runtime.engines.base.kernels_problem", lambda: problem)
    bundle = open_bundle(BUNDLE)
    manifest = bundle.manifest
    manifest = msgspec.structs.replace(
        manifest,
        plan=manifest.plan if has_plan else None,
        report=msgspec.structs.replace(manifest.report, kernels=hindered),
        precision=dict.fromkeys(manifest.precision, precision),
    )
    advice = kernels_advice(replace(bundle, manifest=manifest))
    assert ("export it again" in advice) == (can_run and not has_plan)
    assert ("pip install ./runtime/edgeformer-kernels" in advice) == (can_run and bool(problem))
    assert bool(advice) == (can_run and bool(problem or not has_plan))


def test_commands_say_what_to_do_unless_an_engine_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = "edgeformer-kernels is not installed here"
    monkeypatch.setattr("edgeformer_runtime.engines.base.kernels_problem", lambda: problem)
    for command in ("translate", BUNDLE, "A cat!"), ("bench", BUNDLE, "--repeat", "1"), ("inspect", BUNDLE):
        assert succeeded(*command).stderr.count(problem) == 1
        if command[0] != "inspect":
            assert problem not in succeeded(*command, "--engine", "onnxruntime").stderr


def test_an_instruction_set_that_the_processor_lacks_is_named(
    kernels: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    del kernels
    monkeypatch.setenv("EDGEFORMER_KERNELS_LEVEL", "portable")
    Translator.open(BUNDLE).close()
    monkeypatch.setenv("EDGEFORMER_KERNELS_LEVEL", "mmx")
    with pytest.raises(ConfigError, match=r"no instruction set `mmx` here, but .*portable"):
        Translator.open(BUNDLE)


def test_it_is_pickled_and_closed(kernels: Translator) -> None:
    with Translator.open(BUNDLE, engine="kernels") as first:
        copy = pickle.loads(pickle.dumps(first))
        assert isinstance(copy.session, BundleSession)
        assert copy.session.engine == "kernels"
        assert copy.translate(TEXTS) == first.translate(TEXTS)
        other = first.with_languages()
    for closed in (first, other):
        with pytest.raises(SessionError, match="is closed"):
            closed.translate(["A dog."])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_it_survives_a_fork(kernels: Translator) -> None:
    expected = kernels.translate(TEXTS)
    if (child := os.fork()) == 0:
        os._exit(0 if kernels.translate(TEXTS) == expected else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_translating_needs_no_onnxruntime(kernels: Translator, reference: Translator) -> None:
    del kernels
    program = f"""
import sys
sys.modules["onnxruntime"] = None
from edgeformer_runtime import Translator
from edgeformer_text import TextTranslator
translator = Translator.open({str(BUNDLE)!r})
print(TextTranslator(translator).translate(["The small <b>dog</b> runs."], format="html")[0].text)
print(translator.translate(["A dog."], return_attention=True)[0].best.attention.alignment)
try:
    Translator.open(translator.bundle, engine="onnxruntime")
except Exception as error:
    print(type(error).__name__, error)
"""
    html, alignment, problem = python(program).stdout.splitlines()
    assert html == TextTranslator(reference).translate(["The small <b>dog</b> runs."], format="html")[0].text
    attention = reference.attention(reference.translate(["A dog."]))[0]
    assert alignment == str(attention.alignment)
    assert problem.startswith("DeviceError onnxruntime is not installed")


def test_the_first_token_comes_before_the_last_one(kernels: Translator) -> None:
    for options in (DecodeOptions(beam_size=1), DecodeOptions(beam_size=3), DecodeOptions(beam_size=3, min_length=2)):
        counters = Counters()
        decode(kernels.session, [source.ids for source in kernels.encode(TEXTS[:3])], options, counters)
        assert 0 < counters.encoder_seconds < counters.first_token_seconds < counters.batch_seconds


def test_what_a_state_refuses_is_an_error_of_the_runtime(kernels: Translator) -> None:
    session = kernels.session

    def state() -> Any:
        return session.start_search(np.array([[5, 3], [4, 3]]), np.array([2, 1]))

    size = kernels.target_tokenizer.vocab_size
    token, ended = np.array([4, 4]), state()
    for _ in range(session.max_target_length):
        ended.step(token)
    calls: list[Callable[[], object]] = [
        *(lambda ended=ended: ended.step(token), lambda ended=ended: ended.attend(token)),
        *(lambda wrong=wrong: state().step(np.array(wrong)) for wrong in ([4], [4, size], [-1, 4], [4.5, 4])),
        *(lambda wrong=wrong: state().attend(np.array(wrong)) for wrong in ([4], [4, size])),
        *(lambda wrong=wrong: state().select(np.array(wrong), None) for wrong in ([2], [-1], [0.5])),
        *(lambda wrong=wrong: session.start(np.array([wrong]), np.array([1])) for wrong in ([10**6], [-1])),
        lambda: session.start(np.array([[4]]), np.array([0])),
    ]
    for call in calls:
        with pytest.raises(ModelError, match=r"The kernels cannot .+: .+\.$"):
            call()


def test_memory_that_is_not_there_is_an_error_of_the_runtime(kernels: Translator) -> None:
    from edgeformer_runtime.engines import kernels as kernel_engine

    session: Any = kernels.session
    source = np.array([[5, 3]]), np.array([2])
    state = session.start(*source)
    with pytest.raises(ModelError, match=r"The kernels cannot make room for logits: .+\.$"):
        kernel_engine.KernelState(session._batch([[5, 3]]), 2**50, None)
    calls: dict[str, Callable[[], object]] = {
        "Model.start": lambda: session.start(*source),
        "Batch.step": lambda: state.step(np.array([4])),
        "Batch.attend": lambda: state.attend(np.array([4])),
        "Batch.select": lambda: state.select(np.array([0]), None),
        "Batch.search": lambda: decode(session, [(5, 3)], DecodeOptions()),
    }
    for method, call in calls.items():
        with (
            patch(f"edgeformer_kernels.{method}", side_effect=MemoryError),
            pytest.raises(ModelError, match=r"The kernels cannot .+: there is not enough memory\.$"),
        ):
            call()


def test_weights_that_cannot_be_read_are_named(kernels: Translator, tmp_path: Path) -> None:
    del kernels
    bundle = copy_of(BUNDLE, tmp_path)
    (bundle / WEIGHTS_FILE).write_bytes(b"")
    rehash(bundle)
    with pytest.raises(BundleError, match=f"`{WEIGHTS_FILE}` cannot be read"):
        Translator.open(bundle, engine="kernels")


def test_a_batch_of_a_hostile_plan_does_not_fit(kernels: Translator) -> None:
    """The estimate is that of the plan, whatever the manifest says of the state."""
    del kernels
    session = Translator.open(BUNDLE, engine="kernels").session
    estimate = session.batch_bytes(4, 12, 20, 30)
    bundle = replace(session.bundle, manifest=replace_field(session.bundle.manifest, state=()))
    without = session.with_prefix(())
    without.bundle = bundle
    assert without.batch_bytes(4, 12, 20, 30) == estimate
    assert session.batch_bytes(1, 1, 10**6, 1) > MAX_DECODING_BYTES
    state = session.start(*pad([[4] * 20] * 4, 0))
    state.select(np.arange(4).repeat(3), None)
    for _ in range(30):
        state.step(np.full(12, 4))
    assert state.nbytes <= estimate


def test_verification_covers_both(kernels: Translator, tmp_path: Path) -> None:
    del kernels
    assert "run by onnxruntime and kernels" in run("verify", BUNDLE).stdout
    bundle = copy_of(BUNDLE, tmp_path)

    def halve(tree: dict[str, Any]) -> None:
        tree["plan"]["projection"]["input_scale"] /= 2

    edit_manifest(bundle, halve)
    assert [problem for problem in problems(bundle) if problem.startswith("on the kernels, ")]


POINTED = "its plan is damaged"
DIFFERS = "plan and manifest differ in vocabularies or lengths"


@pytest.mark.parametrize(
    ("part", "field", "change", "problem"),
    [
        *(("projection", "weight", lambda _, offset=offset: offset, POINTED) for offset in (-8, 10**9, 2**52)),
        *(("projection", "weight", lambda _, offset=offset: offset, "its schema") for offset in (2**62, 10**400)),
        ("projection", "scale", lambda _: 1, POINTED),
        ("source", "rows", lambda rows: rows - 1, DIFFERS),
        ("target", "rows", lambda rows: rows - 1, DIFFERS),
        ("target", "positions", lambda positions: positions - 1, DIFFERS),
    ],
)
def test_a_plan_that_does_not_fit_its_bundle_is_refused(
    kernels: Translator, tmp_path: Path, part: str, field: str, change: Callable[[int], int], problem: str
) -> None:
    del kernels
    bundle = copy_of(BUNDLE, tmp_path)
    edit_manifest(bundle, lambda tree: tree["plan"][part].update({field: change(tree["plan"][part][field])}))
    with pytest.raises(BundleError, match=problem):
        Translator.open(bundle)
