"""The examples for phones: in C natively and on emulated ARM, in Kotlin on a Java machine, and what phones link."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.kernels.test_driver import KERNELS, compiling
from tests.npm import node_with
from tests.store import COMMITTED

pytestmark = pytest.mark.slow

BUNDLE = COMMITTED / "int8"
EXAMPLES = KERNELS / "examples"
IN_C = [EXAMPLES / "c" / "sentence.c"]
SCORE = 0.05
"""Largest difference of a score of a golden example in int8."""
GLIBC_FOR_ARM = Path("/usr/aarch64-linux-gnu")
"""Where Debian's package libc6-arm64-cross has the C library."""
OF_C = {
    *(
        "calloc",
        "close",
        "free",
        "frexp",
        "getauxval",
        "ldexp",
        "lseek",
        "malloc",
        "memcpy",
        "memset",
        "mmap",
        "munmap",
    ),
    *("open", "snprintf", "strcat", "strcmp", "strlen", "strncpy"),
}
"""What the library takes from Android's C library, all of which it has had since its version 21."""


class Case(NamedTuple):
    """A golden example."""

    source: list[int]
    ids: list[int]
    score: float


def cases(beams: int) -> list[Case]:
    golden = json.loads((BUNDLE / "golden.json").read_bytes())["cases"]
    found = [Case(case["source"], case["ids"], case["score"]) for case in golden if case["beam_size"] == beams]
    assert found
    return found


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plan as numbers, written as the page on phones says."""
    page = (ROOT / "docs" / "mobile.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    path = tmp_path_factory.mktemp("plan") / "plan.f64"
    code = code.replace('"bundle"', repr(str(BUNDLE))).replace('"app/plan.f64"', repr(str(path)))
    subprocess.run([sys.executable, "-c", code], check=True)
    assert np.fromfile(path)[0] == 1
    return path


def arguments(plan: Path, beams: int) -> list[str]:
    """What the examples take: files, beams, limit and special tokens."""
    manifest: dict[str, Any] = json.loads((BUNDLE / "manifest.json").read_bytes())
    special, most = manifest["special"], manifest["max_target_length"]
    numbers = [beams, most, special["bos"], special["eos"], *special["suppress"]]
    return [str(BUNDLE / "weights.bin"), str(plan), *map(str, numbers)]


def check(command: list[str], plan: Path, beams: int) -> str:
    """Translate the golden examples' ids, compare the results, and return them."""
    given = "".join(" ".join(map(str, case.source)) + "\n" for case in cases(beams))
    done = subprocess.run(
        [*command, *arguments(plan, beams)], input=given, capture_output=True, text=True, timeout=600, check=True
    )
    found = [line.split() for line in done.stdout.splitlines()]
    assert [[int(word) for word in ids] for _, *ids in found] == [case.ids for case in cases(beams)]
    assert [float(score) for score, *_ in found] == pytest.approx([case.score for case in cases(beams)], abs=SCORE)
    return done.stdout


def program(target: str | None, folder: Path) -> str:
    """Compile the example in C with the kernels in it."""
    path = folder / f"translate-{target}"
    sources = [EXAMPLES / "c" / "translate.c", *IN_C]
    compiling(target).build_program(target, sources, path, [f"-I{EXAMPLES / 'c'}", "-Werror"])
    return str(path)


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> str:
    return program(None, tmp_path_factory.mktemp("native"))


@pytest.mark.parametrize("beams", [1, 4])
def test_the_example_in_c_finds_the_golden_examples(native: str, plan: Path, beams: int) -> None:
    check([native], plan, beams)


def test_the_example_in_c_refuses_what_is_damaged(native: str, plan: Path, tmp_path: Path) -> None:
    (tmp_path / "damaged").write_bytes(b"\0" * 80)
    for damaged, problem in ((tmp_path / "damaged", "version is unknown"), (tmp_path / "missing", "cannot be read")):
        done = subprocess.run([native, *arguments(damaged, 4)], input="5 3\n", capture_output=True, text=True)
        assert done.returncode == 1
        assert problem in done.stderr
    done = subprocess.run([native, *arguments(plan, 4)], input="300 3\n", capture_output=True, text=True)
    assert done.returncode == 1
    assert "cannot be translated" in done.stderr


