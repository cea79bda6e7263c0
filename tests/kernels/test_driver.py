"""The kernels without Python: the same bits on every processor, and damaged models under sanitizers."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from tests.kernels.cases import SHAPES, TINY, write_case

HERE = Path(__file__).parent
KERNELS = HERE.parent.parent / "runtime" / "edgeformer-kernels"
SANITIZERS = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
LIMITS = "max_allocation_size_mb=512:allocator_may_return_null=1:hard_rss_limit_mb=2000"

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
pytestmark = pytest.mark.slow


def compiling(target: str | None) -> ModuleType:
    """Return the program that compiles the kernels; skip the test if there is no compiler for the system."""
    spec = importlib.util.spec_from_file_location("kernels_compile", KERNELS / "compile.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not module.compiler(target, is_program=True):
        pytest.skip(f"no compiler for {target or 'this machine'}")
    return module


def build(target: str | None, folder: Path, *flags: str) -> Path:
    """Compile the driver."""
    compiling(target).build_program(target, [HERE / "driver.cpp"], folder / "driver", flags)
    return folder / "driver"


def run(*command: str | Path) -> str:
    environment = {**os.environ, "ASAN_OPTIONS": LIMITS}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=1800).stdout


def results(output: str) -> set[str]:
    """Return the hash and tokens of each instruction set, which should be the same ones."""
    lines = output.splitlines()
    assert len(lines) >= 2
    return {line.partition(" ")[2] for line in lines}


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(None, tmp_path_factory.mktemp("sanitized"), *SANITIZERS)


@pytest.mark.parametrize("shape", SHAPES)
def test_instruction_sets_have_the_same_bits(shape: str, sanitized: Path, tmp_path: Path) -> None:
    assert len(results(run(sanitized, "translate", write_case(tmp_path / "case", SHAPES[shape])))) == 1


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="needs Linux, which says what its processor has")
@pytest.mark.parametrize("by", ["c++", "ziglang"])
def test_every_compiler_finds_the_instruction_sets(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = compiling(None)
    if by == "c++" and shutil.which(by):
        monkeypatch.setenv("CXX", by)
    elif by == "c++" or not module.has_zig():
        pytest.skip(f"{by} is not installed")
    library = ctypes.CDLL(str(module.build(None, tmp_path)))
    library.edgeformer_levels.restype = ctypes.c_char_p
    features = set(Path("/proc/cpuinfo").read_text().split())
    x86 = [name for name in ("avx512_vnni", "avx_vnni", "avx2") if name in features]
    arm = ["neon_dot"] * ("asimddp" in features) + ["neon"] * ("asimd" in features)
    assert library.edgeformer_levels().decode().split() == [*x86, *arm, "portable"]


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm, which lists the symbols of objects")
@pytest.mark.parametrize("level", ["-O0", "-Os", "-O2"])
@pytest.mark.parametrize("by", ["c++", "x86_64-linux", "aarch64-linux"])
def test_no_object_links_what_is_compiled_for_a_higher_instruction_set(by: str, level: str, tmp_path: Path) -> None:
    """Whatever the compiler does not inline: the linker keeps one of several equal symbols, of any object."""
    target, module = (None if by == "c++" else by), compiling(None if by == "c++" else by)
    command = [by] if by == "c++" else module.compiler(target)
    if not command or shutil.which(command[0]) is None:
        pytest.skip(f"{by} is not installed")
    symbols: dict[str, set[str]] = {}
    for path in map(Path, module._objects(command, target, tmp_path, [level], [])):
        lines = subprocess.run(["nm", "-g", path], check=True, capture_output=True, text=True).stdout.splitlines()
        symbols[path.stem] = {line.split()[-1] for line in lines}
    levels = module.LEVELS[(target or module.this_system()).partition("-")[0]]
    assert levels.keys() < symbols.keys()
    for name in levels:
        others = set().union(*(each for other, each in symbols.items() if other != name))
        shared = {symbol for symbol in symbols[name] & others if "edgeformer" in symbol or symbol.startswith("_Z")}
        assert shared <= {
            *(f"_ZN10edgeformer{len(name)}{name}7kernelsE", "_ZN10edgeformer14longest_sourceERKNS_5StateE"),
            "_ZN10edgeformer6widestERKNS_5ModelE",
        }
        assert f"_ZN10edgeformer{len(name)}{name}7kernelsE" in shared


def test_other_systems_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = compiling(None)
    monkeypatch.setattr(module, "this_system", lambda: "riscv64-linux")
    with pytest.raises(SystemExit, match=r"There are no kernels for riscv64-linux, but for x86_64-linux, .*"):
        module.build(None, tmp_path)


@pytest.mark.parametrize("shape", TINY)
def test_damaged_models_are_refused_or_run(shape: str, sanitized: Path, tmp_path: Path) -> None:
    case = write_case(tmp_path / "case", TINY[shape], (3, 1))
    assert "refused" in run(sanitized, "mutate", case, "1", "3000")


@pytest.mark.parametrize("shape", SHAPES)
def test_wrong_arguments_are_refused(shape: str, sanitized: Path, tmp_path: Path) -> None:
    case = write_case(tmp_path / "case", SHAPES[shape], (3, 1))
    lines = run(sanitized, "misuse", case, "1", "4000").splitlines()
    assert len(lines) == 6
    for line in lines:
        done, refused = (int(word) for word in line.split() if word.isdigit())
        assert min(done, refused) > 10, "both happen to every function"


@needs_node
@pytest.mark.parametrize("processor", ["wasm32", "wasm32_relaxed"])
def test_webassembly_has_the_same_bits(processor: str, sanitized: Path, tmp_path: Path) -> None:
    program = build(f"{processor}-wasi", tmp_path)
    for name, shape in SHAPES.items():
        case = write_case(tmp_path / name, shape)
        try:
            found = run("node", "--no-warnings", HERE / "wasi.mjs", program, "translate", case)
        except subprocess.CalledProcessError as error:
            if processor == "wasm32_relaxed" and "simd opcode not available" in error.stderr:
                pytest.skip("this Node.js has no relaxed SIMD")
            raise
        levels = {line.split()[0] for line in found.splitlines()}
        if processor == "wasm32_relaxed":
            assert levels <= {"relaxed_unsigned", "relaxed_signed", "portable"}
        else:
            assert levels == {"simd128", "portable"}
        if len(levels) == 1:
            pytest.skip("this host's relaxed products are not exact")
        assert results(found) == results(run(sanitized, "translate", case))


def test_arm_has_the_same_bits(sanitized: Path, tmp_path: Path) -> None:
    if shutil.which("qemu-aarch64") is None:
        pytest.skip("no qemu-aarch64")
    arm = build("aarch64-linux", tmp_path)
    for name, shape in SHAPES.items():
        case = write_case(tmp_path / name, shape)
        for processor in ("max", "cortex-a53"):  # with dot products, and without
            found = results(run("qemu-aarch64", "-cpu", processor, arm, "translate", case))
            assert found == results(run(sanitized, "translate", case))
