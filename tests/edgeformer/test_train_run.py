from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.utils._pytree import tree_leaves

from edgeformer.config import Recipe, TrainConfig, recipe_from_tree
from edgeformer.data.vocabulary import train_tokenizers
from edgeformer.errors import CheckpointError, ConfigError
from edgeformer.model.build import build_model
from edgeformer.run.folder import SAMPLE_SIZE, Run
from edgeformer.run.info import RunInfo, Validation
from edgeformer.run.weights import save_weights
from edgeformer.train.averaging import averaged_steps
from edgeformer.train.cpu import FastDropout, prepare_for_cpu, use_fast_dropout
from tests.amounts import combinations
from tests.factory import small_recipe
from tests.variants import varied_blocks

DEEP = b'{"model": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
PAIRS = [("a b c", "c b a"), ("d\te", "e\nd"), ("été", "noël \u2028 x\ry")]


def recipe(tied: str = "all") -> Recipe:
    model = {"family": "transformer", "d_model": 8, "d_ff": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    shared = tied == "all"
    return recipe_from_tree(
        {
            "model": {**model, "tied_embeddings": tied},
            "tokenizer": {"kind": "word", "vocab_size": 30, "shared": shared},
            "data": {"train": ["unused"]},
        },
        "test",
    )


def create(path: Path, tied: str = "all") -> Run:
    tokenizers = train_tokenizers(PAIRS, recipe(tied).tokenizer)
    return Run.create(path, recipe(tied), *tokenizers, PAIRS, RunInfo())


def validation(step: int, loss: float) -> Validation:
    return Validation(step=step, loss=loss, perplexity=1, bleu=0, exact_match=0, sentences=0, minutes=0)


@pytest.mark.parametrize("tied", ["none", "decoder", "all"])
def test_round_trip(tmp_path: Path, tied: str) -> None:
    run = create(tmp_path / "a" / "run", tied)
    model = run.build_model()
    save_weights(model, run.model_path)
    stored = load_file(run.model_path)
    assert sum(tensor.numel() for tensor in stored.values()) == sum(p.numel() for p in model.parameters())

    opened = Run.open(str(run.path))
    assert opened.recipe == run.recipe
    assert opened.source_tokenizer.encode("a b") == run.source_tokenizer.encode("a b")
    assert opened.sample == [("a b c", "c b a"), ("d e", "e d"), ("été", "noël \u2028 x\ry")]
    loaded = opened.load_model()
    assert not loaded.training
    for (name, one), other in zip(model.state_dict().items(), loaded.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    assert len(list(loaded.parameters())) == len(list(model.parameters()))
    assert not [path for path in run.path.rglob("*") if path.name.endswith(".tmp")]


@pytest.mark.parametrize("size", [0, 4, 100, -1])
def test_truncated_weights(tmp_path: Path, size: int) -> None:
    run = create(tmp_path / "run")
    save_weights(run.build_model(), run.model_path)
    content = run.model_path.read_bytes()
    run.model_path.write_bytes(content[:size])
    with pytest.raises(CheckpointError, match=r"model\.safetensors` are damaged"):
        run.load_model()


@pytest.mark.parametrize("change", ["missing", "surplus", "shape"])
def test_weights_of_another_model(tmp_path: Path, change: str) -> None:
    run = create(tmp_path / "run")
    save_weights(run.build_model(), run.model_path)
    state = load_file(run.model_path)
    name = "encoder_layers.0.attention.query.weight"
    if change == "missing":
        del state[name]
    elif change == "surplus":
        state["surplus"] = torch.zeros(1)
    else:
        state[name] = torch.zeros(3, 3)
    save_file(state, run.model_path)
    with pytest.raises(CheckpointError, match="belong to another model"):
        run.load_model()


@combinations(
    name=["recipe.json", "run.json", "tokenizer.json"],
    content=[None, b"", b"{", b'{"model": 3}', b"\xff\xfe", b'{"status": "\xff"}', DEEP],
)
def test_damaged_folder(tmp_path: Path, name: str, content: bytes | None) -> None:
    path = create(tmp_path / "run").path / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    if name == "run.json" and content == b'{"model": 3}':
        assert Run.open(path.parent).info == RunInfo()  # fields of later versions are ignored
    else:
        with pytest.raises(CheckpointError, match=str(path.parent)):
            Run.open(path.parent)


def test_create_refuses_a_used_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(CheckpointError, match="is not an empty folder"):
            create(path)
    (tmp_path / "empty").mkdir()
    assert create(tmp_path / "empty").path.is_dir()


def test_the_sample_can_be_replaced(tmp_path: Path) -> None:
    run = create(tmp_path / "run")
    run.write_sample([("one", "two")] * (SAMPLE_SIZE + 1))
    assert run.sample == [("one", "two")] * SAMPLE_SIZE


def test_tying_all_needs_one_vocabulary() -> None:
    with pytest.raises(ConfigError, match="needs one vocabulary"):
        build_model(recipe("all"), 10, 11)


def test_what_is_averaged() -> None:
    validations = [validation(1, 3.0), validation(2, 1.0), validation(3, 2.0), validation(4, 1.0)]
    best, last = (TrainConfig(average=2, average_of=kind) for kind in ("best", "last"))
    assert averaged_steps(validations, best) == [4, 2]
    assert averaged_steps(validations, last) == [3, 4]
    assert averaged_steps(validations[:1], last) == [1]


@pytest.mark.parametrize("p", [0.0, 0.1, 0.9])
def test_fast_dropout_drops_that_fraction_and_keeps_the_mean(p: float) -> None:
    torch.manual_seed(1)
    x = torch.full((1000, 501), 2.0, requires_grad=True)
    dropout = FastDropout(p)
    y = dropout(x)
    assert (y == 0).float().mean().item() == pytest.approx(p, abs=5e-3)
    assert y.mean().item() == pytest.approx(2.0, rel=2e-2)
    assert y.max().item() == pytest.approx(2 / (1 - p), rel=1e-3)
    torch.autograd.backward(y.sum())
    torch.testing.assert_close(x.grad, y.detach() / 2)
    assert dropout.eval()(x) is x


def test_fast_dropout_is_random_in_every_column_and_follows_the_seed() -> None:
    x = torch.ones(4000, 8)
    torch.manual_seed(3)
    first, second = FastDropout(0.5)(x), FastDropout(0.5)(x)
    torch.manual_seed(3)
    assert torch.equal(FastDropout(0.5)(x), first)
    assert not torch.equal(first, second)
    dropped = (first == 0).float()
    assert dropped.mean(0).tolist() == pytest.approx([0.5] * 8, abs=0.05)
    correlation = torch.corrcoef(dropped.T) - torch.eye(8)
    assert correlation.abs().max() < 0.08


@pytest.mark.parametrize("variant", varied_blocks())
def test_what_is_replaced_on_cpu_keeps_the_precision_of_every_activation(variant: str) -> None:
    """Under autocast, matrix products are in bf16, and what they are added to in fp32."""

    def dtypes(prepare: bool) -> dict[str, list[torch.dtype]]:
        model = build_model(small_recipe(variant, {"dropout": 0.3}), 20, 20)
        if prepare:
            prepare_for_cpu(model)
        outputs: dict[str, list[torch.dtype]] = {}

        def watch(name: str) -> Callable[[object, object, object], None]:
            return lambda _module, _inputs, y: outputs.update({name: [tensor.dtype for tensor in tree_leaves(y)]})

        for name, module in model.named_modules():
            module.register_forward_hook(watch(name))
        source, target = torch.randint(4, 20, (2, 3, 5))
        with torch.autocast("cpu", torch.bfloat16):
            model(source, torch.tensor([5, 4, 3]), target)
        return outputs

    assert dtypes(True) == dtypes(False)


def test_every_dropout_of_a_model_is_exchanged() -> None:
    model = build_model(recipe(), 20, 20)
    before = model.state_dict().keys()
    use_fast_dropout(model)
    kinds = [type(module) for module in model.modules()]
    assert torch.nn.Dropout not in kinds
    assert FastDropout in kinds
    assert model.state_dict().keys() == before


@pytest.mark.slow  # imports torch again
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has the setting")
def test_freed_memory_is_used_again_without_asking_the_system() -> None:
    script = """
import ctypes, resource
from edgeformer.train.cpu import keep_freed_memory
keep_freed_memory()
libc, size = ctypes.CDLL(None), 2**26
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = libc.malloc(size)
    ctypes.memset(block, 1, size)
    libc.free(block)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    first, second = map(int, output.split())
    assert second < first / 10