def test_the_example_in_c_has_the_same_numbers_on_arm(native: str, plan: Path, tmp_path: Path) -> None:
    if shutil.which("qemu-aarch64") is None:
        pytest.skip("no qemu-aarch64")
    arm = program("aarch64-linux", tmp_path)
    for processor, beams in (("max", 1), ("max", 4), ("cortex-a53", 4)):  # with dot products, and without
        assert check(["qemu-aarch64", "-cpu", processor, arm], plan, beams) == check([native], plan, beams)


def java_home() -> Path:
    """Return the folder of the installed Java; skip the test if it has no headers."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("no java")
    folder = Path(java).resolve().parent.parent
    if not (folder / "include" / "jni.h").is_file():
        pytest.skip("Java has no headers: it is not a development kit")
    return folder


def documented(target: str, out: Path) -> Path:
    """Compile the library of a phone as the page says, and return its path."""
    module = compiling(target)
    page = (ROOT / "docs" / "mobile.md").read_text("utf-8").replace("\\\n", "")
    (line,) = [line for line in page.splitlines() if line.startswith(f"python compile.py --target {target} ")]
    if "$JAVA_HOME" in line:
        line = line.replace("$JAVA_HOME", str(java_home()))
    words = shlex.split(line)[1:]
    words[words.index("--out") + 1] = str(out)
    subprocess.run([sys.executable, *words], cwd=KERNELS, check=True, timeout=600)
    return out / str(module.TARGETS[target][1])


@pytest.fixture(scope="module")
def kotlin(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The example in Kotlin as a command, with the library that it calls."""
    folder = tmp_path_factory.mktemp("kotlin")
    headers = java_home() / "include"
    flags = [f"-I{EXAMPLES / 'c'}", f"-I{headers}", f"-I{headers / 'linux'}", "-Werror"]
    compiling(None).build(None, folder, [*IN_C, EXAMPLES / "android" / "edgeformer_jni.c"], flags)
    node_with(folder, "kotlin-compiler@2.4.20")
    jars, jar = folder / "node_modules" / "kotlin-compiler" / "lib", str(folder / "example.jar")
    path = ":".join(map(str, [*jars.glob("kotlin*.jar"), *jars.glob("*core*.jar")]))
    compiler = ["java", "-cp", path, "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler", "-kotlin-home", str(jars.parent)]
    files = map(str, sorted((EXAMPLES / "android").glob("*.kt")))
    subprocess.run([*compiler, "-Werror", "-include-runtime", "-d", jar, *files], check=True, timeout=300)
    return ["java", "-Xcheck:jni", f"-Djava.library.path={folder}", "-cp", jar, "edgeformer.MainKt"]


@pytest.mark.parametrize("beams", [1, 4])
def test_the_example_in_kotlin_finds_the_golden_examples(kotlin: list[str], plan: Path, beams: int) -> None:
    check(kotlin, plan, beams)


def test_the_example_in_kotlin_refuses_what_is_out_of_range(kotlin: list[str], plan: Path) -> None:
    done = subprocess.run([*kotlin, *arguments(plan, 4)], input="300 3\n", capture_output=True, text=True)
    assert "IllegalArgumentException: The sentence cannot be translated." in done.stderr


def test_the_library_for_android_needs_what_android_has(tmp_path: Path) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("no readelf")
    built = documented("aarch64-android", tmp_path)

    def read(*options: str) -> list[list[str]]:
        listed = subprocess.run(["readelf", "-W", *options, built], check=True, capture_output=True, text=True).stdout
        return [line.split() for line in listed.splitlines()]

    needed = {line[-1] for line in read("--dynamic") if "(NEEDED)" in line}
    assert needed == {"[libc.so]", "[libm.so]"}
    assert {line[-1] for line in read("--segments") if line[:1] == ["LOAD"]} == {"0x4000"}  # pages of 16 KiB
    symbols = [line for line in read("--dyn-syms") if len(line) == 8 and line[0].rstrip(":").isdigit()]
    assert {line[7] for line in symbols if line[6] == "UND"} <= OF_C
    defined = {line[7] for line in symbols if line[6] != "UND"}
    assert {name for name in defined if not name.startswith("edgeformer_")} == {
        f"Java_edgeformer_Kernels_{name}" for name in ("open", "close", "translate")
    }


