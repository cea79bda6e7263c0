"""The text of programs from Debian packages."""

from __future__ import annotations

import io
import struct
import tarfile
from pathlib import Path

import pytest

from edgeformer.errors import DataError
from models.make.software import software_pairs

HELP = "./usr/share/libreoffice/help/{}/text/shared/a.html"
GNOME = "./usr/share/help/{}/gnome-help/{}.page"
MESSAGES = "./usr/lib/libreoffice/program/resource/fr/LC_MESSAGES/sw.mo"
KEY = '<span><span class="MAC">{}</span><span hidden="true">Ctrl</span></span>'


def package(path: Path, files: dict[str, bytes]) -> Path:
    """A Debian package: an ar archive with an odd member before the files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    content = b"!<arch>\n"
    for name, member in {"debian-binary": b"2.0", "data.tar.xz": packed.getvalue()}.items():
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(member):<10}`\n"
        content += header.encode() + member + b"\n" * (len(member) % 2)
    path.write_bytes(content)
    return path


def catalog(messages: dict[str, str]) -> bytes:
    """A gettext catalog, as msgfmt writes it."""
    entries = sorted({"": "Content-Type: text/plain; charset=UTF-8\n", **messages}.items())
    texts = [[text.encode() for text in column] for column in zip(*entries, strict=True)]
    start = 28 + 16 * len(entries)
    tables, strings = b"", b""
    for column in texts:
        for text in column:
            tables += struct.pack("<II", len(text), start + len(strings))
            strings += text + b"\0"
    return struct.pack("<7I", 0x950412DE, 0, len(entries), 28, 28 + 8 * len(entries), 0, 28) + tables + strings


def page(*paragraphs: str) -> bytes:
    body = "".join(f"<p>{text}</p>" for text in paragraphs)
    return f'<page xmlns="http://projectmallard.org/1.0/">{body}</page>'.encode()


@pytest.fixture
def packages(tmp_path: Path) -> list[Path]:
    english = f'<p id="1">Press {KEY.format("Command")}+C.</p><p id="2">Good. Better.</p><p id="3">Only here</p>'
    french = f'<p id="1">Appuyez sur {KEY.format("Commande")}+C.</p><p id="2">Bien. Mieux.</p><h1 id="4">Ici</h1>'
    return [
        package(
            tmp_path / "en.deb", {HELP.format("en-US"): english.encode(), GNOME.format("C", "x"): page("One", "Two")}
        ),
        package(
            tmp_path / "fr.deb",
            {
                HELP.format("fr"): french.encode(),
                GNOME.format("fr", "x"): page("Un", "Deux"),
                MESSAGES: catalog({"menu\x04_File": "_Fichier", "menu\x04a_b_c": "a_b_d", "plain": "simple"}),
            },
        ),
    ]


def test_pairs(packages: list[Path]) -> None:
    assert software_pairs(packages, "fr") == [
        ("Press Ctrl+C.", "Appuyez sur Ctrl+C.", "libreoffice-help"),
        ("Good.", "Bien.", "libreoffice-help"),
        ("Better.", "Mieux.", "libreoffice-help"),
        ("File", "Fichier", "libreoffice-ui"),
        ("a_b_c", "a_b_d", "libreoffice-ui"),
        ("One", "Un", "gnome-user-docs"),
        ("Two", "Deux", "gnome-user-docs"),
    ]


def test_pages_of_different_lengths_are_not_paired(tmp_path: Path) -> None:
    files = {GNOME.format("C", "x"): page("One", "Two"), GNOME.format("fr", "x"): page("Un")}
    files |= {GNOME.format("C", "y"): page("Three"), GNOME.format("fr", "y"): page("Trois")}
    assert software_pairs([package(tmp_path / "a.deb", files)], "fr") == [("Three", "Trois", "gnome-user-docs")]


def test_what_holds_no_pairs_is_refused(packages: list[Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="hold no text in English and"):
        software_pairs(packages, ".*")
    (tmp_path / "a.deb").write_bytes(b"PK\x03\x04")
    with pytest.raises(DataError, match=r"a\.deb` is not a Debian package"):
        software_pairs([tmp_path / "a.deb"], "fr")
    content = packages[0].read_bytes()
    for size in (20, 100, 140, len(content) - 40):
        packages[0].write_bytes(content[:size])
        with pytest.raises(DataError, match=r"en\.deb` is damaged"):
            software_pairs(packages, "fr")
