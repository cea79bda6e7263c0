"""Compiles the kernels: once for every instruction set, then into one library.

Usage: ``python compile.py [--target x86_64-linux] [--out FOLDER] [--with FILE] [--include FOLDER]``

The compiler is ``$CXX``, else PyPI's ``ziglang``, which also compiles for other systems, else ``clang++`` or ``c++``.
Zig and Clang come first because GCC moves vectors that are wider than the processor's registers through memory: its
kernels for AVX2 take up to twice the time.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent
FLAGS = [
    "-std=c++17", "-O3", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fno-math-errno", "-ffp-contract=off",
    "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-psabi",
]  # fmt: skip
C_FLAGS = ["-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"]
"""Flags of files in C that are compiled into a library or program besides the kernels."""
ZIG = [sys.executable, "-m", "ziglang"]
LEVELS: dict[str, dict[str, list[str]]] = {
    "x86_64": {
        "avx512_vnni": ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni"],
        "avx_vnni": ["-mavx2", "-mavxvnni"],
        "avx2": ["-mavx2"],
        "portable": [],
    },
    "aarch64": {"neon_dot": ["-march=armv8.2-a+dotprod"], "neon": [], "portable": []},
    "wasm32": {"simd128": [], "portable": []},
    "wasm32_relaxed": {"relaxed_unsigned": [], "relaxed_signed": [], "portable": []},
}
"""Flags of every instruction set, best first."""
EVERYWHERE = {"wasm32": ["-msimd128"], "wasm32_relaxed": ["-msimd128", "-mrelaxed-simd"]}
"""Flags of all code for a processor: a host of WebAssembly refuses a library with any instruction that it lacks."""
TARGETS = {
    "x86_64-linux": ("x86_64-linux-gnu.2.17", "libedgeformer_kernels.so", "manylinux_2_17_x86_64"),
    "aarch64-linux": ("aarch64-linux-gnu.2.17", "libedgeformer_kernels.so", "manylinux_2_17_aarch64"),
    "x86_64-macos": ("x86_64-macos.11.0", "libedgeformer_kernels.dylib", "macosx_11_0_x86_64"),
    "aarch64-macos": ("aarch64-macos.11.0", "libedgeformer_kernels.dylib", "macosx_11_0_arm64"),
    "x86_64-windows": ("x86_64-windows-gnu", "edgeformer_kernels.dll", "win_amd64"),
    "wasm32-wasi": ("wasm32-wasi", "edgeformer_kernels.wasm", ""),
    "wasm32_relaxed-wasi": ("wasm32-wasi", "edgeformer_kernels_relaxed.wasm", ""),
    "aarch64-android": ("aarch64-linux-android.21", "libedgeformer_kernels.so", ""),
    "aarch64-ios": ("aarch64-ios.13.0", "libedgeformer_kernels.a", ""),
    "aarch64-ios-simulator": ("aarch64-ios.13.0-simulator", "libedgeformer_kernels.a", ""),
}
"""Zig's name of each system, the library's file name, and the platform tag of its wheel; WebAssembly and phones have no
wheel."""
HEADERS = {
    "aarch64-android": ("aarch64-linux-musl", "generic-musl"),
    "aarch64-ios": ("any-darwin-any",),
    "aarch64-ios-simulator": ("any-darwin-any",),
}
"""Folders of Zig with C headers for systems whose C library it does not have. What the kernels use of C's library is
declared alike in them and in the system's own."""
WEBASSEMBLY = ["-mexec-model=reactor", "-s", "-rdynamic", "-Wl,--export=malloc", "-Wl,--export=free"]
"""Flags to link a WebAssembly module that imports nothing; its host calls ``_initialize`` first."""
PROGRAM_TARGETS = {
    "aarch64-linux": "aarch64-linux-musl",
    "wasm32-wasi": "wasm32-wasi",
    "wasm32_relaxed-wasi": "wasm32-wasi",
}
"""Zig's name of systems that programs with the kernels are compiled for, without a shared library."""


def this_system() -> str:
    """Name of the system that this program runs on, as in :data:`TARGETS`."""
    machine = platform.machine().lower()
    name = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    system = {"darwin": "macos", "win32": "windows"}.get(sys.platform, sys.platform)
    return f"{name}-{system}"


def compiler(target: str | None, *, is_program: bool = False) -> list[str]:
    """Command of a compiler for a system; empty if there is none.

    Args:
        target: one of :data:`TARGETS`; None for this machine.
        is_program: whether a program is compiled, for one of :data:`PROGRAM_TARGETS`; on this machine, by its own
            compiler, which has sanitizers.
    """
    chosen = os.environ.get("CXX")
    own = chosen or shutil.which("clang++") or shutil.which("c++") or shutil.which("g++")
    if own and target is None and (chosen or is_program or not has_zig()):
        return own.split()
    target = target or this_system()
    if has_zig() and target in TARGETS:
        name = PROGRAM_TARGETS.get(target, "native") if is_program else TARGETS[target][0]
        return [*ZIG, "c++", "-target", name]
    return []


def has_zig() -> bool:
    """Whether PyPI's ``ziglang`` is installed."""
    return find_spec("ziglang") is not None


