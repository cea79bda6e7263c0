"""The session on ONNX Runtime: padding, devices, versions; its state has a file of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from msgspec.structs import replace

from edgeformer_runtime import contract
from edgeformer_runtime.bundle.manifest import Precision
from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.engines import cpus
from edgeformer_runtime.engines import onnx as onnx_engine
from edgeformer_runtime.engines.cpus import available_cpus
from edgeformer_runtime.engines.cuda import check_cuda
from edgeformer_runtime.engines.onnx import OnnxSession
from edgeformer_runtime.errors import BundleError, DeviceError
from edgeformer_runtime.translator import Translator
from tests.store import QUANTIZED

SOURCE = np.array([[5, 6, 7, 3], [8, 3, 0, 0], [9, 10, 3, 0]], dtype=np.int64)
LENGTH = np.array([4, 2, 3], dtype=np.int64)


def test_changing_logits_changes_nothing_that_follows(translator: Translator) -> None:
    """Searches and processors use the logits' memory, which the next step writes again."""
    session = translator.session
    runs = []
    for spoilt in (False, True):
        state, outputs = session.start(SOURCE, LENGTH), []
        for position in range(8):
            logits = state.step(np.full(3, 2 + position))
            outputs.append(logits.copy())
            if spoilt:
                logits[:] = np.nan
        runs.append(outputs)
    np.testing.assert_array_equal(runs[1], runs[0])


def test_a_missing_provider_is_an_error_with_the_pip_line(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(DeviceError, match=r"CUDAExecutionProvider.*pip install 'edgeformer\[gpu\]'"):
        Translator.open(small_bundle, device="cuda")


@pytest.mark.parametrize("precision", QUANTIZED)
def test_integers_are_refused_on_another_device(
    small_bundles: dict[Precision, Path], precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    with pytest.raises(DeviceError) as caught:
        Translator.open(small_bundles[precision], device="cuda")
    named = "int4" if precision == "int4" else "int8"  # one of the encoder's and the decoder's
    assert str(caught.value) == (
        f"{named} graphs run on the CPU only, so `cuda` would copy every tensor back and forth; export the model with "
        "--precision fp16 or fp32."
    )


def test_heads_for_which_cuda_has_no_kernel_are_refused(
    small_bundles: dict[Precision, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    small_bundle = small_bundles["fp32"]  # which is the same on every device
    assert {tensor.axes[-1] for tensor in open_bundle(small_bundle).manifest.state if tensor.in_place} == {8}
    with pytest.raises(DeviceError) as caught:
        Translator.open(small_bundle, device="cuda")
    assert str(caught.value) == (
        "On `cuda`, caches are written in place for heads of width 32, 64, 128 only, but this model's have width 8; "
        "export it with --precision fp16, which has other caches for other widths, or with --target portable."
    )


@pytest.mark.parametrize("version", ["1.23.0", "1.31.0", "0.9"])
def test_an_onnxruntime_that_is_too_old_is_named(
    small_bundle: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(onnx_engine, "ENGINE_VERSION", version)
    with pytest.raises(DeviceError, match=rf"onnxruntime {version} is installed, but edgeformer needs 1\.31\.1"):
        Translator.open(small_bundle)


@pytest.mark.parametrize("problem", ["could not be started", "no device"])
def test_a_provider_that_does_not_start_is_an_error(
    problem: str,
    small_bundles: dict[Precision, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """onnxruntime would fall back to the CPU, and say so on standard output; the session must not."""
    monkeypatch.setattr(contract, "CUDA_HEAD_WIDTHS", (8,))
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    opened = ort.InferenceSession

    def start(
        path: Path, options: ort.SessionOptions, providers: list[tuple[str, dict[str, str]]], enable_fallback: int
    ) -> ort.InferenceSession:
        ((name, settings),) = providers
        assert name == "CUDAExecutionProvider"
        assert settings["use_tf32"] == "0"
        assert enable_fallback == 0
        if problem == "no device":
            raise RuntimeError(problem)
        return opened(path, options, providers=["CPUExecutionProvider"])

    monkeypatch.setattr(ort, "InferenceSession", start)
    with pytest.raises(DeviceError, match=problem):
        Translator.open(small_bundles["fp32"], device="cuda")
    assert capsys.readouterr().out == ""


def test_a_graph_that_onnxruntime_refuses_is_named(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *args: object, **options: object) -> None:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(ort, "InferenceSession", refuse)
    with pytest.raises(BundleError, match=r"cannot open `decoder\.onnx`: no such operator"):
        OnnxSession(open_bundle(small_bundle))


@pytest.mark.parametrize(
    ("nbytes", "threads", "workers", "divided"),
    [
        (10**6, 0, 0, (1, 8)),
        (25 * 10**6, 0, 0, (3, 5)),
        (10**9, 0, 0, (16, 1)),
        (10**9, 0, 4, (4, 4)),
        (10**9, 0, 32, (1, 32)),
        (10**6, 2, 0, (2, 1)),
        (10**6, 2, 3, (2, 3)),
    ],
)
def test_cpus_are_divided_unless_threads_are_given(
    nbytes: int, threads: int, workers: int, divided: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpus, "available_cpus", lambda: 16)
    assert cpus.divide_cpus(nbytes, threads, workers) == divided


def test_many_sentences_get_workers_of_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpus, "available_cpus", lambda: 4)
    assert cpus.divide_for_many("cpu", 0, 0) == (1, 4)
    assert cpus.divide_for_many("cpu", 2, 0) == (2, 0)
    assert cpus.divide_for_many("cpu", 0, 3) == (0, 3)
    assert cpus.divide_for_many("cuda", 0, 0) == (0, 0)


def test_a_small_model_gets_one_thread_and_a_worker_for_each_cpu(small_bundle: Path) -> None:
    with Translator.open(small_bundle) as translator:
        assert (translator.session.threads, translator.workers) == (1, min(available_cpus(), 8))


def test_what_onnxruntime_prints_is_not_on_standard_output(
    small_bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard output has the translations, and belongs to all threads: it cannot be another one for a while."""
    monkeypatch.setattr(ort, "cuda_version", "11.8")  # for which it prints a warning
    stdout = sys.stdout
    check_cuda(replace(open_bundle(small_bundle).manifest, state=()))
    assert sys.stdout is stdout
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "not supported for preloading" in printed.err