def test_the_library_for_android_finds_the_golden_examples(native: str, plan: Path, tmp_path: Path) -> None:
    """Another C library stands in for Android's, which is not available; it has the same functions."""
    if shutil.which("qemu-aarch64") is None or not GLIBC_FOR_ARM.is_dir():
        pytest.skip("no qemu-aarch64, or no C library for ARM (libc6-arm64-cross)")
    built = compiling("aarch64-android").build("aarch64-android", tmp_path)
    for name in ("libc.so", "libm.so"):
        (tmp_path / name).symlink_to(GLIBC_FOR_ARM / "lib" / f"{name}.6")
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu.2.28", "-D_GNU_SOURCE"]
    include = ["-I", str(EXAMPLES / "c"), "-I", str(KERNELS / "include")]
    sources = [str(EXAMPLES / "c" / "translate.c"), *map(str, IN_C)]
    arm = str(tmp_path / "translate")
    subprocess.run([*zig, *include, *sources, built, "-o", arm], check=True, timeout=300)
    emulated = ["qemu-aarch64", "-L", str(GLIBC_FOR_ARM), "-E", f"LD_LIBRARY_PATH={tmp_path}", arm]
    assert check(emulated, plan, 4) == check([native], plan, 4)


def test_the_library_for_ios_is_for_arm(tmp_path: Path) -> None:
    built = documented("aarch64-ios", tmp_path)
    content = built.read_bytes()
    assert content.startswith(b"!<arch>\n")
    members = re.findall(re.escape(struct.pack("<II", 0xFEEDFACF, 0x0100000C)), content)  # 64-bit Mach-O for ARM
    assert len(members) == 9  # levels, plan, search, state, interface, three instruction sets, and the example
    for name in (b"_edgeformer_search", b"_sentence_translate"):
        assert name in content


@pytest.fixture(scope="module")
def swift(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The example in Swift as a command, with the library that it calls."""
    if shutil.which("swiftc") is None:
        pytest.skip("no swiftc")
    folder = tmp_path_factory.mktemp("swift")
    flags = [f"-I{EXAMPLES / 'c'}", "-fvisibility=default", "-Werror"]  # as in a static library
    compiling(None).build(None, folder, IN_C, flags)
    files = map(str, sorted((EXAMPLES / "ios").glob("*.swift")))
    linked = ["-I", str(EXAMPLES / "ios"), "-L", str(folder), "-Xlinker", "-rpath", "-Xlinker", str(folder)]
    program = str(folder / "translate")
    subprocess.run(["swiftc", "-warnings-as-errors", *linked, *files, "-o", program], check=True, timeout=300)
    return [program]


@pytest.mark.parametrize("beams", [1, 4])
def test_the_example_in_swift_finds_the_golden_examples(swift: list[str], plan: Path, beams: int) -> None:
    check(swift, plan, beams)


def test_the_example_in_swift_refuses_what_is_damaged(swift: list[str], plan: Path, tmp_path: Path) -> None:
    (tmp_path / "damaged").write_bytes(b"\0" * 80)
    for used, problem in ((tmp_path / "damaged", "version is unknown"), (plan, "cannotTranslate")):
        done = subprocess.run([*swift, *arguments(used, 4)], input="300 3\n", capture_output=True, text=True)
        assert done.returncode == 1
        assert problem in done.stderr


def test_swift_can_import_the_example_in_c(tmp_path: Path) -> None:
    """Swift reads a module as the compiler of C does."""
    (tmp_path / "import.m").write_text("@import EdgeformerSentence;\nvoid* opened(void) { return sentence_open; }\n")
    modules = [f"-fmodule-map-file={EXAMPLES / 'ios' / 'module.modulemap'}", f"-fmodules-cache-path={tmp_path}"]
    headers = compiling("aarch64-ios").zig_folder() / "lib" / "libc" / "include" / "any-darwin-any"
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-ios.13.0", "-isystem", str(headers)]
    objective_c = ["-x", "objective-c", "-fmodules", *modules, "-c", "import.m", "-o", "import.o"]
    subprocess.run([*zig, *objective_c], cwd=tmp_path, check=True, timeout=300)
    assert b"_sentence_open" in (tmp_path / "import.o").read_bytes()