def build(target: str | None, out: Path, extra: Sequence[Path] = (), flags: Sequence[str] = ()) -> Path:
    """Compile the library of a system into a folder, and return its path; see :func:`compiler`.

    Args:
        target: one of :data:`TARGETS`; None for this machine.
        out: the folder.
        extra: more files in C or C++ that become part of the library.
        flags: for the compiler.

    Raises:
        SystemExit: there are no kernels for this machine, there is no compiler, or it fails.
    """
    name = target or this_system()
    if name not in TARGETS:
        raise SystemExit(f"There are no kernels for {name}, but for {', '.join(TARGETS)}.")
    out.mkdir(parents=True, exist_ok=True)
    library = out / TARGETS[name][1]
    link = ["-shared", "-s"]
    if library.suffix == ".wasm":  # is downloaded with every page, so it has no code that is never run
        link, flags = WEBASSEMBLY, ["-DEDGEFORMER_NOT_PORTABLE", *flags]
    _link(compiler(target), target, library, link, flags, extra)
    return library


def build_program(target: str | None, sources: Sequence[Path], program: Path, flags: Sequence[str] = ()) -> None:
    """Compile a program in C or C++ with the kernels in it.

    Args:
        target: one of :data:`PROGRAM_TARGETS`; None for this machine.
        sources: its code.
        program: where it is written.
        flags: for the compiler, such as sanitizers.

    Raises:
        SystemExit: there is no compiler, or it fails.
    """
    _link(compiler(target, is_program=True), target, program, [], flags, sources)


def _link(
    command: list[str],
    target: str | None,
    out: Path,
    link: list[str],
    flags: Sequence[str] = (),
    extra: Sequence[Path] = (),
) -> None:
    if not command:
        raise SystemExit("There is no C++ compiler; install one, or: pip install ziglang")
    with tempfile.TemporaryDirectory() as folder:
        objects = _objects(command, target, Path(folder), flags, extra)
        if target == "aarch64-android":
            _link_for_android(Path(folder), out, objects)
        elif out.suffix == ".a":
            out.unlink(missing_ok=True)
            _finish(subprocess.Popen([*ZIG, "ar", "--format=darwin", "rcs", str(out), *objects]))
        else:
            if "ziglang" in command and "-shared" in link:
                command = ["cc" if word == "c++" else word for word in command]  # else, it compiles C++'s library first
            _finish(subprocess.Popen([*command, *flags, *link, "-o", str(out), *objects, "-lm"]))


def _objects(
    command: list[str], target: str | None, folder: Path, flags: Sequence[str], extra: Sequence[Path]
) -> list[str]:
    """Compile all files into a folder, several at a time, and return the paths of the objects."""
    processor = (target or this_system()).partition("-")[0]
    levels, everywhere = LEVELS[processor], [*EVERYWHERE.get(processor, []), "-I", str(ROOT / "include")]
    for headers in HEADERS.get(target or "", ()):
        everywhere += ["-isystem", str(zig_folder() / "lib" / "libc" / "include" / headers)]
    if "-DEDGEFORMER_NOT_PORTABLE" in flags:
        levels = {name: own for name, own in levels.items() if name != "portable"}
    running, objects = [], []
    for source in [*sorted((ROOT / "src").glob("*.cpp")), *extra]:
        variants = levels if source.stem == "level" else {source.stem: []}
        language = ["-x", "c", *C_FLAGS] if source.suffix == ".c" else FLAGS
        for name, own in variants.items():
            if "ziglang" in command:  # has names of its own for processors
                own = [flag.replace("-march=armv8.2-a", "-mcpu=generic") for flag in own]
            if source.stem == "level":
                own = [*own, f"-DEDGEFORMER_LEVEL={name}", f"-DEDGEFORMER_{name.upper()}"]
            objects.append(str(folder / f"{name}.o"))
            running.append(
                subprocess.Popen([*command, *language, *everywhere, *own, *flags, "-c", str(source), "-o", objects[-1]])
            )
            if len(running) >= (os.cpu_count() or 1):
                _finish(running.pop(0))
    for process in running:
        _finish(process)
    return objects


def _link_for_android(folder: Path, out: Path, objects: Sequence[str]) -> None:
    """Link a library that takes what it needs from Android's C library, whose pages may have 16 KiB.

    Zig does not have that library, so the linker gets empty ones of the same names.
    """
    (folder / "empty.c").touch()
    empty = [*ZIG, "cc", "-target", TARGETS["aarch64-android"][0], "-c", "empty.c", "-o", "empty.o"]
    _finish(subprocess.Popen(empty, cwd=folder))
    needed = ["libc.so", "libm.so"]
    for name in needed:
        _finish(subprocess.Popen([*ZIG, "ld.lld", "-shared", "-soname", name, "-o", name, "empty.o"], cwd=folder))
    shared = ["-shared", "-s", "-soname", out.name, "-z", "max-page-size=16384", "--no-as-needed"]
    _finish(subprocess.Popen([*ZIG, "ld.lld", *shared, "-o", str(out.resolve()), *objects, *needed], cwd=folder))


def zig_folder() -> Path:
    """The folder of PyPI's ``ziglang``."""
    spec = find_spec("ziglang")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _finish(process: subprocess.Popen[bytes]) -> None:
    if process.wait():
        raise SystemExit(f"The compiler failed: {process.args!r}")


def main() -> None:
    """Compile for one system."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=TARGETS)
    parser.add_argument("--out", type=Path, default=ROOT / "edgeformer_kernels")
    parser.add_argument("--with", dest="extra", type=Path, action="append", default=[], help="a file to compile in")
    parser.add_argument("--include", action="append", default=[], help="a folder with headers for such files")
    arguments = parser.parse_args()
    flags = [f"-I{folder}" for folder in arguments.include]
    library = build(arguments.target, arguments.out, arguments.extra, flags)
    print(f"Wrote {library} ({library.stat().st_size / 1000:.0f} kB)")  # noqa: T201


if __name__ == "__main__":
    main()
